from __future__ import annotations

from agentpod_bot.core.ids import Row
from tests.unit.api.bench import bench


async def test_a_question_that_was_asked_is_never_answered_as_if_nobody_was_asked() -> None:
    """The README says of such a 503 that nobody was asked; the person would answer, and the harness never look."""
    async with bench() as daemon:
        daemon.broker.max_waits = 0
        reply = await daemon.client.ask("/v1/requests?wait=60")
        was_asked = Row(1) in daemon.broker.questions
        told = reply.json if reply.status == 201 else reply.json.get("request")
        assert not was_asked or (told is not None and told["status"] == "pending")
