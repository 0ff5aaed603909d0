"""Renews the pictures of the documentation: real events of the bot, drawn as a plain chat.

`python -m docs.pictures` composes the events with the bot's own functions and takes pictures
of them with Chromium without a window (Debian: `apt-get install chromium fonts-noto-color-emoji`),
into `docs/pictures/`. Nothing is sent anywhere, and no look of any client is copied.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.digest import content_key, digest
from agentpod_bot.core.ids import ClientName, Code, EventId, RequestId, RoomId, RouteName, Row, UserId
from agentpod_bot.core.model import Attachment, Closing, Key, NewQuestion, Outcome, Question, Status, Via
from agentpod_bot.harness import native
from agentpod_bot.render.attachment import file_message
from agentpod_bot.render.notices import keycaps, which_one
from agentpod_bot.render.outcome import outcome
from agentpod_bot.render.question import compose
from docs.png import with_palette

if TYPE_CHECKING:
    from collections.abc import Sequence

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-lcd-text",
)
WIDTH = 560
TALL = 3_000
TAKES_S = 60
ENDS = 3
"""Lines left of long code at each end, in a picture."""
OWNER = UserId("@owner:example.org")
POD = UserId("@pod:example.org")
ASKED_MS = int(datetime(2026, 11, 7, 10, 0, tzinfo=UTC).timestamp()) * 1000
MINUTE = 60_000
KINDS = ("allow_once", "allow_always", "reject_once")
STYLE = """
* { box-sizing: border-box; }
body { margin: 0; padding: 14px; background: #eef1ee; color: #1c2420; font: 15px/1.42 "DejaVu Sans", sans-serif; }
article { max-width: 500px; margin: 0 auto 12px 0; }
article.person { margin: 0 0 12px auto; max-width: 380px; }
header { font-size: 12px; color: #55655c; margin: 0 4px 3px; }
section { background: #fff; border: 1px solid #cdd6d0; border-radius: 4px 12px 12px 12px; padding: 10px 12px; }
.person section { background: #dcebe1; border-radius: 12px 4px 12px 12px; width: fit-content; margin-left: auto; }
.person header { text-align: right; }
.notice section { background: #f6f7f4; border-style: dashed; color: #38443d; }
.plain, .notice section { white-space: pre-wrap; overflow-wrap: anywhere; }
p { margin: 0 0 8px; } p:last-child { margin: 0; }
ul { margin: 0 0 8px; padding-left: 20px; }
pre, blockquote { margin: 0 0 8px; padding: 8px; background: #f1f3f0; border-left: 3px solid #7d9a89; }
pre { overflow-x: auto; } blockquote { overflow-wrap: anywhere; }
code { font: 12.5px/1.45 "DejaVu Sans Mono", monospace; }
.reply { font-size: 12px; color: #55655c; border-left: 2px solid #b4c3b9; padding-left: 6px; margin-bottom: 6px; }
.keys { margin: 5px 4px 0; font-size: 14px; }
.keys span { border: 1px solid #cdd6d0; background: #fff; border-radius: 10px; padding: 1px 8px; margin-right: 5px; }
.file::before { content: "▤ "; }
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """One event as a chat shows it, with the keys of the reactions to it."""

    sender: UserId
    at_ms: int
    content: dict[str, Any]
    reply_to: str = ""
    keys: tuple[str, ...] = ()
    edited: bool = False


def asked(body: dict[str, Any], *, code: str = "K7", minutes: int = 0) -> tuple[Question, Shown]:
    """Return a question that a harness asks with this body, and its event in the room."""
    options = [{"id": kind, "kind": kind} for kind in KINDS]
    request = native.parse(
        json.dumps({"session_id": "acps_3f0c", "agent": "hermes", "options": options} | body).encode()
    )
    request_id, route, salt = RequestId(f"acps_3f0c:{code}"), RouteName("ops"), "00" * 16
    at_ms = ASKED_MS + minutes * MINUTE
    bare = NewQuestion(
        key=Key(ClientName("laptop"), request_id, 1),
        session_id=request.session_id,
        request_seq=1,
        title=request.title,
        tool_kind=request.tool_kind,
        agent=request.agent,
        options=request.options,
        preview=request.preview,
        preview_complete=request.preview_complete,
        route=route,
        room_id=RoomId("!ops:example.org"),
        code=Code(code),
        salt=salt,
        digest=digest(request, request_id=request_id, revision=1, salt=salt),
        content_key=content_key(request, route),
        offered=(),
        created_at_ms=at_ms,
        expires_at_ms=at_ms + 30 * MINUTE,
        raw=request.raw,
        attachment=Attachment.WANTED,
    )
    new, content = compose(bare, mentions=(OWNER,), other_codes=frozenset())
    question = Question(Row(1), new, Status.PENDING, event_id=EventId(f"$question{code}"), shown_ts=at_ms)
    return question, Shown(POD, at_ms, content)


def says(text: str, *, minutes: int, reply_to: str = "") -> Shown:
    """Return what a person writes."""
    return Shown(OWNER, ASKED_MS + minutes * MINUTE, {"msgtype": "m.text", "body": text}, reply_to)


def command() -> list[Shown]:
    """Return a question about a command, with the keys that the bot offers."""
    preview = [
        {"type": "field", "label": "Folder", "value": "apps/hub"},
        {
            "type": "text",
            "label": "Command",
            "text": "curl -sS -H 'Authorization: Bearer ghp_0123456789abcdefghijklmnopqrstuvwxyz' https://api.example.org/deploy",
        },
    ]
    question, event = asked({"title": "Deploy the hub", "preview": preview})
    keys = tuple(each["m.relates_to"]["key"] for each in keycaps(question))
    return [replace(event, keys=keys)]


def diff() -> list[Shown]:
    """Return a question about a change of a file."""
    before = "[hub]\nname = main\nport = 8080\n\n[retry]\ntimes = 3\nwait = 1.0\n\n[log]\nlevel = info\nkeep = 7\n"
    after = before.replace("times = 3\nwait = 1.0\n", "times = 5\n")
    change = {"type": "diff", "path": "apps/hub/hub.ini", "old_text": before, "new_text": after}
    return [asked({"title": "Edit hub.ini", "preview": [change]})[1]]


def cut() -> list[Shown]:
    """Return a question that shows only both ends of a script, with its file."""
    script = "".join(f"convert photos/{n:04}.jpg -resize 50% small/{n:04}.jpg\n" for n in range(1, 101))
    preview = [{"type": "text", "label": "Script", "text": f"set -e\n{script}rm -rf photos"}]
    question, event = asked({"title": "Shrink the photos", "preview": preview})
    question = replace(question, asked=replace(question.asked, file={"url": "mxc://example.org/file"}))
    return [shortened(event), Shown(POD, ASKED_MS, file_message(question), reply_to="in the question's thread")]


def shortened(event: Shown) -> Shown:
    """Return the event with most lines of its code left out of the picture, which says so."""

    def shorter(match: re.Match[str]) -> str:
        lines = match[1].split("\n")
        left = f"     ({len(lines) - 2 * ENDS} more lines are shown, but not in this picture)"
        return "<pre><code>{}</code></pre>".format("\n".join([*lines[:ENDS], left, *lines[-ENDS:]]))

    body = re.sub(r"<pre><code>(.*?)</code></pre>", shorter, event.content["formatted_body"], flags=re.DOTALL)
    return replace(event, content=event.content | {"formatted_body": body})


def which() -> list[Shown]:
    """Return two open questions, an answer that names neither, and what the bot says."""
    tests, first = asked({"title": "Run the test suite", "preview": [text("bun test")]})
    push, second = asked({"title": "Push the branch", "preview": [text("git push")]}, code="M3", minutes=1)
    now_ms = ASKED_MS + 3 * MINUTE
    notice = which_one((tests, push), now_ms=now_ms, reply_to=EventId("$answer"))
    return [
        first,
        second,
        says("1", minutes=3),
        Shown(POD, now_ms, notice, reply_to="1"),
        says("1 M3", minutes=4),
    ]


def decided() -> list[Shown]:
    """Return a question that was answered."""
    question, _ = asked({"title": "Run the test suite", "preview": [text("bun test")]})
    closing = Closing(
        Outcome.SELECTED,
        ASKED_MS + 12 * MINUTE,
        option=question.asked.offered[0],
        answered_by=OWNER,
        via=Via.NUMBER,
    )
    closed = replace(question, status=Status.DECIDED, closing=closing, delivered_at_ms=closing.at_ms)
    return [Shown(POD, ASKED_MS, outcome(closed)["m.new_content"], edited=True), says("1", minutes=12)]


def text(command: str) -> dict[str, str]:
    """Return a command as part of a preview."""
    return {"type": "text", "label": "Command", "text": command}


PICTURES = {"command": command, "diff": diff, "cut": cut, "which-one": which, "outcome": decided}


def page(events: Sequence[Shown]) -> str:
    """Return a page with these events that says its own height."""
    chat = "".join(map(drawn, events))
    measure = "<script>document.body.dataset.height = document.body.offsetHeight</script>"
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><body>{chat}{measure}</body>'


def drawn(event: Shown) -> str:
    """Return one event as HTML; a message's own HTML is taken as it is, as a client takes it."""
    content = event.content
    match content:
        case {"msgtype": "m.file", "body": body, "info": {"size": size}}:
            said = f'<span class="file">{html.escape(body)} ({html.escape(content["filename"])}, {size:,} bytes)</span>'
        case {"formatted_body": formatted}:
            said = formatted
        case {"body": body}:
            said = f'<span class="plain">{html.escape(body)}</span>'
    kind = "person" if event.sender == OWNER else "notice" if content["msgtype"] == "m.notice" else "bot"
    reply = f'<div class="reply">{html.escape(event.reply_to)}</div>' if event.reply_to else ""
    keys = "".join(f"<span>{key} 1</span>" for key in event.keys)
    at = f"{datetime.fromtimestamp(event.at_ms // 1000, UTC):%H:%M}" + (" (edited)" if event.edited else "")
    return (
        f'<article class="{kind}"><header>{html.escape(event.sender)} · {at}</header><section>{reply}{said}</section>'
        f"{f'<div class=keys>{keys}</div>' if keys else ''}</article>"
    )


def take(browser: str, name: str, events: Sequence[Shown], folder: Path) -> Path:
    """Take one picture, as high as what it shows."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "page.html")
        source.write_text(page(events), encoding="utf-8")
        run = [browser, *OPTIONS, f"--user-data-dir={scratch}/profile"]
        done = subprocess.run(  # noqa: S603 - a browser that was found on the path, and a page of our own
            [*run, f"--window-size={WIDTH},{TALL}", "--dump-dom", source.as_uri()],
            check=True,
            capture_output=True,
            text=True,
            timeout=TAKES_S,
        )
        found = re.search(r'data-height="(\d+)"', done.stdout)
        if found is None:
            raise SystemExit(f"{browser} did not draw the page")
        picture = folder / f"{name}.png"
        subprocess.run(  # noqa: S603 - as above
            [*run, f"--window-size={WIDTH},{found[1]}", f"--screenshot={picture}", source.as_uri()],
            check=True,
            capture_output=True,
            timeout=TAKES_S,
        )
    picture.write_bytes(with_palette(picture.read_bytes()))
    return picture


def main() -> None:
    """Renew all pictures."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"No browser was found (tried: {', '.join(BROWSERS)}). On Debian: apt-get install chromium")
    folder = Path(__file__).resolve().parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, events in PICTURES.items():
        picture = take(browser, name, events(), folder)
        print(f"{picture.relative_to(folder.parent.parent)}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
