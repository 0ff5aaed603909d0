"""Settings for Claude Code, by its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Json
    from agentpod_bot.harness.snippets import Version

NAME = "claude-code"
FIRST_PERMISSION_REQUEST: Version = (2, 0, 45)
FIRST_THAT_BLOCKS: Version = (2, 1, 295)
"""From here on a hook may say that its own failure denies; before, an http hook that fails lets the terminal decide."""
WHERE = "In `.claude/settings.json` of the project, or `~/.claude/settings.json` for all of them"
BLOCK = {"onFailure": "block"}
CLOSING = ("PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd")
"""Events by which Claude Code says that a question was answered in its terminal, or is not needed any more."""
OF_TOOLS = frozenset({"PostToolUse", "PostToolUseFailure"})
CLOSING_S = 10
RISKY = "Bash|Edit|MultiEdit|Write|NotebookEdit|WebFetch|mcp__.*"
ALWAYS = (
    "the room offers what Claude Code suggests, each with the rule that it saves and where. Claude Code keeps it; "
    "the bot keeps nothing."
)
UNANSWERED = (
    "denied, and Claude is told that nobody answered. With `when_unanswered: terminal` for the route, "
    "the dialog in the terminal decides instead."
)
DENIED = "denied, with the reason."
FIRST_WINS = (
    "the dialog stands in the terminal while the room is asked, and the first answer wins. The other hooks "
    "(`PostToolUse` and so on) close the question in the room then."
)
MODE = "Start it with `claude --permission-mode default`: in auto mode, in which new users begin, it does not ask."
PROMPT = "For `claude -p` there is another way, a permission prompt tool: `agentpod-bot connect mcp` prints it."
PATH_COUNTS = "The program's path must be right: where it cannot be started, Claude Code goes on without it."
STARTED = (
    "This starts a program instead of posting, because before 2.1.295 a hook that posts lets the terminal decide "
    "while the daemon is down. The program's path must be right: where it cannot be started, versions before 2.1.295 "
    "go on as if there were no hook."
)
EVERY_USE = (
    "These versions have no `PermissionRequest` hook. `PreToolUse` asks before every use of the tools in `matcher`, "
    "also of those that your rules allow already; the other tools keep Claude Code's own dialog."
)
TRIED = (
    "2.1.332: allow and deny with a message through the http hook, `AskUserQuestion`, the hooks that close a question, "
    "and that the terminal's answer does not end the hook's call. `onFailure` is known from the list of changes alone."
)


def claude_code(place: Place, version: str | None) -> Snippet:
    """The settings for a version; one that is unknown gets those that deny in every version."""
    match version_of(version):
        case found if found is not None and found < FIRST_PERMISSION_REQUEST:
            return _before_each_tool(place)
        case found if found is not None and found >= FIRST_THAT_BLOCKS and place.url is not None:
            return _posting(place)
        case _:
            return _starting(place)


def _posting(place: Place) -> Snippet:
    hook = http_hook(place, NAME)
    asking = hook | {"timeout": place.timeout_s, "statusMessage": WAITING} | BLOCK
    return Snippet(
        title="Claude Code 2.1.295 or later (`claude-code`)",
        pieces=(
            Piece(WHERE, "json", settings({"hooks": _hooks(asking, hook | {"timeout": CLOSING_S})})),
            token_variable(place, "Claude Code"),
        ),
        always=ALWAYS,
        unanswered=UNANSWERED,
        down='denied, because of `"onFailure": "block"`.',
        elsewhere=FIRST_WINS,
        notes=(MODE, PROMPT),
        tried=TRIED,
    )


def _starting(place: Place) -> Snippet:
    hook = command_hook(place, NAME)
    asking = hook | {"timeout": place.timeout_s, "statusMessage": WAITING} | BLOCK
    return Snippet(
        title="Claude Code from 2.0.45, or of an unknown version (`claude-code`)",
        pieces=(Piece(WHERE, "json", settings({"hooks": _hooks(asking, hook | {"timeout": CLOSING_S})})),),
        always=ALWAYS,
        unanswered=UNANSWERED,
        down=f"{DENIED[:-1]}: the program that the hook starts says no by itself.",
        elsewhere=FIRST_WINS,
        notes=(MODE, STARTED, PROMPT),
    )


def _before_each_tool(place: Place) -> Snippet:
    hook = command_hook(place, NAME) | {"timeout": place.timeout_s}
    return Snippet(
        title="Claude Code before 2.0.45 (`claude-code`)",
        pieces=(Piece(WHERE, "json", settings({"hooks": {"PreToolUse": [{"matcher": RISKY, "hooks": [hook]}]}})),),
        always="not offered.",
        unanswered=UNANSWERED,
        down=f"{DENIED[:-1]}: the program that the hook starts says no by itself.",
        elsewhere="the hook comes before the dialog; it is not shown where the room has decided.",
        notes=(EVERY_USE, PATH_COUNTS, PROMPT),
    )


def _hooks(asking: Json, closing: Json) -> Json:
    hooks: Json = {"PermissionRequest": [{"matcher": "*", "hooks": [asking]}]}
    for event in CLOSING:
        group: Json = {"matcher": "*"} if event in OF_TOOLS else {}
        hooks[event] = [group | {"hooks": [closing]}]
    return hooks
