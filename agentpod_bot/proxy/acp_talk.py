"""ACP, as a bridge between an editor and an agent hears it (protocol version 1, and version 2's draft).

Source: https://agentclientprotocol.com, pages "Tool Calls", "Prompt Turn", "Cancellation", "Elicitation".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentpod_bot.proxy.talk import (
    Memory,
    Message,
    Over,
    Passed,
    Replied,
    asked,
    fault_of,
    key_of,
    member,
    message_of,
    reply_key,
    text,
)

if TYPE_CHECKING:
    from agentpod_bot.proxy.talk import FromAgent, FromClient

MOST_CALLS = 1_000
MOST_PROMPTS = 1_000
MOST_BYTES = 16 * 2**20
NOT_KEPT = frozenset({"sessionUpdate", "rawOutput"})
"""What an update says about itself, or about what is done already."""


class AcpTalk:
    """Fits `Talk`. Remembers what a session said about its tool calls until its prompt ends.

    `alone` says that no client is there to answer what cannot be put into a room.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._alone = alone
        self._calls = Memory(MOST_CALLS, MOST_BYTES)
        self._prompts = Memory(MOST_PROMPTS, MOST_BYTES)

    def from_agent(self, line: bytes) -> FromAgent:
        """Questions to people stop here; updates of tool calls are remembered."""
        message = message_of(line)
        match message:
            case {"method": "session/request_permission", "id": _}:
                session = member(message, "params", "sessionId")
                added, fault = self._merged(message)
                return asked(line, message, session=session, added=added, fault=fault)
            case {"method": "elicitation/create", "id": _}:
                return asked(line, message, session=member(message, "params", "sessionId"), elsewhere=not self._alone)
            case {"method": "$/cancel_request", "params": {"requestId": request_id}}:
                return Over("the agent took its question back", key=key_of(request_id), passed=True)
            case {"method": "session/update", "params": {"sessionId": str(session), "update": {} as update}}:
                self._remember(session, update, line)
            case {"id": request_id} if "method" not in message:
                self._prompt_ended(key_of(request_id))
            case _:
                pass
        return Passed()

    def from_client(self, line: bytes) -> FromClient:
        """A cancelled turn takes the questions of its session with it."""
        message = message_of(line)
        match message:
            case {"method": "session/cancel", "params": {"sessionId": str(session)}}:
                return Over("the turn was cancelled", session=session)
            case {"method": "$/cancel_request", "params": {"requestId": request_id}}:
                session = self._prompts.get(key_of(request_id))
                return Passed() if session is None else Over("the turn was cancelled", session=session)
            case {"method": "session/prompt", "id": request_id, "params": {"sessionId": str(session)}}:
                self._prompts.keep(key_of(request_id), session, len(session))
            case {"id": request_id} if "method" not in message:
                return Replied(reply_key(request_id))
            case _:
                pass
        return Passed()

    def _remember(self, session: str, update: Message, line: bytes) -> None:
        call_id = update.get("toolCallId")
        if update.get("sessionUpdate") not in {"tool_call", "tool_call_update"} or not isinstance(call_id, str):
            return
        said = {name: value for name, value in update.items() if name not in NOT_KEPT and value is not None}
        earlier, fault = self._calls.get((session, call_id)) or ({}, None)
        whole = {**earlier, **said}
        # What could be read in two ways stays a fault of this call: nobody would be shown what it does.
        self._calls.keep((session, call_id), (whole, fault or fault_of(line)), len(json.dumps(whole)))

    def _prompt_ended(self, key: str) -> None:
        session = self._prompts.forget(key)
        if session is not None:
            self._calls.forget_where(lambda known: known[0] == session)

    def _merged(self, message: Message) -> tuple[Message | None, str | None]:
        """The message with what was said before about its tool call, and a fault of that; None where nothing was."""
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        session = text(params.get("sessionId"))
        subject = params.get("subject")
        if isinstance(subject, dict) and subject.get("type") == "tool_call":
            whole, fault = self._with_earlier(session, subject.get("toolCall"))
            return whole and message | {"params": params | {"subject": subject | {"toolCall": whole}}}, fault
        whole, fault = self._with_earlier(session, params.get("toolCall"))
        return whole and message | {"params": params | {"toolCall": whole}}, fault

    def _with_earlier(self, session: str, call: Any) -> tuple[Message | None, str | None]:
        known = self._calls.get((session, text(member(call, "toolCallId"))))
        if known is None:
            return None, None
        earlier, fault = known
        return {**earlier, **{name: value for name, value in call.items() if value is not None}}, fault
