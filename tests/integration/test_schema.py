"""What `/openapi.json` says of the running daemon is so: nothing undocumented, no failure of ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentpod_bot.harness.registry import ADAPTERS
from tests.integration.daemons import ALLOW, REJECT, Daemon
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from schemathesis import Case
    from schemathesis.schemas import APIOperation

    Operation = APIOperation[Any, Any, Any, Any]

EXAMPLES = 10
"""Of each route and each kind of input."""
ASKED: dict[str, Any] = {"session_id": "acps_1", "title": "Run the tests", "options": [ALLOW, REJECT]}
LONGEST_WAIT_S = 0.3
TOO_LONG_S = 20.0
UNAVAILABLE = 503
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


class Approver:
    """Answers every question in the room as soon as it stands there, so that no call waits for long."""

    def __init__(self, hs: FakeHomeserver, room_id: str, owner: str) -> None:
        self._hs = hs
        self._room_id = room_id
        self._owner = owner
        self.answered: list[str] = []
        """Request ids, in the order of their questions."""

    async def run(self) -> None:
        looked = 0
        while True:
            await self._hs.until(lambda: len(self._hs.timeline(self._room_id)) > looked)  # noqa: B023 - asked at once
            new = self._hs.timeline(self._room_id)[looked:]
            looked += len(new)
            for event in new:
                if event["content"].get("suite_event_type") == "dev.agentpod.permission.v2":
                    self._hs.say(self._room_id, self._owner, "1", reply_to=event["event_id"])
                    self.answered.append(event["content"]["request_id"])


class Running:
    """The daemon under test."""

    def __init__(self, daemon: Daemon, approver: Approver, document: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{daemon.port}"
        self.headers = {"Authorization": f"Bearer {daemon.token}"}
        self.approver = approver
        self.schema = schemathesis.openapi.from_dict(document)

    def operations(self) -> list[Operation]:
        return [found.ok() for found in self.schema.get_all_operations() if isinstance(found, Ok)]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with FakeHomeserver() as hs:
        pod, owner = hs.user("pod"), hs.user("owner")
        room_id = hs.room(pod, owner)
        bot = (pod, hs.token(pod, "POD"))
        daemon = Daemon(tmp_path / "daemon", homeserver=hs.url, bot=bot, rooms={"ops": room_id}).approve(owner)
        for each in (daemon.config["clients"]["laptop"], daemon.config["routes"]["ops"]):
            each["harnesses"] = ["native", *ADAPTERS]
        approver = Approver(hs, room_id, owner)
        answering = asyncio.create_task(approver.run())
        try:
            await daemon.start()
            async with daemon.harness() as harness:
                assert (await harness.ask(wait_s=TOO_LONG_S)).body["status"] == "decided"
                document = (await harness.call("GET", "/openapi.json")).body
            yield Running(daemon, approver, document)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            await daemon.stop()
        assert daemon.logged("call_failed") == []


@pytest.mark.timeout(300)
@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", list(GenerationMode))
async def test_no_input_gets_an_answer_that_the_document_does_not_promise(
    running: Running, mode: GenerationMode
) -> None:
    def all_of_them() -> None:
        with requests.Session() as session:
            for operation in running.operations():
                said = operation.definition.raw
                if mode is GenerationMode.POSITIVE or "parameters" in said or "requestBody" in said:
                    _try(running, operation, mode, session)

    before = len(running.approver.answered)
    await asyncio.to_thread(all_of_them)
    assert len(running.approver.answered) > before or mode is GenerationMode.NEGATIVE


def _try(running: Running, operation: Operation, mode: GenerationMode, session: requests.Session) -> None:
    """Call one route with what its document allows, or with what it does not, and check each answer."""

    @SETTINGS
    @given(case=operation.as_strategy(generation_mode=mode), how=st.randoms(use_true_random=False))
    def answers_as_documented(case: Case[Any], how: Any) -> None:
        _soon_over(case)
        may_ask = mode is GenerationMode.POSITIVE and operation.label == "POST /v1/requests"
        if may_ask and isinstance(case.body, dict) and how.random() < 2 / 3:
            case.body = case.body | ASKED  # what else it says stays; a question comes of it more often than not
        if "request_id" in (case.path_parameters or {}) and running.approver.answered and how.random() < 1 / 2:
            case.path_parameters["request_id"] = _escaped(how.choice(running.approver.answered))
        if "harness" in (case.path_parameters or {}) and how.random() < 2 / 3:
            case.path_parameters["harness"] = how.choice(sorted(ADAPTERS))
        headers = running.headers if mode is GenerationMode.POSITIVE or how.random() < 2 / 3 else {}
        response = case.call(base_url=running.url, session=session, headers=headers, timeout=TOO_LONG_S)
        case.validate_response(response, checks=CHECKS)

    answers_as_documented()


def _soon_over(case: Case[Any]) -> None:
    """No call waits for long; a question that is answered at once is what the others wait for."""
    query = case.query or {}
    if isinstance(query.get("wait"), int | float) and query["wait"] > LONGEST_WAIT_S:
        query["wait"] = LONGEST_WAIT_S


def _escaped(request_id: str) -> str:
    return quote(request_id, safe="")
