"""The answer to a call of `--permission-prompt-tool`: the daemon's, where it is one, else a plain no.

What Claude Code expects is one JSON object, `{"behavior": "allow", "updatedInput": …}` or
`{"behavior": "deny", "message": …}` (https://code.claude.com/docs/en/cli-reference).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentpod_bot.errors import AgentpodError
from agentpod_bot.harness import claude_prompt
from agentpod_bot.harness.adapter import Ask, End, Manner
from agentpod_bot.harness.reasons import unasked
from agentpod_bot.proxy import door

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.harness.adapter import Json
    from agentpod_bot.proxy.client import Daemon
    from agentpod_bot.proxy.door import Timer

OF_ALLOW = frozenset({"behavior", "updatedInput", "updatedPermissions"})
OF_DENY = frozenset({"behavior", "message", "interrupt"})
ADDABLE = {"AskUserQuestion": frozenset({"answers"})}
"""What an answer may set in the input of a tool; of any other tool's it changes nothing."""


async def approve(daemon: Daemon, arguments: Json, query: Mapping[str, str], timer: Timer) -> Json:
    """Ask with the tool call of `arguments`, and return what the tool says. Every failure is a denial."""
    body = json.dumps(arguments).encode()
    try:
        answer = await door.ask(daemon, claude_prompt.NAME, body, query, timer)
    except door.Unanswered as fault:
        return denied(body, unasked(str(fault), unavailable=True) if fault.unreached else lost(str(fault)))
    if not fits(answer.content, arguments):
        return denied(body, lost("what came back is no answer to this call"))
    return answer.content


def fits(answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether an answer is one to this very call: a denial, or an allowance of the same input."""
    match answer:
        case {"behavior": "deny", "message": str(message)} if message:
            return answer.keys() <= OF_DENY
        case {"behavior": "allow", "updatedInput": dict(updated)}:
            asked = arguments.get("input")
            addable = ADDABLE.get(str(arguments.get("tool_name")), frozenset())
            same = isinstance(asked, dict) and without(updated, addable) == without(asked, addable)
            return same and answer.keys() <= OF_ALLOW
        case _:
            return False


def without(tool_input: Mapping[str, Any], names: frozenset[str]) -> str:
    """An input without some of its members, as a text that is equal for equal JSON alone."""
    return json.dumps({name: value for name, value in tool_input.items() if name not in names}, sort_keys=True)


def request_id_of(arguments: Json) -> RequestId | None:
    """The id under which the daemon knows the question of a call; None where the call has no name of its own."""
    try:
        call = claude_prompt.parse(json.dumps(arguments).encode(), Manner())
    except AgentpodError:
        return None
    return call.request.request_id if isinstance(call, Ask) else None


def lost(detail: str) -> End:
    """The end of a call of which nobody here knows whether anyone was asked; `detail` without its full stop."""
    return End(outcome=None, reason=f"No answer came back, and nothing was allowed: {detail}.", unavailable=True)


def denied(body: bytes, end: End) -> Json:
    """The denial of a call that nobody decided."""
    return claude_prompt.refuse(body, end, Manner())
