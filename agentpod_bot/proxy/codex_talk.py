"""Codex's app-server and MCP server, as a bridge between a client and one of them hears it.

Source: `codex-rs/app-server/README.md` and its generated JSON schemas, and
`codex-rs/mcp-server`, of https://github.com/openai/codex.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from agentpod_bot.harness.codex_patch import NOT_KEPT
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
    from collections.abc import Callable

    from agentpod_bot.proxy.talk import FromAgent, FromClient

MOST_CHANGES = 1_000
MOST_CALLS = 10_000
MOST_BYTES = 16 * 2**20
MOST_SHOWN = 2**19
"""Bytes of the changes of one item that go with a question; the daemon takes a call of twice as many."""
MOST_DIFF = 2**15
"""Bytes of a change that stays as it is where the changes of its item are more than that together."""
FILE_CHANGE = "item/fileChange/requestApproval"
TOO_MANY = "it changes more files than can be shown"
UNKNOWN = "it asks for an approval of a kind that is not known here"

_APPROVAL = re.compile("approv|permission", re.IGNORECASE)


class CodexTalk:
    """Fits `Talk`. `is_human` says which calls of the server are questions to people.

    Remembers the changes of items, which an approval of them does not repeat, and which
    program answered `initialize`.
    """

    def __init__(self, is_human: Callable[[str], bool]) -> None:
        self._is_human = is_human
        self._changes = Memory(MOST_CHANGES, MOST_BYTES)
        self._calls = Memory(MOST_CALLS, MOST_BYTES)
        self._user_agent: str | None = None

    def from_agent(self, line: bytes) -> FromAgent:
        """Questions to people stop here; what ends them goes on."""
        message = message_of(line)
        match message:
            case {"method": str(method), "id": _} if self._for_people(method, message):
                params = message.get("params")
                session = member(params, "threadId") or member(params, "conversationId")
                added, fault = self._completed(message)
                return asked(line, message, session=session, turn=member(params, "turnId"), added=added, fault=fault)
            case {"method": str(method), "id": _} if _APPROVAL.search(method):
                # The client might answer it by itself, and nobody here knows what that would allow.
                return asked(line, message, session=member(message, "params", "threadId"), fault=UNKNOWN)
            case {"method": "serverRequest/resolved", "params": {"requestId": request_id}}:
                return Over("Codex needs it no longer", key=key_of(request_id), answered=False)
            case {"method": "turn/completed", "params": {"threadId": str(thread)} as params}:
                return self._turn_over(thread, member(params, "turn", "id") or member(params, "turnId"))
            case {"method": "item/started", "params": {} as params}:
                self._remember(params, line)
            case {"method": "item/completed", "params": {} as params}:
                self._changes.forget(place(params, member(params, "item", "id")))
            case {"id": request_id} if "method" not in message:
                return self._reply(key_of(request_id), message)
            case _:
                pass
        return Passed()

    def from_client(self, line: bytes) -> FromClient:
        """Nothing that a client says ends a question: the server says what follows from it."""
        message = message_of(line)
        match message:
            case {"method": str(method), "id": request_id}:
                self._calls.keep(key_of(request_id), method, len(method))
            case {"id": request_id} if "method" not in message:
                return Replied(reply_key(request_id))
            case _:
                pass
        return Passed()

    def _for_people(self, method: str, message: Message) -> bool:
        # The MCP server also hands on what other MCP servers elicit; that is the client's to answer.
        if method == "elicitation/create":
            return member(message, "params", "codex_elicitation") is not None
        return self._is_human(method)

    def _turn_over(self, thread: str, turn: Any) -> Over:
        turn = text(turn) or None
        self._changes.forget_where(lambda known: known[0] == thread and turn in {None, known[1]})
        return Over("the turn is over", session=thread, turn=turn, answered=False)

    def _reply(self, key: str, message: Message) -> Passed | Over:
        method = self._calls.forget(key)
        if method is None and member(message, "error", "data", "reason") == "turnTransition":
            return Over("the turn changed", key=key, answered=False)
        if method == "initialize":
            self._user_agent = text(member(message, "result", "userAgent")) or self._user_agent
        return Passed()

    def _remember(self, params: Message, line: bytes) -> None:
        item = params.get("item")
        changes = member(item, "changes")
        if isinstance(changes, list):
            kept, fault = outline(changes), fault_of(line)
            if size_of(kept) > MOST_SHOWN:
                kept, fault = [], fault or TOO_MANY
            self._changes.keep(place(params, member(item, "id")), (kept, fault), size_of(kept))

    def _completed(self, message: Message) -> tuple[Message | None, str | None]:
        """The message with its item's changes and the server's name, None where neither is known; and their fault."""
        params = message.get("params")
        added: Message = {}
        fault = None
        if isinstance(params, dict) and message["method"] == FILE_CHANGE:
            changes, fault = self._changes.get(place(params, params.get("itemId"))) or (None, None)
            added |= {"params": {**params, "changes": changes}} if changes is not None else {}
        added |= {"userAgent": self._user_agent} if self._user_agent is not None else {}
        return ({**message, **added} if added else None), fault


def outline(changes: list[Any]) -> list[Any]:
    """Changes of files; of those that are too large together, the large ones without their diff.

    What stays says that there was one, and how many bytes it had.
    """
    if size_of(changes) <= MOST_SHOWN:
        return changes
    smaller = [without_diff(change) if size_of(change) > MOST_DIFF else change for change in changes]
    return smaller if size_of(smaller) <= MOST_SHOWN else [without_diff(change) for change in changes]


def without_diff(change: Any) -> Any:
    """One change without its diff; anything else, of which nobody knows what it is, as nothing at all."""
    match change:
        case {"path": str() as path, "kind": kind, "diff": str() as diff}:
            return {"path": path, "kind": kind, NOT_KEPT: len(diff.encode(errors="replace"))}
        case _:
            return None


def size_of(value: Any) -> int:
    """Bytes of a JSON value as a bridge writes it."""
    return len(json.dumps(value))


def place(params: Message, item: Any) -> tuple[str, str, str]:
    """Which item of which turn of which thread."""
    return text(params.get("threadId")), text(params.get("turnId")), text(item)
