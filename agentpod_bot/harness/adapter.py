"""What every harness's adapter is: its call read into a question, and the end of it said in its own words.

An adapter is pure. It reads leniently (a field that it does not know is ignored, one that
is missing is left out of the question) and writes strictly. It says yes only by `End.approves`
and `End.chooses`, which hold for a person's decision alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from agentpod_bot.core.model import Meaning, Outcome, Scope

if TYPE_CHECKING:
    from agentpod_bot.core.ids import SessionId, UserId
    from agentpod_bot.core.lifecycle import AnsweredElsewhere, Cancelled
    from agentpod_bot.core.model import Option, PermissionRequest

Json = dict[str, Any]
Answer = dict[str, Any] | list[Any]
"""What a harness is told, as JSON; a list for the one harness that asks with a list."""


class WhenUnanswered(StrEnum):
    """What a hook is told when nobody could be asked, or nobody answered in time."""

    DENY = "deny"
    TERMINAL = "terminal"
    """The harness's own question in the terminal decides."""


@dataclass(frozen=True, slots=True)
class Manner:
    """What the configuration says about how a client's harness is to be answered."""

    when_unanswered: WhenUnanswered = WhenUnanswered.DENY
    codex_version: str | None = None
    """Version of the client's Codex, like `0.171.0`, where its calls do not say it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for people."""

    request: PermissionRequest


@dataclass(frozen=True, slots=True)
class Close:
    """The harness needs some of its open questions no longer; they close without a decision."""

    event: AnsweredElsewhere | Cancelled
    session_id: SessionId | None
    """None for every session of the client."""
    prefixes: tuple[str, ...]
    """With which the request id, or the hold's twin, of what closes begins; `("",)` fits everything."""
    every: bool
    """Whether all that fit are closed, or only the oldest of them."""
    answer: Answer


@dataclass(frozen=True, slots=True)
class Settled:
    """Nothing that people could be asked. The harness has its answer at once, and it allows nothing."""

    answer: Answer
    why: str
    """For the log: a few words of ours, nothing from outside."""


Call = Ask | Close | Settled


@dataclass(frozen=True, slots=True)
class End:
    """How the question of one call ended, or that nobody was asked."""

    outcome: Outcome | None
    """None where nobody was asked, or the daemon stopped meanwhile."""
    reason: str
    """One plain sentence for the harness and its model: who decided what, or why nothing was decided."""
    option: Option | None = None
    """What a person selected; set for `SELECTED` alone."""
    by: UserId | None = None
    comment: str | None = None
    """The reason that a person gave with a rejection."""
    unavailable: bool = False
    """Nobody could be asked: Matrix or the store is not there, or nobody who may answer is in the room."""

    @property
    def approves(self) -> bool:
        """Whether a person chose an option that approves."""
        return self.outcome is Outcome.SELECTED and self.option is not None and self.option.meaning is Meaning.APPROVE

    @property
    def approves_always(self) -> bool:
        """Whether a person chose an option that approves with scope always, or whose scope nobody knows."""
        return self.approves and self.option is not None and self.option.scope is not Scope.ONCE

    @property
    def rejects(self) -> bool:
        """Whether a person chose an option that rejects."""
        return self.outcome is Outcome.SELECTED and self.option is not None and self.option.meaning is Meaning.REJECT

    @property
    def chooses(self) -> bool:
        """Whether a person chose an option that neither approves nor rejects."""
        return self.outcome is Outcome.SELECTED and self.option is not None and self.option.meaning is Meaning.CHOOSE

    @property
    def hands_back(self) -> bool:
        """Whether `when_unanswered: terminal` applies: nobody could be asked, or nobody answered in time."""
        return self.outcome is Outcome.EXPIRED or (self.outcome is None and self.unavailable)


class Harness(Protocol):
    """One harness's adapter: a module with these names fits."""

    NAME: str
    """As the path and the configuration call it."""
    HOOK: bool
    """Whether an error status would let the tool run: then every end is HTTP 200 and a plain no."""
    PATIENCE_S: int | None
    """After how many seconds the harness itself stops waiting, unless it is configured otherwise; None: never."""

    def parse(self, body: bytes, manner: Manner) -> Call:
        """Read one call. Raises `MalformedJson` or `Invalid`.

        `request.raw` is `body`. `request.request_id` is set where the harness names its calls
        (then made of those names, with the harness's own name in front); a harness that asks
        twice under one id asks the same.
        """
        ...

    def answer(self, asked: bytes, call: bytes, end: End, manner: Manner) -> Answer:
        """What the harness is told. It allows something only where `end` is a person's decision to.

        `asked` is the body from which the question was made: what is echoed comes from it.
        `call` is the body of the call that is answered now, which may be a repeat: ids of the
        call, and what it says about its caller's version, come from it.
        """
        ...

    def refuse(self, call: bytes | None, end: End, manner: Manner) -> Answer:
        """The same for a call of which no question was made, or that cannot even be read (None)."""
        ...
