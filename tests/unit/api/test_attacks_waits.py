from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.ids import Row
from agentpod_bot.errors import StoreUnavailable
from tests.unit.api.bench import bench

if TYPE_CHECKING:
    import pytest

    from agentpod_bot.api.ports import Broker


async def test_a_question_that_was_asked_is_never_answered_as_if_nobody_was_asked() -> None:
    """The README says of such a 503 that nobody was asked; the person would answer, and the harness never look."""
    async with bench() as daemon:
        daemon.broker.max_waits = 0
        reply = await daemon.client.ask("/v1/requests?wait=60")
        was_asked = Row(1) in daemon.broker.questions
        told = reply.json if reply.status == 201 else reply.json.get("request")
        assert not was_asked or (told is not None and told["status"] == "pending")


async def test_over_the_limit_of_waits_a_post_is_answered_at_once_and_a_read_is_refused() -> None:
    async with bench(max_waits=0) as daemon:
        first = await daemon.client.ask("/v1/requests?wait=60")
        again = await daemon.client.ask("/v1/requests?wait=60")
        assert [(reply.status, reply.json["decision"]) for reply in (first, again)] == [(201, None), (200, None)]
        reply = await daemon.client.get("/v1/requests/acps_3f0c:12?wait=60")
        assert (reply.status, reply.code) == (503, "too_many_waits")
        assert int(reply.headers["Retry-After"]) > 0


async def test_over_the_limit_of_waits_a_closed_request_is_handed_over_all_the_same() -> None:
    async with bench(max_waits=0) as daemon:
        await daemon.client.ask()
        await daemon.broker.decide(1)
        assert (await daemon.client.ask("/v1/requests?wait=60")).json["decision"]["option_id"] == "allow_once"
        assert daemon.broker.delivered == {Row(1)}


async def test_a_question_that_was_stored_is_shown_even_where_it_cannot_be_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(_broker: Broker, _row: Row, *, up_to_s: float) -> None:
        raise StoreUnavailable(f"the disk went away before the wait of {up_to_s} s")

    async with bench() as daemon:
        monkeypatch.setattr(type(daemon.broker), "waiting", unreadable)
        reply = await daemon.client.ask("/v1/requests?wait=60")
        assert (reply.status, reply.json["status"]) == (201, "pending")
