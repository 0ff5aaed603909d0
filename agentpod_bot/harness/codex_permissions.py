"""Codex's question for more permissions: `item/permissions/requestApproval`.

They are granted as they were asked for, or not at all: the same JSON value for this turn or
for the session, or an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.ids import OptionId
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import naming
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.codex_choices import Choice, chosen, options_of
from agentpod_bot.harness.codex_items import ItemParams, request_id
from agentpod_bot.harness.codex_message import ask, framed, is_exact, read_params
from agentpod_bot.harness.codex_profile import Profile, asks_for_nothing, profile
from agentpod_bot.harness.codex_shown import members, unknown
from agentpod_bot.harness.options import allow_always, allow_once, reject_once

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Ask, End, Json
    from agentpod_bot.harness.codex_message import Message

PERMISSIONS = "item/permissions/requestApproval"
_KNOWN = frozenset(
    {"threadId", "turnId", "itemId", "approvalId", "startedAtMs", "cwd", "environmentId", "reason", "permissions"}
)


class _Params(ItemParams):
    cwd: str
    permissions: Profile


def question(message: Message) -> Ask | Settled:
    """Return the question of a message; raises `Invalid`, also where a part of it is of an unknown kind."""
    params = message.params
    asked = read_params(_Params, params)
    permissions = params["permissions"]
    if not is_exact(permissions):
        raise Invalid(("params", "permissions"), "must not hold numbers that cannot be read exactly")
    # An empty grant is how Codex is told no: nobody could say yes to it.
    if asks_for_nothing(permissions):
        return Settled(framed(message, no()), "no permission is asked for")
    said = {
        "Working directory": asked.cwd,
        "Environment": params.get("environmentId"),
        "Reason": params.get("reason"),
    }
    return ask(
        message,
        session_id=naming.session_id(asked.thread_id),
        request_id=request_id(message),
        title=naming.title_of("Grant permissions", naming.text_of(params.get("reason"))),
        tool_kind=None,
        options=options_of(_choices(permissions)),
        preview=(*profile(permissions), *members(said), *unknown(params, _KNOWN)),
    )


def result(message: Message, end: End) -> Json:
    """Return the answer to a message of which a question was made."""
    choice = chosen(_choices(message.params["permissions"]), end)
    return no() if choice is None or choice.says is None else choice.says


def no() -> Json:
    """Return the answer that grants nothing."""
    return {"permissions": {}}


def _choices(permissions: Json) -> tuple[Choice, ...]:
    return (
        Choice(
            allow_once("Allow for this turn", option_id=OptionId("turn")),
            {"permissions": permissions, "scope": "turn"},
        ),
        Choice(
            allow_always("Always allow these permissions for this session", option_id=OptionId("session")),
            {"permissions": permissions, "scope": "session"},
        ),
        Choice(reject_once(), None),
    )
