"""The command `agentpod-bot`, also as `python -m agentpod_bot`."""

from __future__ import annotations

from agentpod_bot.cli.commands import app


def main() -> None:
    """Run one command and leave the process with its exit code."""
    app(prog_name="agentpod-bot")


if __name__ == "__main__":
    main()
