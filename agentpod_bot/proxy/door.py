"""One call of a harness, put to the daemon in the harness's own words, until its answer is there.

See `POST /v1/harness/{name}`. A lost connection and a restart of the daemon lose no answer: the
same body again joins the question that is open, or fetches the answer that nobody fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import strict_json
from agentpod_bot.proxy.client import Reply, Unreached, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.proxy.client import Daemon

RETRY_S = 2.0
AWAY_S = 60.0
"""How long a daemon that may have taken the call, and then went away, is called again."""
PASSING = frozenset({502, 504})
"""What a proxy in front of a daemon says while the daemon is restarted."""


class Timer(Protocol):
    """Monotonic time; the part of `ports.Clock` that this needs."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class Unanswered(Exception):
    """The daemon gave no answer. `str()` of it says why, without a full stop.

    `unreached` is true where no daemon took the call, so that nobody can have been asked.
    """

    def __init__(self, msg: str, *, unreached: bool = False) -> None:
        super().__init__(msg)
        self.unreached = unreached


class Answer:
    """What the daemon answered: a JSON object, and its text on one line, just as it came."""

    __slots__ = ("content", "line")

    def __init__(self, body: bytes, content: dict[str, Any]) -> None:
        self.content = content
        self.line = body.strip().replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON, they stand between tokens alone


async def ask(daemon: Daemon, harness: str, body: bytes, query: Mapping[str, str], timer: Timer) -> Answer:
    """Put one call to the daemon and wait for its answer, without a limit. Raises `Unanswered`."""
    path = f"/v1/harness/{escaped(harness)}"
    lost_at: float | None = None
    taken = False
    while True:
        began = timer.monotonic()
        try:
            reply = await daemon.call("POST", path, query=query, body=body, limit_s=None)
        except Unreached as fault:
            taken = taken or fault.sent
            if not taken:
                raise Unanswered(
                    f"agentpod-bot could not be reached at {daemon.endpoint}: {fault}", unreached=True
                ) from fault
            why = f"the connection to agentpod-bot at {daemon.endpoint} was lost: {fault}"
        else:
            if not passing(reply):
                return answer_of(reply, daemon)
            taken, why = True, refusal(reply, daemon)
        now = timer.monotonic()
        if lost_at is None or now - began >= AWAY_S:  # a call that was held for long was in good hands until now
            lost_at = now
        if now - lost_at >= AWAY_S:
            raise Unanswered(why)
        await timer.sleep(RETRY_S)


def passing(reply: Reply) -> bool:
    """Whether the same call is worth repeating: the daemon stops, and what was asked stays."""
    return reply.status in PASSING or (reply.status == 503 and reply.code == "shutting_down")  # noqa: PLR2004 - HTTP's


def answer_of(reply: Reply, daemon: Daemon) -> Answer:
    """The answer in a reply. Raises `Unanswered` for everything but HTTP 200 with one JSON object."""
    if reply.status != 200:  # noqa: PLR2004 - HTTP's number
        raise Unanswered(refusal(reply, daemon))
    if reply.media_type != "application/json":
        raise Unanswered(f"what answers at {daemon.endpoint} is not agentpod-bot: its answer is no JSON")
    try:
        return Answer(reply.body, strict_json.read(reply.body))
    except (MalformedJson, Invalid) as fault:
        raise Unanswered(f"what answers at {daemon.endpoint} is not agentpod-bot: {fault}") from fault


def refusal(reply: Reply, daemon: Daemon) -> str:
    """Why the daemon did not take a call, as a sentence without its full stop."""
    code = f"HTTP {reply.status}" + (f", {reply.code}" if reply.code.isidentifier() else "")
    return f"agentpod-bot at {daemon.endpoint} did not take it ({code}): {reply.sentence.rstrip('.')}"
