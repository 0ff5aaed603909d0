from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from agentpod_bot.demo import harness
from agentpod_bot.demo.harness import QUESTIONS, Harness
from agentpod_bot.errors import CannotStart

DECIDED = {"status": "decided"}


class Endpoint:
    """Answers the given statuses in turn, and then always the last one."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.calls += 1
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=status, text=json.dumps(body), content_type="application/json")

    async def asked(self) -> Any:
        app = web.Application()
        app.router.add_post("/v1/requests", self.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with Harness(f"http://127.0.0.1:{runner.addresses[0][1]}", "x" * 32) as asking:
                return await asking.ask(QUESTIONS[0], session_id="s", request_id="r", ttl_s=5)
        finally:
            await runner.cleanup()


async def test_a_daemon_that_is_not_in_the_room_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "AGAIN_S", 0)
    endpoint = Endpoint((503, {"code": "matrix_unavailable"}), (503, {"code": "not_in_room"}), (201, DECIDED))
    assert await endpoint.asked() == DECIDED
    assert endpoint.calls == 3


async def test_a_daemon_that_never_can_ask_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "AGAIN_S", 0)
    monkeypatch.setattr(harness, "GONE_S", 0)
    with pytest.raises(CannotStart, match="no_approver"):
        await Endpoint((503, {"code": "no_approver"})).asked()


async def test_a_refusal_ends_the_demo_at_once() -> None:
    endpoint = Endpoint((403, {"code": "forbidden"}))
    with pytest.raises(CannotStart, match="forbidden"):
        await endpoint.asked()
    assert endpoint.calls == 1
