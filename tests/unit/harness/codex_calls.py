"""Messages of Codex, the ends of their questions, and what an answer allows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId, UserId
from agentpod_bot.core.model import BOTS_OWN_REJECT, Meaning, Option, Outcome, Scope
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import Ask, End, Manner, Settled

if TYPE_CHECKING:
    from agentpod_bot.core.model import PermissionRequest

Json = dict[str, Any]

OWNER = UserId("@owner:hs.example")
MANNER = Manner()
OLDER = Manner(codex_version="0.144.6")
REFUSED = "@owner:hs.example refused this in Matrix: use the staging database"
BOTS_REJECT = Option(BOTS_OWN_REJECT, "Reject", Meaning.REJECT, Scope.ONCE)
NON_DECISIONS: tuple[Outcome | None, ...] = (
    None,
    Outcome.EXPIRED,
    Outcome.CANCELLED,
    Outcome.SUPERSEDED,
    Outcome.ANSWERED_ELSEWHERE,
    Outcome.UNDELIVERABLE,
)

CONVERSATION = "67e55044-10b1-426f-9247-bb680e5fe0c8"
ITEM: Json = {"threadId": "thr_1", "turnId": "turn_1", "itemId": "item_1", "startedAtMs": 1_787_000_000_000}
EXEC: Json = {
    "id": 42,
    "method": "execCommandApproval",
    "params": {
        "conversationId": CONVERSATION,
        "callId": "call-42",
        "approvalId": "approval-42",
        "command": ["bash", "-lc", "npm test"],
        "cwd": "/repo",
        "reason": "needs network",
        "parsedCmd": [
            {"type": "read", "cmd": "cat a", "name": "a", "path": "a"},
            {"type": "list_files", "cmd": "ls", "path": None},
            {"type": "search", "cmd": "rg x", "query": "x", "path": None},
            {"type": "unknown", "cmd": "npm test"},
        ],
    },
}
PATCH: Json = {
    "id": 43,
    "method": "applyPatchApproval",
    "params": {
        "conversationId": CONVERSATION,
        "callId": "call-43",
        "fileChanges": {
            "README.md": {"type": "add", "content": "hello\n"},
            "old.txt": {"type": "delete", "content": "gone\n"},
            "a.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-a\n+b\n", "move_path": "b.py"},
        },
        "grantRoot": None,
        "reason": None,
    },
}
MCP_EXEC: Json = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "elicitation/create",
    "params": {
        "message": "Allow Codex to run `npm test` in `/repo`?",
        "requestedSchema": {"type": "object", "properties": {}},
        "threadId": CONVERSATION,
        "codex_elicitation": "exec-approval",
        "codex_mcp_tool_call_id": "3",
        "codex_event_id": "9",
        "codex_call_id": "call-7",
        "codex_command": ["npm", "test"],
        "codex_cwd": "/repo",
        "codex_parsed_cmd": [{"type": "unknown", "cmd": "npm test"}],
    },
}
MCP_PATCH: Json = {
    "jsonrpc": "2.0",
    "id": "8",
    "method": "elicitation/create",
    "params": {
        "message": "Allow Codex to apply proposed code changes?",
        "requestedSchema": {"type": "object", "properties": {}},
        "threadId": CONVERSATION,
        "codex_elicitation": "patch-approval",
        "codex_mcp_tool_call_id": "3",
        "codex_event_id": "10",
        "codex_call_id": "call-8",
        "codex_reason": "extra write access",
        "codex_grant_root": "/repo",
        "codex_changes": {"new.txt": {"type": "add", "content": "x"}},
    },
}
COMMAND: Json = {
    "id": 0,
    "method": "item/commandExecution/requestApproval",
    "params": {
        **ITEM,
        "approvalId": None,
        "environmentId": None,
        "reason": "needs network",
        "command": "/bin/zsh -lc 'npm test'",
        "cwd": "/repo",
        "commandActions": [{"type": "unknown", "command": "npm test"}],
        "proposedExecpolicyAmendment": ["npm", "test"],
        "networkApprovalContext": None,
        "proposedNetworkPolicyAmendments": None,
    },
}
NETWORK: Json = {
    "id": 1,
    "method": "item/commandExecution/requestApproval",
    "params": {
        **ITEM,
        "itemId": "item_2",
        "approvalId": "appr_2",
        "networkApprovalContext": {"host": "example.com", "protocol": "https"},
        "proposedNetworkPolicyAmendments": [{"host": "example.com", "action": "allow"}],
        "availableDecisions": [
            "accept",
            "acceptForSession",
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.com", "action": "allow"}}},
            {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "example.com", "action": "deny"}}},
            "cancel",
        ],
    },
}
FILES: Json = {
    "id": 2,
    "method": "item/fileChange/requestApproval",
    "params": {
        **ITEM,
        "itemId": "item_3",
        "reason": None,
        "grantRoot": None,
        "changes": [
            {
                "path": "/repo/a.py",
                "kind": {"type": "update", "move_path": "/repo/b.py"},
                "diff": "@@ -1 +1 @@\n-a\n+b\n",
            },
            {"path": "/repo/new.txt", "kind": {"type": "add"}, "diff": "hello\n"},
            {"path": "/repo/old.txt", "kind": "delete", "diff": "gone\n"},
        ],
    },
}
PERMISSIONS: Json = {
    "id": 3,
    "method": "item/permissions/requestApproval",
    "params": {
        **ITEM,
        "itemId": "call_1",
        "environmentId": "local",
        "cwd": "/repo",
        "reason": "Select a workspace root",
        "permissions": {
            "fileSystem": {
                "read": None,
                "write": ["/repo/a", "/repo/b"],
                "entries": [
                    {"access": "read", "path": {"type": "path", "path": "/etc/hosts"}},
                    {"access": "deny", "path": {"type": "glob_pattern", "pattern": "**/.env"}},
                    {"access": "write", "path": {"type": "special", "value": {"kind": "tmpdir"}}},
                ],
                "globScanMaxDepth": 4,
            },
            "network": {"enabled": True},
        },
    },
}
TOOL_CALL: Json = {
    "id": 4,
    "method": "mcpServer/elicitation/request",
    "params": {
        "threadId": "thr_1",
        "turnId": "turn_1",
        "serverName": "docs",
        "mode": "form",
        "message": "Allow docs to run tool search?",
        "requestedSchema": {"type": "object", "properties": {}},
        "_meta": {
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session", "always"],
            "tool_params": {"q": "x"},
        },
    },
}
FORM: Json = {
    "id": 5,
    "method": "mcpServer/elicitation/request",
    "params": {
        "threadId": "thr_1",
        "turnId": None,
        "serverName": "docs",
        "mode": "form",
        "message": "Which index?",
        "requestedSchema": {
            "type": "object",
            "properties": {"index": {"type": "string", "enum": ["main", "archive"]}},
            "required": ["index"],
        },
    },
}
URL: Json = {
    "id": 6,
    "method": "mcpServer/elicitation/request",
    "params": {
        "threadId": "thr_1",
        "turnId": None,
        "serverName": "docs",
        "mode": "url",
        "message": "Sign in",
        "url": "https://example.com/a",
        "elicitationId": "e1",
    },
}
CHOICE: Json = {
    "id": "one",
    "header": "Database",
    "question": "Which database?",
    "isOther": True,
    "isSecret": False,
    "options": [{"label": "Postgres", "description": "server"}, {"label": "SQLite", "description": "file"}],
}
SECRET: Json = {"id": "two", "header": "Token", "question": "Which token?", "isSecret": True, "options": None}
USER_INPUT: Json = {
    "id": 6,
    "method": "item/tool/requestUserInput",
    "params": {**ITEM, "itemId": "item_9", "isBlocking": True, "questions": [CHOICE]},
}
OF_ITEMS = frozenset({COMMAND["method"], FILES["method"]})
"""The methods whose own no says that a person refused."""
CALLS: dict[str, Json] = {
    "exec": EXEC,
    "patch": PATCH,
    "mcp_exec": MCP_EXEC,
    "mcp_patch": MCP_PATCH,
    "command": COMMAND,
    "network": NETWORK,
    "files": FILES,
    "permissions": PERMISSIONS,
    "tool_call": TOOL_CALL,
    "form": FORM,
    "user_input": USER_INPUT,
}
"""One message of each kind that becomes a question."""


def changed(call: Json, **params: Any) -> Json:
    """The call with other parameters."""
    return {**call, "params": {**call["params"], **params}}


def without(call: Json, *names: str) -> Json:
    """The call without some of its parameters."""
    return {**call, "params": {name: value for name, value in call["params"].items() if name not in names}}


def sent(call: Json) -> bytes:
    """The call as it comes."""
    return json.dumps(call).encode()


def asked(call: Json) -> PermissionRequest:
    """The question of a call."""
    read = codex.parse(sent(call), MANNER)
    assert isinstance(read, Ask)
    return read.request


def settled(call: Json) -> Json:
    """The answer to a call that nobody is asked about."""
    read = codex.parse(sent(call), MANNER)
    assert isinstance(read, Settled)
    return read.answer


def option(call: Json, option_id: str) -> Option:
    """The option of this id."""
    [found] = [each for each in asked(call).options if each.option_id == option_id]
    return found


def took(taken: Option, reason: str = REFUSED) -> End:
    """The end of a question for which a person took an option."""
    return End(Outcome.SELECTED, reason, option=taken, by=OWNER)


def ended(outcome: Outcome | None, reason: str = "Nobody answered.") -> End:
    """An end for which nobody decided."""
    return End(outcome, reason)


def answer(call: Json, end: End, manner: Manner = MANNER) -> Json:
    """What Codex is told."""
    return codex.answer(sent(call), sent(call), end, manner)


def chose(call: Json, option_id: str, manner: Manner = MANNER) -> Any:
    """The result that Codex gets where a person took the option of this id."""
    return answer(call, took(option(call, option_id)), manner)["result"]


def undecided(call: Json, reason: str = "Nobody answered.") -> Json:
    """The whole answer to a call of `OF_ITEMS` about which nobody decided."""
    frame: Json = {name: call[name] for name in ("jsonrpc", "id") if name in call}
    return {**frame, "error": {"code": -32_000, "message": reason}}


def foreign(option_id: str, meaning: Meaning = Meaning.APPROVE, scope: Scope | None = Scope.ONCE) -> Option:
    """An option that no call offered."""
    return Option(OptionId(option_id), "Allow once", meaning, scope)


def allows(result: Any) -> bool:
    """Whether a result of any method lets Codex do anything, or gives it anything."""
    match result:
        case {"decision": "denied" | "timed_out" | "abort" | "decline" | "cancel" | {"denied": _}}:
            return False
        case {"decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"action": "deny"}}}}:
            return False
        case {"action": "decline" | "cancel", "content": None}:
            return False
        case {"permissions": {} as granted}:
            return bool(granted)
        case {"answers": {} as given}:
            return bool(given)
        case _:
            return True


def permits(told: Json) -> bool:
    """Whether an answer lets Codex do anything: all but an error with nothing beside it, and a result that does not."""
    match told:
        case {"error": {"code": -32_600 | -32_000, "message": str(), **inside}, **beside} if not inside:
            return not beside.keys() <= {"jsonrpc", "id"}
        case {"result": result, **beside} if beside.keys() <= {"jsonrpc", "id"}:
            return allows(result)
        case {"error": _} | {"result": _} | {"id": _}:
            return True
        case bare:
            return allows(bare)
