"""Claude Code, set up by what `connect` prints, and with a model of our own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.harness.programs import CLAUDE_CODE
from tests.harness.projects import PROMPT, Project
from tests.harness.rooms import connected
from tests.integration.daemons import Ran

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.rooms import Room
    from tests.harness.standins import Anthropic

KEY = "sk-ant-dummy-000000000000000000000000"
TURN_S = 120.0


@dataclass(frozen=True, slots=True)
class Claude:
    """The program in a project."""

    project: Project
    env: dict[str, str]
    """What it needs to talk to its model, and nothing of ours."""
    before: str = ""
    """What a user types into the shell before."""

    async def connected(self, room: Room, *, posts: bool = True, timeout_s: int = 86_400) -> Claude:
        """Set it up as `agentpod-bot connect` says.

        A version that is known posts to the daemon; for one that is not, a hook starts our own program.
        """
        version = ("--version", CLAUDE_CODE.version) if posts else ()
        found = await connected(room, "claude-code", *version, "--timeout", str(timeout_s))
        settings = next(text for where, _, text in found if ".claude/settings.json" in where)
        assert ('"type": "http"' in settings) is posts
        export = next((text for where, _, text in found if "shell" in where), "")
        self.project.write(".claude/settings.json", settings)
        return Claude(self.project, self.env, export)

    def line(self, *options: str) -> str:
        """What a user types: what was printed, then the program in the mode in which it asks."""
        words = [str(CLAUDE_CODE.path), "--permission-mode", "default", *options]
        typed = [self.before, f"cd {shlex.quote(str(self.project.folder))}", f"exec {shlex.join(words)}"]
        return "\n".join(typed)

    async def run(self, *options: str) -> Ran:
        """One turn without a terminal, to the program's own end."""
        async with self.running(*options) as process:
            out, err = await asyncio.wait_for(process.communicate(), TURN_S)
            return Ran(process.returncode or 0, out.decode(), err.decode())

    @contextlib.asynccontextmanager
    async def running(self, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The same while it runs; it does not outlive the body."""
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            self.line("-p", PROMPT, *options),
            env=self.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def claude_for(home: Path, project: Project, model: Anthropic) -> Claude:
    """The program of a new user, who has answered everything that it asks at its first start."""
    known = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True, "allowedTools": []}
    state: dict[str, Any] = {
        "hasCompletedOnboarding": True,
        "lastOnboardingVersion": CLAUDE_CODE.version,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(project.folder): known},
    }
    (home / ".claude.json").write_text(json.dumps(state))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    return Claude(project, env)
