"""What the demo shows: progress, the room as a client shows it, the harness's answer."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agentpod_bot.demo.person import Message


class Screen:
    """The terminal. Every text from the room is shown as it is, never as markup."""

    def __init__(self, console: Console | None = None) -> None:
        """Write to standard output, or to a console of the caller's."""
        self._console = console or Console(highlight=False)

    def say(self, text: str, *, style: str = "") -> None:
        """One line or more of the demo's own."""
        self._console.print(Text(text, style=style))

    @contextlib.contextmanager
    def steps(self) -> Iterator[Steps]:
        """A list of steps with a spinner at the one that is being done."""
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as progress:
            yield Steps(progress)

    def facts(self, title: str, rows: Mapping[str, str]) -> None:
        """A small table of names and values."""
        table = Table.grid(padding=(0, 2))
        for name, value in rows.items():
            table.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
        self._console.print(Panel(table, title=Text(title), title_align="left", expand=False))

    def chapter(self, number: int, of: int, about: str) -> None:
        """The heading of one question."""
        self._console.print()
        self._console.print(Rule(Text(f"Question {number} of {of}", style="bold"), align="left"))
        self.say(about)

    def room(self, name: str, messages: Sequence[Message], since: str) -> None:
        """The room from the message `since` on, as a client shows it."""
        begin = next((place for place, message in enumerate(messages) if message.event_id == since), 0)
        shown: list[Text | Padding] = [Text(f"({begin} earlier)", style="dim")] if begin else []
        for message in messages[begin:]:
            mark = " (edited)" if message.edited else ""
            shown.append(Text.assemble((message.sender, "bold cyan"), (mark, "dim")))
            shown.append(
                Padding(Text(message.body, style="dim" if message.msgtype == "m.notice" else ""), (0, 0, 0, 2))
            )
            if message.reactions:
                shown.append(Padding(Text("  ".join(message.reactions)), (0, 0, 0, 2)))
        self._console.print(Panel(Group(*shown), title=Text(f"Room “{name}”"), title_align="left"))

    def answer(self, view: Mapping[str, Any]) -> None:
        """The body of the HTTP answer that the harness got, as JSON."""
        self.say("The harness's HTTP call returned:", style="dim")
        self._console.print_json(json.dumps(view, ensure_ascii=False))

    def prompt(self, text: str) -> None:
        """Ask for a line; the cursor stays behind the text."""
        self._console.print(Text(text, style="bold green"), end="")


class Steps:
    """The steps of one list."""

    def __init__(self, progress: Progress) -> None:
        """Add to `progress`, which its maker starts and stops."""
        self._progress = progress

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """One step; it is ticked off when the block ends without an error."""
        task: TaskID = self._progress.add_task(text, total=1)
        yield
        self._progress.update(task, completed=1)
