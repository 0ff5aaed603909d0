"""Settings for harnesses that need a bridge, and calls for those whose own program posts."""

from __future__ import annotations

import shlex

from agentpod_bot.harness import trials
from agentpod_bot.harness.snippets import Piece, Place, Snippet, curl, settings

NOT_THERE = "not offered."
CLAUDE_P = 'claude -p "…" --mcp-config agentpod.json --permission-prompt-tool mcp__agentpod__approve'
EXAMPLE = "0123456789abcdef" * 2
"""What stands for an id in an example."""
EDITED = "only the room answers; the bridge does not show the question to the client."
BRIDGE_DOWN = "nothing is allowed, and the bridge says why on stderr."
PROBLEM = "the call fails, or ends with a problem document that says why; nothing is allowed."
ASK_NOTE = (
    "The tool `ask` (`title`, `details`, `options`) lets a model ask a person anything. The answer is the person's, "
    "to that question alone."
)
TRIED_MCP = (
    "`approve` with `claude -p` of Claude Code 2.1.332: what was allowed ran; what was denied did not, nor anything "
    "while the daemon was down."
)
CALLER = "the caller tells the bot: `POST /v1/requests/{id}/answered-elsewhere`."


def codex(place: Place, version: str | None) -> Snippet:
    """Codex's app-server, whose version says itself in what it sends."""
    del version  # the bridge reads it from what Codex sends
    return Snippet(
        title="Codex app-server (`codex`)",
        pieces=(
            Piece(
                "Where `codex app-server` would be started",
                "sh",
                f"{place.line('proxy', 'codex')} -- codex app-server",
            ),
            Piece(
                "The same for `codex mcp-server`",
                "sh",
                f"{place.line('proxy', 'codex')} -- codex mcp-server",
            ),
        ),
        always="for this session, or as a rule that Codex proposes; the room shows the rule, and Codex keeps it.",
        unanswered=(
            "nothing is allowed. About a command or files Codex gets an error with the reason, which it logs and takes "
            "for a no; of a plain no it tells its model that the user refused. To its other questions the answer is "
            "a no, with the reason where it takes one."
        ),
        down=BRIDGE_DOWN,
        elsewhere=EDITED,
        tried="what Codex 0.171.0 sends was recorded from `codex app-server`, and is what is read here.",
    )


def acp(place: Place, version: str | None) -> Snippet:
    """Any agent that speaks ACP on stdin and stdout."""
    del version  # the protocol says its version itself
    program, *arguments = [*place.words("proxy", "acp"), "--", "claude-agent-acp"]
    return Snippet(
        title="Agents that speak ACP (`acp`)",
        pieces=(
            Piece(
                "Where an editor's settings name the agent's command, this instead (with your agent after the `--`)",
                "json",
                settings({"command": program, "args": arguments}),
            ),
            Piece(
                "Or without an editor",
                "sh",
                f"{place.line('proxy', 'acp')} --prompt {shlex.quote('Run the tests')} -- claude-agent-acp",
            ),
        ),
        always=(
            "what the agent offers, under its own names; the agent keeps it. It is not offered where the agent does "
            "not show what it would do: a title is written for people, and need not be the command. Gemini CLI sends "
            "commands, and the tools of MCP servers, with a title alone, so that these can be allowed once only."
        ),
        unanswered="answered `cancelled`, which says that nobody decided.",
        down=f"answered `cancelled`; {BRIDGE_DOWN}",
        elsewhere=EDITED,
        tried="requests of claude-agent-acp 0.49.0 and of OpenCode 1.18.33 were recorded, and are what is read here.",
    )


