"""The real harness programs: exact versions from npm, each in a folder of its own outside the package.

`python -m tests.harness.programs` installs what is missing, about 1.3 GB in all. No
script of any package runs meanwhile. The folder is `.harness`, or what the environment
variable AGENTPOD_HARNESS_DIR names.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(os.environ.get("AGENTPOD_HARNESS_DIR") or Path(__file__).parents[2] / ".harness").absolute()
BUILT_FOR = ("Linux", "x86_64")
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")


class Program(NamedTuple):
    """One program: what to install, and what to run then."""

    package: str
    version: str
    executable: str
    """Below the folder with its packages."""

    @property
    def folder(self) -> Path:
        """Where it is installed; another version is another folder."""
        return FOLDER / f"{self.package.rpartition('/')[2]}-{self.version}"

    @property
    def path(self) -> Path:
        """What to run."""
        return self.folder / "node_modules" / self.executable


CLAUDE_CODE = Program("@anthropic-ai/claude-code-linux-x64", "2.1.332", "@anthropic-ai/claude-code-linux-x64/claude")
CODEX = Program("@openai/codex", "0.171.0", ".bin/codex")
OPENCODE = Program("opencode-linux-x64-baseline", "1.18.33", "opencode-linux-x64-baseline/bin/opencode")
CLAUDE_AGENT_ACP = Program("@agentclientprotocol/claude-agent-acp", "0.49.0", ".bin/claude-agent-acp")
JS_SDK = Program("matrix-js-sdk", "43.0.0", "matrix-js-sdk/lib/index.js")
"""No program: a Matrix client's library, which the strict client of the tests is made of."""
PROGRAMS = (CLAUDE_CODE, CODEX, OPENCODE, CLAUDE_AGENT_ACP, JS_SDK)


def fits_here() -> bool:
    """Whether these builds run on this machine."""
    return (platform.system(), platform.machine()) == BUILT_FOR


def install(program: Program) -> None:
    """Install a program, whole or not at all. Raises `CalledProcessError` where npm fails, and says why."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed (on Debian and Ubuntu: npm)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="new-") as made:
        # npm takes the nearest folder with a package.json above it for its own; this one is it
        new = Path(made) / "program"
        new.mkdir()
        (new / "package.json").write_text('{"private": true}')
        subprocess.run(
            [npm, "install", "--prefix", str(new), *QUIET, f"{program.package}@{program.version}"], cwd=new, check=True
        )
        new.rename(program.folder)


def main() -> int:
    """Install what is missing; return the exit code."""
    if not fits_here():
        sys.stderr.write(f"These programs are built for {' '.join(BUILT_FOR)}.\n")
        return 1
    for program in PROGRAMS:
        if program.path.exists():
            continue
        sys.stdout.write(f"Installing {program.package} {program.version} into {program.folder}\n")
        sys.stdout.flush()
        try:
            install(program)
        except (OSError, subprocess.CalledProcessError) as fault:
            sys.stderr.write(f"{fault}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
