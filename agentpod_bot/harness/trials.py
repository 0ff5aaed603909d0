"""A test question in each harness's own shape, as that harness would ask it. Whatever is answered, nothing runs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.harness.adapter import Json

TITLE = "Test question from agentpod-bot connect"
COMMAND = f"echo {TITLE}"
FOLDER = "/tmp"  # noqa: S108 - shown only; nothing is written there
NONCE_DIGITS = 32
"""Hexadecimal digits that make one trial another call than the one before."""
_OPTIONS = [
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
]


def trial(harness: str, nonce: str) -> Json:
    """The body of a test question. Raises `KeyError` for a harness that has none."""
    return _SHAPES[harness](nonce)


def door_of(harness: str) -> str:
    """The name under which the daemon answers a harness; MCP's tool has an adapter of another name."""
    return "claude-prompt" if harness == "mcp" else harness


def _session(nonce: str) -> str:
    return f"connect-{nonce}"


def _acp(nonce: str) -> Json:
    call = {"toolCallId": f"call-{nonce}", "title": TITLE, "kind": "execute", "status": "pending"}
    params = {"sessionId": _session(nonce), "toolCall": call | {"rawInput": {"command": COMMAND}}, "options": _OPTIONS}
    return {"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params}


def _codex(nonce: str) -> Json:
    params = {
        "threadId": _session(nonce),
        "turnId": "turn-1",
        "itemId": f"item-{nonce}",
        "startedAtMs": 0,
        "reason": TITLE,
        "command": COMMAND,
        "cwd": FOLDER,
        "availableDecisions": ["accept", "decline"],
    }
    return {"id": 0, "method": "item/commandExecution/requestApproval", "params": params}


def _hook(nonce: str, event: str = "PermissionRequest") -> Json:
    return {
        "session_id": _session(nonce),
        "transcript_path": None,
        "cwd": FOLDER,
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": "Bash",
        "tool_input": {"command": COMMAND, "description": TITLE},
    }


def _codex_hook(nonce: str) -> Json:
    return _hook(nonce) | {"turn_id": "turn-1", "model": "none"}


def _copilot(nonce: str) -> Json:
    members = ("session_id", "cwd", "hook_event_name", "tool_name", "tool_input")
    hook = _hook(nonce)
    return {name: hook[name] for name in members}


def _gemini(nonce: str) -> Json:
    hook = _hook(nonce, "BeforeTool")
    del hook["permission_mode"]
    return hook | {"transcript_path": "", "tool_name": "run_shell_command"}


def _cursor(nonce: str) -> Json:
    return {
        "conversation_id": _session(nonce),
        "generation_id": nonce,
        "hook_event_name": "beforeShellExecution",
        "workspace_roots": [FOLDER],
        "command": COMMAND,
        "cwd": FOLDER,
    }


def _claude_prompt(nonce: str) -> Json:
    return {"tool_name": "Bash", "input": {"command": COMMAND, "description": TITLE}, "tool_use_id": f"toolu_{nonce}"}


def _opencode(nonce: str) -> Json:
    properties = {
        "id": f"per_{nonce}",
        "sessionID": _session(nonce),
        "permission": "bash",
        "patterns": [COMMAND],
        "metadata": {"command": COMMAND},
        "always": [],
    }
    return {"type": "permission.asked", "properties": properties}


def _gaia(nonce: str) -> Json:
    def fingerprint(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    listed = json.dumps([COMMAND], ensure_ascii=False, separators=(",", ":"))
    return {
        "request_type": "COMMAND_SET",
        "operation": TITLE,
        "exact_content": COMMAND,
        "commands": [COMMAND],
        "command_set": [{"command": COMMAND, "fingerprint": fingerprint(COMMAND), "rationale": ""}],
        "request_fingerprint": fingerprint(listed),
        "scope": "COMMAND_SET",
        "risk_level": "low",
        "rollback": None,
        "rationale": TITLE,
        "verification": "none",
        "approval_id": f"P-{nonce}",
    }


def _open_science(nonce: str) -> Json:
    call = {"toolCallId": f"call-{nonce}", "title": TITLE, "kind": "execute", "rawInput": {"command": COMMAND}}
    return {
        "requestId": nonce,
        "sessionId": _session(nonce),
        "toolCallId": call["toolCallId"],
        "title": TITLE,
        "status": "pending",
        "options": _OPTIONS,
        "raw": {"sessionId": _session(nonce), "toolCall": call, "options": _OPTIONS},
    }


def _langchain(nonce: str) -> Json:
    action = {"name": "shell", "args": {"command": COMMAND, "nonce": nonce}, "description": TITLE}
    review = {"action_name": "shell", "allowed_decisions": ["approve", "reject"]}
    return {"action_requests": [action], "review_configs": [review]}


_SHAPES: Mapping[str, Callable[[str], Json]] = {
    "acp": _acp,
    "claude-code": _hook,
    "claude-prompt": _claude_prompt,
    "codex": _codex,
    "codex-hook": _codex_hook,
    "copilot": _copilot,
    "cursor": _cursor,
    "gaia": _gaia,
    "gemini": _gemini,
    "langchain": _langchain,
    "open-science": _open_science,
    "opencode": _opencode,
    "qwen": _hook,
}
