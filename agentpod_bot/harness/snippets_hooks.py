"""Settings for harnesses with hooks: Codex, Copilot CLI, Qwen Code, Gemini CLI, Cursor."""

from __future__ import annotations

from agentpod_bot.harness.snippets import (
    WAITING,
    Piece,
    Place,
    Snippet,
    command_hook,
    http_hook,
    settings,
    token_variable,
    version_of,
)

DOWN = "denied, with the reason: the program that the hook starts says no by itself."
DENIED = "denied, with the reason."
OR_TERMINAL = "denied, with the reason. With `when_unanswered: terminal` for the route, its own dialog decides instead."
BEFORE = "there is no dialog yet while the room is asked."
NOT_OFFERED = "not offered."
PRIVATE = (
    "Qwen Code posts to this machine, but to other private addresses only where `security.allowPrivateNetworkHooks` "
    "or `security.allowedHttpHookUrls` allows it."
)
EVERY_USE = (
    "`BeforeTool` comes before every use of the tools in `matcher`, whether or not Gemini CLI would ask; other tools "
    "keep its own dialog. What it asks by itself comes through ACP: `agentpod-bot connect acp`, with `gemini --acp`."
)
MS = 1_000
FIRST_HTTP_OF_COPILOT = (1, 0, 35)
GEMINI_TOOLS = "run_shell_command|write_file|replace|web_fetch|mcp_.*"


def codex_hook(place: Place, version: str | None) -> Snippet:
    """Codex in its terminal program."""
    del version  # no version asks for other settings
    hook = command_hook(place, "codex-hook") | {"timeout": place.timeout_s, "statusMessage": WAITING}
    return Snippet(
        title="Codex in the terminal (`codex-hook`)",
        pieces=(
            Piece("In `~/.codex/hooks.json`", "json", settings({"hooks": {"PermissionRequest": [{"hooks": [hook]}]}})),
        ),
        always="not offered: Codex takes nothing but yes and no from this hook.",
        unanswered=OR_TERMINAL,
        down=DOWN,
        elsewhere="Codex asks in its own dialog only after the hook has handed back.",
        notes=(
            "Codex runs a new hook only after you have trusted it: type `/hooks` in Codex once.",
            "Where the program cannot be started, Codex goes on with its own dialog.",
        ),
        tried="0.171.0 ran such a hook in its terminal program and took its allow.",
    )


def copilot(place: Place, version: str | None) -> Snippet:
    """GitHub Copilot CLI. The event's name is written so that what Copilot sends names the event too."""
    command = {"type": "command", "bash": place.line("hook", "copilot", timeout=True), "timeoutSec": place.timeout_s}
    pieces = [
        Piece(
            "In `.github/hooks/agentpod.json` of the project",
            "json",
            settings({"version": 1, "hooks": {"PermissionRequest": [command]}}),
        )
    ]
    found = version_of(version)
    if place.url is not None and (found is None or found >= FIRST_HTTP_OF_COPILOT):
        posting = http_hook(place, "copilot") | {"timeoutSec": place.timeout_s}
        variables = [token_variable(place, "Copilot").text]
        variables += [] if place.url.startswith("https:") else ["export COPILOT_HOOK_ALLOW_LOCALHOST=1"]
        pieces += [
            Piece(
                "Or, from 1.0.35, posting instead of starting a program",
                "json",
                settings({"version": 1, "hooks": {"PermissionRequest": [posting]}}),
            ),
            Piece("Then also, in the shell that starts Copilot", "sh", "\n".join(variables)),
        ]
    return Snippet(
        title="GitHub Copilot CLI 1.0.16 or later (`copilot`)",
        pieces=tuple(pieces),
        always=NOT_OFFERED,
        unanswered=DENIED,
        down=f"{DOWN} With the hook that posts, Copilot goes on as if there were none.",
        elsewhere=BEFORE,
        notes=(
            "`timeoutSec` matters: without it Copilot waits 30 seconds.",
            "Copilot posts to `https://` only, or to this machine where `COPILOT_HOOK_ALLOW_LOCALHOST=1` is set.",
        ),
    )


def qwen(place: Place, version: str | None) -> Snippet:
    """Qwen Code. The time-out of a command is in milliseconds, that of a post in seconds."""
    del version  # no version asks for other settings
    command = command_hook(place, "qwen") | {"timeout": place.timeout_s * MS}
    pieces = [
        Piece(
            "In `.qwen/settings.json` of the project, or `~/.qwen/settings.json`",
            "json",
            settings({"hooks": {"PermissionRequest": [{"matcher": "*", "hooks": [command]}]}}),
        )
    ]
    if place.url is not None:
        posting = http_hook(place, "qwen") | {"timeout": place.timeout_s}
        pieces += [
            Piece(
                "Or, posting instead of starting a program",
                "json",
                settings({"hooks": {"PermissionRequest": [{"matcher": "*", "hooks": [posting]}]}}),
            ),
            Piece("Then also, in the shell that starts Qwen Code", "sh", token_variable(place, "Qwen Code").text),
        ]
    return Snippet(
        title="Qwen Code (`qwen`)",
        pieces=tuple(pieces),
        always="the room offers what Qwen Code suggests, if it suggests anything; Qwen Code keeps it.",
        unanswered=OR_TERMINAL,
        down=f"{DOWN} With the hook that posts, Qwen Code goes on as if there were none.",
        elsewhere="the question in the room is cancelled once Qwen Code drops the hook.",
        notes=(PRIVATE,),
    )


def gemini(place: Place, version: str | None) -> Snippet:
    """Gemini CLI, whose only hook that decides stands before every tool."""
    del version  # no version asks for other settings
    hook = {"name": "agentpod"} | command_hook(place, "gemini") | {"timeout": place.timeout_s * MS}
    return Snippet(
        title="Gemini CLI (`gemini`)",
        pieces=(
            Piece(
                "In `.gemini/settings.json` of the project, or `~/.gemini/settings.json`",
                "json",
                settings({"hooks": {"BeforeTool": [{"matcher": GEMINI_TOOLS, "hooks": [hook]}]}}),
            ),
        ),
        always=NOT_OFFERED,
        unanswered=DENIED,
        down=DOWN,
        elsewhere=BEFORE,
        notes=(
            EVERY_USE,
            "Where the program cannot be started, Gemini CLI goes on with a warning.",
        ),
    )


def cursor(place: Place, version: str | None) -> Snippet:
    """Cursor, whose hooks say themselves that their failure denies."""
    del version  # no version asks for other settings
    hook = {"command": place.line("hook", "cursor", timeout=True), "timeout": place.timeout_s, "failClosed": True}
    return Snippet(
        title="Cursor (`cursor`)",
        pieces=(
            Piece(
                "In `.cursor/hooks.json` of the project, or `~/.cursor/hooks.json`",
                "json",
                settings({"version": 1, "hooks": {"beforeShellExecution": [hook], "beforeMCPExecution": [hook]}}),
            ),
        ),
        always=NOT_OFFERED,
        unanswered=OR_TERMINAL,
        down=f'{DOWN} `"failClosed": true` does the same where the program cannot be started.',
        elsewhere=BEFORE,
        notes=("The hooks ask before shell commands and calls of MCP tools. Edits of files are not asked about.",),
    )
