"""`ask`: one permission request from a shell script, and what its answer means for the exit code.

The rule of this file: only the approval of an option that this call offered, for the
very question that this call asked, is exit code 0.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId, RequestId
from agentpod_bot.core.model import BOTS_OWN_REJECT, Meaning, Scope
from agentpod_bot.errors import AgentpodError
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

View = dict[str, Any]
"""A request's view, as the daemon's JSON says it."""

KINDS: Mapping[str, tuple[Meaning, Scope | None]] = {
    "allow_once": (Meaning.APPROVE, Scope.ONCE),
    "allow_always": (Meaning.APPROVE, Scope.ALWAYS),
    "reject_once": (Meaning.REJECT, Scope.ONCE),
    "reject_always": (Meaning.REJECT, Scope.ALWAYS),
    "choose": (Meaning.CHOOSE, None),
}
"""The kinds that `--option` takes: those of ACP, and `choose` for anything else."""
DEFAULT_OPTIONS = ("allow_once:allow_once", "reject_once:reject_once")

MULTIPLES = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Choice:
    """One `--option`."""

    option_id: OptionId
    kind: str
    label: str | None

    def as_json(self) -> dict[str, Any]:
        """The option of a native request."""
        shape: dict[str, Any] = {"id": self.option_id}
        shape |= {"meaning": "choose"} if self.kind == "choose" else {"kind": self.kind}
        return shape if self.label is None else shape | {"label": self.label}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as this call asks it."""

    request_id: RequestId
    body: Mapping[str, Any]
    choices: tuple[Choice, ...]

    def meaning_of(self, option_id: str) -> Meaning | None:
        """What an option means by the kind that *we* gave it; None for one that we never offered."""
        if option_id == BOTS_OWN_REJECT:
            return Meaning.REJECT
        return next((KINDS[c.kind][0] for c in self.choices if c.option_id == option_id), None)


def choice(text: str) -> Choice:
    """Read `id:kind[:label]`. Raises `Stopped` (2): an unknown kind is refused, never guessed."""
    option_id, _, rest = text.partition(":")
    kind, colon, label = rest.partition(":")
    if not option_id or kind not in KINDS:
        raise Stopped(
            ExitCode.USAGE,
            f'--option "{text}" must be ID:KIND or ID:KIND:LABEL, where KIND is one of {", ".join(KINDS)}',
        )
    if kind == "choose" and not label:
        raise Stopped(ExitCode.USAGE, f'--option "{text}" needs a label: choose has none of its own')
    return Choice(OptionId(option_id), kind, label if colon else None)


def choices(texts: Sequence[str]) -> tuple[Choice, ...]:
    """Read every `--option`; without any, allow once and reject. Raises `Stopped` (2)."""
    read = tuple(choice(text) for text in texts or DEFAULT_OPTIONS)
    if len({each.option_id for each in read}) < len(read):
        raise Stopped(ExitCode.USAGE, "two options have the same id: an answer could mean either")
    return read


def field(text: str) -> dict[str, str]:
    """Read `LABEL=VALUE` as a field of the preview. Raises `Stopped` (2)."""
    label, equals, value = text.partition("=")
    if not label or not equals:
        raise Stopped(ExitCode.USAGE, f'--field "{text}" must be LABEL=VALUE')
    return {"type": "field", "label": label, "value": value}


def seconds(text: str) -> int:
    """Read a duration like 30s, 30m, 24h or 7d. Raises `Stopped` (2)."""
    match re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        case None:
            raise Stopped(ExitCode.USAGE, f'--ttl "{text}" must be a number and a unit, like 30s, 30m, 24h or 7d')
        case found if (whole := int(found[1]) * MULTIPLES[found[2]]) > 0:
            return whole
        case _:
            raise Stopped(ExitCode.USAGE, "--ttl must be more than nothing")


def open_for_s(view: View) -> float:
    """For how long a request is open, by the daemon's clock alone; a day where the view does not say."""
    match instant(view.get("created_at")), instant(view.get("expires_at")):
        case datetime() as created, datetime() as expires:
            return max(0.0, (expires - created).total_seconds())
        case _:
            return float(MULTIPLES["d"])


def instant(text: object) -> datetime | None:
    """A time of a view; None where it is none."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def exit_code(asked: Asked, posted: View, ended: View) -> ExitCode:
    """0 only for an approval (or a choice) of an option that this call offered, for what it asked.

    1 for a rejection, 3 for every other end. `posted` is the view that answered the
    post: the end of another revision, or of other content, is no answer.
    """
    if ended.get("request_id") != asked.request_id or not same_subject(posted, ended):
        return ExitCode.NO_ANSWER
    match ended:
        case {
            "status": "decided",
            "decision": {"outcome": "selected", "option_id": str(option_id), "meaning": str(meaning)},
        } if asked.meaning_of(option_id) == meaning:
            return ExitCode.NO if meaning == Meaning.REJECT else ExitCode.OK
        case _:
            return ExitCode.NO_ANSWER


def bound(asked: Asked, view: View) -> bool:
    """Whether the digest in a view is the one over what this call asked, so that an answer to it is ours."""
    from agentpod_bot.core.digest import digest  # noqa: PLC0415 - slow to import, and `--help` needs it not
    from agentpod_bot.harness.native import parse  # noqa: PLC0415 - likewise

    match view.get("subject"):
        case {"digest": str(given), "revision": int(revision), "salt": str(salt)}:
            try:
                request = parse(json.dumps(asked.body).encode())
                return given == digest(request, request_id=asked.request_id, revision=revision, salt=salt)
            except AgentpodError:
                return False  # no daemon of ours would have taken it
        case _:
            return False


def same_subject(posted: View, ended: View) -> bool:
    """Whether both views are of one revision with one digest."""
    match posted.get("subject"), ended.get("subject"):
        case {"digest": str(digest), "revision": int(revision)}, dict(now):
            return now.get("digest") == digest and now.get("revision") == revision
        case _:
            return False
