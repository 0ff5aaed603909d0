"""What a person writes where, so that a harness asks this daemon: one snippet for each harness, as Markdown.

A snippet holds the path of the token's file and never a token.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Json

URL = "http://127.0.0.1:8470"
TIMEOUT_S = 86_400
"""For how long a harness is told to wait; the daemon's own limit on a question ends it before."""
TOKEN_VARIABLE = "AGENTPOD_TOKEN"  # noqa: S105 - a variable's name
BEARER = f"Bearer ${TOKEN_VARIABLE}"
WAITING = "Waiting for an answer in Matrix"
WIDTH = 120
_VERSION = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,9})(?![0-9A-Za-z.+-])")

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """How this machine reaches the daemon, and how it starts our own program."""

    token_file: str
    program: str = "agentpod-bot"
    url: str | None = URL
    """None where the daemon listens on a Unix socket alone."""
    socket: str | None = None
    route: str | None = None
    timeout_s: int = TIMEOUT_S

    def words(self, *command: str, timeout: bool = False) -> list[str]:
        """A command of ours, word by word, with how it reaches the daemon."""
        address = ["--url", self.url] if self.url is not None else ["--socket", self.socket or ""]
        route = [] if self.route is None else ["--route", self.route]
        wait = ["--timeout", str(self.timeout_s)] if timeout else []
        return [self.program, *command, *address, "--token-file", self.token_file, *route, *wait]

    def line(self, *command: str, timeout: bool = False) -> str:
        """The same as one line for a shell."""
        return shlex.join(self.words(*command, timeout=timeout))

    def door(self, harness: str, *, timeout: bool = False) -> str:
        """The address to which a harness posts. Raises `ValueError` where there is only a socket."""
        if self.url is None:
            raise ValueError("a socket has no address that a harness could post to")
        query = {} if self.route is None else {"route": self.route}
        query |= {"timeout": str(self.timeout_s)} if timeout else {}
        return f"{self.url}/v1/harness/{harness}" + (f"?{urlencode(query)}" if query else "")


@dataclass(frozen=True, slots=True)
class Piece:
    """One text to put somewhere."""

    where: str
    """Where it goes, as the beginning of a sentence that ends in a colon."""
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """Everything that one harness needs, and what its user has to know."""

    title: str
    pieces: tuple[Piece, ...]
    always: str
    """What an answer that holds for more than once does there."""
    unanswered: str
    """What happens where nobody answers in time."""
    down: str
    """What happens while the daemon cannot be reached."""
    elsewhere: str
    """What happens where somebody answers in the harness's own dialog."""
    notes: tuple[str, ...] = ()
    tried: str = "not with the program itself; written from its published formats."


def printed(snippet: Snippet) -> str:
    """The snippet as Markdown, without a line break at its end."""
    lines = [f"## {snippet.title}", ""]
    for piece in snippet.pieces:
        lines += [f"{piece.where}:", "", f"```{piece.language}", piece.text, "```", ""]
    said = {
        "Always": snippet.always,
        "Nobody answers in time": snippet.unanswered,
        "The daemon is down": snippet.down,
        "Answered in its own dialog": snippet.elsewhere,
    }
    items = [f"**{name}**: {sentence}" for name, sentence in (said | {"Tried": snippet.tried}).items()]
    return "\n".join([*lines, *map(_item, [*items, *snippet.notes])])


def _item(sentence: str) -> str:
    return textwrap.fill(f"- {sentence}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def settings(content: Json) -> str:
    """Settings as JSON text."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def version_of(text: str | None) -> Version | None:
    """A released version like `2.1.332`; None for anything else, a pre-release too."""
    found = None if text is None else _VERSION.search(text.strip())
    return None if found is None or found.start() else (int(found[1]), int(found[2]), int(found[3]))


def token_variable(place: Place, program: str) -> Piece:
    """How a harness that can only read a variable gets the token."""
    file = shlex.quote(place.token_file)
    return Piece(f"In the shell that starts {program}", "sh", f'export {TOKEN_VARIABLE}="$(cat {file})"')


def http_hook(place: Place, harness: str) -> Json:
    """A hook that posts, as Claude Code and those who follow it write one, without its time-out."""
    return {
        "type": "http",
        "url": place.door(harness, timeout=True),
        "headers": {"Authorization": BEARER},
        "allowedEnvVars": [TOKEN_VARIABLE],
    }


def command_hook(place: Place, harness: str) -> Json:
    """A hook that starts our own program, without its time-out."""
    return {"type": "command", "command": place.line("hook", harness, timeout=True)}


def curl(place: Place, harness: str, body: Mapping[str, object]) -> tuple[Piece, ...]:
    """How any program posts a question in a harness's shape."""
    file = shlex.quote(place.token_file)
    header = f"(umask 077 && printf 'Authorization: Bearer %s\\n' \"$(cat {file})\" > auth.header)"
    if place.url is None:
        over_tcp = replace(place, url=URL)  # the name in the address says nothing to a socket
        at = f"--unix-socket {shlex.quote(place.socket or '')} {shlex.quote(over_tcp.door(harness))}"
    else:
        at = shlex.quote(place.door(harness))
    # The body is quoted by the here-document, so that no character of it means anything to the shell.
    call = f"curl -sS -H @auth.header --json @- {at} <<'JSON'\n{settings(dict(body))}\nJSON"
    return (
        Piece("Once, so that the token stays out of the list of processes", "sh", header),
        Piece("For each question; the call returns with the answer", "sh", call),
    )
