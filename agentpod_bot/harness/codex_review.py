"""ReviewDecision, the answer to Codex's older questions, in its two dialects.

Before 0.145.0 a no is `"denied"`; since then it is an object with a reason, and each refuses
the other's. What is misread runs nothing, but the reason is lost. Pre-releases of 0.145.0 are
taken for that release, for the change came with one of them.
Source: codex-rs/protocol/src/protocol.rs of https://github.com/openai/codex.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import Outcome
from agentpod_bot.harness.codex_choices import REJECT_AND_STOP, Choice, chosen, command_rule
from agentpod_bot.harness.codex_message import version_of
from agentpod_bot.harness.codex_patch import approvals
from agentpod_bot.harness.options import allow_always, allow_once, reject_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.harness.adapter import End, Json, Manner
    from agentpod_bot.harness.codex_message import Message

OBJECT_SINCE = (0, 145, 0)
NOT_OFFERED = "The answer is none that this request offers. Nothing was allowed."


class Dialect(Enum):
    """How a Codex reads a ReviewDecision."""

    STRING = auto()
    """Before 0.145.0."""
    OBJECT = auto()


def dialect_of(message: Message, manner: Manner) -> Dialect:
    """Which dialect the caller reads: by what the call says, else by the configuration, else the newer one."""
    version = message.version or version_of(manner.codex_version)
    return Dialect.STRING if version is not None and version < OBJECT_SINCE else Dialect.OBJECT


def of_command(proposed: Any) -> tuple[Choice, ...]:
    """The choices for a command; `proposed` is the beginning of commands that Codex would allow from now on."""
    rule = command_rule(0, proposed, {"approved_execpolicy_amendment": {"proposed_execpolicy_amendment": proposed}})
    session = "approved_for_session"
    return (
        Choice(allow_once(option_id=OptionId("approved")), "approved"),
        Choice(allow_always("Always allow this command for this session", option_id=OptionId(session)), session),
        *([] if rule is None else [rule]),
        *_REJECTING,
    )


def of_patch(root: Any) -> tuple[Choice, ...]:
    """The choices for a patch; `root` is the folder under which it asks to write from now on."""
    return (*approvals(root, "approved", "approved_for_session"), *_REJECTING)


def decided(choices: Iterable[Choice], end: End, dialect: Dialect) -> Json:
    """Return the answer where a person was asked: one that allows nothing, unless they chose one that does."""
    choice = chosen(choices, end)
    return no(end, dialect) if choice is None or choice.says is None else {"decision": choice.says}


def no(end: End, dialect: Dialect) -> Json:
    """Return the answer that allows nothing and lets the turn go on.

    To stop the turn is a person's choice, which nobody made who did not answer.
    """
    match dialect:
        case Dialect.STRING:
            return {"decision": "denied"}
        case Dialect.OBJECT:
            if end.outcome is Outcome.EXPIRED:
                return {"decision": "timed_out"}
            reason = NOT_OFFERED if end.approves or end.chooses else end.reason
            return {"decision": {"denied": {"rejection": reason}}}
        case _:
            assert_never(dialect)


_REJECTING = (
    Choice(reject_once(option_id=OptionId("denied")), None),
    Choice(reject_once(REJECT_AND_STOP, option_id=OptionId("abort")), "abort"),
)
