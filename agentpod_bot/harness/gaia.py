"""Gaia: an `approval_request` of its agents' contract, one command or a COMMAND_SET, and the consent to it.

The answer is one object, in the words of Gaia's `approvals.status`:

- `approval_id`, `request_fingerprint`: what was asked, so that a consent fits nothing else. A
  single command's fingerprint is that of a list of one.
- `status`: `approved` and `rejected` where a person decided so; `expired` where nobody
  answered in time; `revoked` for every other end (cancelled, replaced, claimed to be
  answered in another place, not kept in the room, never asked): nobody rejected it, and
  this request must not be run.
- `outcome`: how the question ended, in this program's words; null where nobody was asked.
- `decided_by`: the Matrix id of the person who decided, else null.
- `reason`: one sentence; a person's own reason is in it.

The approval's id is the request's, so what becomes of the commands is posted to
`/v1/requests/{approval_id}/progress`. The shape of the request is told in
`skills/agent-approval-protocol` of https://github.com/metraton/gaia.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import RequestId
from agentpod_bot.core.model import FieldPreview, Outcome, PermissionRequest, Preview, TextPreview
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import gaia_commands, naming, strict_json
from agentpod_bot.harness.adapter import Ask
from agentpod_bot.harness.options import ALLOW, allow_once, reject_once
from agentpod_bot.harness.tool_input import COMMAND_LABEL, SHELL, fields_of

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Call, End, Json, Manner
    from agentpod_bot.harness.gaia_commands import Commands

NAME = "gaia"
HOOK = False
PATIENCE_S: int | None = None
"""A pending approval stays for a day, and its runtime may come back for the answer."""

NOT_THIS = "The answer is not about exactly these commands. Nothing was allowed."
NO_ROLLBACK = "none given"

_APPROVAL_ID = re.compile(r"P-[0-9a-f]{32}")
_SAID = (
    ("Scope", "scope"),
    ("Risk level", "risk_level"),
    ("Rationale", "rationale"),
    ("Impact", "impact"),
    ("Rollback", "rollback"),
    ("Rollback hint", "rollback_hint"),
    ("Verification", "verification"),
)
"""What a request says beside its commands, with the label under which it is shown."""


@dataclass(frozen=True, slots=True)
class _Approval:
    approval_id: str
    commands: Commands
    content: Json


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one approval request. Raises `MalformedJson`, or `Invalid`, also where it contradicts itself."""
    approval = _read(body)
    content = approval.content
    operation = naming.text_of(content.get("operation"))
    if not operation:
        raise Invalid(("operation",), "must be a text that is not blank")
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(content.get("session_id")),
            title=operation,
            options=(allow_once(), reject_once()),
            request_id=RequestId(approval.approval_id),
            tool_kind="execute",
            agent=naming.name_of(content.get("agent_id")),
            preview=(*_commands(approval.commands), *_said(content), *_names(approval)),
            raw=body,
        )
    )


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """What became of the approval; approved only where a person allowed what `call` asks for again."""
    if not end.approves:
        return _told(call, _status(end), end)
    same = _identity(asked) == _identity(call) != _NOBODY
    if same and end.option is not None and end.option.option_id == ALLOW:
        return _told(call, "approved", end)
    return _told(call, "revoked", end) | {"reason": NOT_THIS}


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """That the approval is not given, and why; its id and fingerprint are null where they cannot be read."""
    return _told(call, "revoked" if end.approves else _status(end), end)


def _status(end: End) -> str:
    """Gaia's word for an end that is no approval; a rejection is one that a person gave."""
    if end.rejects:
        return "rejected"
    return "expired" if end.outcome is Outcome.EXPIRED else "revoked"


def _told(call: bytes | None, status: str, end: End) -> Json:
    approval_id, fingerprint = _identity(call)
    return {
        "approval_id": approval_id,
        "request_fingerprint": fingerprint,
        "status": status,
        "outcome": None if end.outcome is None else end.outcome.value,
        "decided_by": end.by if end.outcome is Outcome.SELECTED else None,
        "reason": end.reason,
    }


_NOBODY: tuple[str | None, str | None] = (None, None)


def _identity(call: bytes | None) -> tuple[str | None, str | None]:
    """The approval's id and its commands' fingerprint; both None where the call does not parse."""
    if call is None:
        return _NOBODY
    try:
        approval = _read(call)
    except (MalformedJson, Invalid):
        return _NOBODY
    return approval.approval_id, approval.commands.request_fingerprint


def _read(body: bytes) -> _Approval:
    content = strict_json.read(body)
    approval_id = content.get("approval_id")
    if not isinstance(approval_id, str) or not _APPROVAL_ID.fullmatch(approval_id):
        raise Invalid(("approval_id",), "must be P- and 32 hexadecimal digits in lower case")
    return _Approval(approval_id, gaia_commands.read(content), content)


def _commands(commands: Commands) -> tuple[Preview, ...]:
    """Each command with its number, as Gaia counts them before people: from [1]."""
    if not commands.is_set:
        return (TextPreview(COMMAND_LABEL, commands.texts[0], SHELL),)
    parts: list[Preview] = []
    for number, (text, why) in enumerate(zip(commands.texts, commands.rationales, strict=True), start=1):
        parts.append(TextPreview(f"[{number}] {COMMAND_LABEL}", text, SHELL))
        parts += [] if why in (None, "") else fields_of({f"[{number}] Rationale": why})
    return tuple(parts)


def _said(content: Json) -> tuple[Preview, ...]:
    said: dict[str, Any] = {label: content[name] for label, name in _SAID if content.get(name) not in (None, "")}
    if "Rollback" not in said and "Rollback hint" not in said:
        said["Rollback"] = NO_ROLLBACK
    return fields_of(said)


def _names(approval: _Approval) -> tuple[Preview, ...]:
    return (
        FieldPreview("Request fingerprint", approval.commands.request_fingerprint),
        FieldPreview("Approval", approval.approval_id),
    )