def opencode(place: Place, version: str | None) -> Snippet:
    """OpenCode, through our plugin. Raises `ValueError` where the daemon listens on a socket alone."""
    del version  # the plugin tells the generations apart
    if place.url is None:
        raise ValueError("the plugin posts to an address, and a socket has none")
    variables = {"AGENTPOD_URL": place.url, "AGENTPOD_TOKEN_FILE": place.token_file}
    variables |= {} if place.route is None else {"AGENTPOD_ROUTE": place.route}
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
    rules = {"bash": "ask", "edit": "ask", "webfetch": "ask"}
    return Snippet(
        title="OpenCode (`opencode`)",
        pieces=(
            Piece(
                "The plugin, once (from the folder of this project)",
                "sh",
                "mkdir -p ~/.config/opencode/plugin && cp contrib/opencode/agentpod-bot.js ~/.config/opencode/plugin/",
            ),
            Piece("In the shell that starts OpenCode", "sh", exports),
            Piece("In `opencode.json`, so that OpenCode asks at all", "json", settings({"permission": rules})),
        ),
        always="the room names the patterns that OpenCode will keep; where it proposes none, it is not offered.",
        unanswered="rejected, with a message that nobody answered, so that other questions of the session stay open.",
        down="the plugin tries again for half a minute; then it is rejected, with a message that says so.",
        elsewhere="it stands there meanwhile, and the first answer wins; the room's question is closed then.",
        tried="what OpenCode 1.18.33 sends was recorded, and is what is read here.",
    )


def mcp(place: Place, version: str | None) -> Snippet:
    """Our MCP server, for any client of MCP."""
    del version  # the protocol says its version itself
    program, *arguments = place.words("mcp")
    return Snippet(
        title="MCP clients, and `claude -p` (`mcp`)",
        pieces=(
            Piece(
                "In a file `agentpod.json`, or where the client's settings list MCP servers",
                "json",
                settings({"mcpServers": {"agentpod": {"type": "stdio", "command": program, "args": arguments}}}),
            ),
            Piece("With `claude -p`", "sh", CLAUDE_P),
            Piece(
                "Or over HTTP, at `http://127.0.0.1:8471/mcp`, with the daemon's token as the bearer token",
                "sh",
                place.line("mcp", "--http", "127.0.0.1:8471"),
            ),
        ),
        always=NOT_THERE,
        unanswered="`approve` denies with the reason; `ask` says that nobody decided, as an error.",
        down="the same, with that as the reason.",
        elsewhere="there is no other dialog. A call that the client cancels closes the question in the room.",
        notes=(ASK_NOTE,),
        tried=TRIED_MCP,
    )


def gaia(place: Place, version: str | None) -> Snippet:
    """Gaia, whose runtime posts its approval request."""
    del version  # no version asks for another call
    return Snippet(
        title="Gaia (`gaia`)",
        pieces=curl(place, "gaia", trials.trial("gaia", EXAMPLE)),
        always=NOT_THERE,
        unanswered="the status is `expired`, never `rejected`.",
        down=PROBLEM,
        elsewhere=CALLER,
        notes=(
            "Every fingerprint is computed again; a request in which one is wrong is refused with 422 and never shown.",
        ),
    )


def open_science(place: Place, version: str | None) -> Snippet:
    """Open Science's permission broker, whose interface posts the request."""
    del version  # both generations are read
    return Snippet(
        title="Open Science (`open-science`)",
        pieces=curl(place, "open-science", trials.trial("open-science", EXAMPLE)),
        always="what the agent offers; the agent keeps it.",
        unanswered="`cancelled`.",
        down=PROBLEM,
        elsewhere=CALLER,
        notes=('`{"cancelForSession": "…"}` or `{"cancelAll": true}` at the same address closes what is open.',),
    )


def langchain(place: Place, version: str | None) -> Snippet:
    """LangChain's human in the loop, whose program posts the interrupt's value and resumes with the answer."""
    del version  # both shapes are read
    return Snippet(
        title="LangChain and LangGraph (`langchain`)",
        pieces=curl(place, "langchain", trials.trial("langchain", EXAMPLE)),
        always=NOT_THERE,
        unanswered="every action is rejected, with a message that nobody answered.",
        down=PROBLEM,
        elsewhere=CALLER,
        notes=("Resume with what comes back: `Command(resume=answer)`. One answer decides all actions of a request.",),
    )
