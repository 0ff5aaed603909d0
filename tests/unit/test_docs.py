from __future__ import annotations

import ast
import inspect
import re
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from agentpod_bot.cli.commands import app
from agentpod_bot.cli.verifying import SAME, pictures, verified
from agentpod_bot.core.ids import Code
from agentpod_bot.matrix.e2e.emoji import EMOJI
from agentpod_bot.render import sentences
from docs import verifying
from docs.pictures import PICTURES, page
from docs.png import with_palette
from tests.unit.render.test_question import is_clean

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINKS = re.compile(r"\]\(([^):]+)\)")
MOST_BYTES = 60 * 1_024


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_can_be_drawn_anew_and_is_there_and_small(name: str) -> None:
    events = PICTURES[name]()
    drawn = page(events)
    assert "Permission needed" in drawn or "Allowed once" in drawn
    for event in events:
        assert is_clean(event.content.get("formatted_body", ""))
    picture = (DOCS / "pictures" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) <= MOST_BYTES


def test_the_pictures_show_what_is_said_of_them() -> None:
    assert "1 value hidden" in page(PICTURES["command"]())
    assert "-times = 3" in page(PICTURES["diff"]())
    assert "characters hidden" in page(PICTURES["cut"]())
    assert "K7.txt" in page(PICTURES["cut"]())
    assert "Which question is that for?" in page(PICTURES["which-one"]())
    assert "Allowed once by @owner:example.org" in page(PICTURES["outcome"]())


@pytest.mark.parametrize("file", sorted(DOCS.glob("*.md")), ids=lambda file: file.name)
def test_no_link_of_the_documentation_leads_nowhere(file: Path) -> None:
    for link in LINKS.findall(file.read_text(encoding="utf-8")):
        path, _, place = link.partition("#")
        target = file.parent / path if path else file
        assert target.exists(), link
        if place:
            assert place in places_in(target.read_text(encoding="utf-8")), link


def test_every_picture_is_shown_and_no_other_is_kept() -> None:
    shown = {name for file in DOCS.glob("*.md") for name in re.findall(r"pictures/([\w-]+)\.png", text_of(file.name))}
    assert shown == {*PICTURES, *verifying.PICTURES} == {file.stem for file in (DOCS / "pictures").iterdir()}


@pytest.mark.parametrize("name", verifying.PICTURES)
def test_a_picture_of_a_client_is_small_and_says_nothing_but_what_it_shows(name: str) -> None:
    picture = (DOCS / "pictures" / f"{name}.png").read_bytes()
    assert len(picture) <= MOST_BYTES
    assert set(chunks(picture)) == {b"IHDR", b"PLTE", b"IDAT", b"IEND"}


@pytest.mark.parametrize("file", ["answering.md", "verification.md"])
def test_every_picture_is_told_to_who_cannot_see_it(file: str) -> None:
    told = re.findall(r"!\[(.*?)\]", text_of(file), re.DOTALL)
    assert told
    assert [each for each in told if len(each.split()) < 5] == []


def test_the_terminal_of_the_guide_shows_what_verify_prints() -> None:
    [shown] = verifying.TERMINAL.findall(text_of("verification.md"))
    user_id, device_id = re.search(r"^(\S+) verifies the bot with device (\S+)\.$", shown, re.MULTILINE).groups()
    verification_id = re.search(r"^Verification (\w+)$", shown, re.MULTILINE)[1]
    numbers = re.search(r"as numbers: (\d{4})  (\d{4})  (\d{4})", shown).groups()
    rows = "".join(shown.split("\n")[2:4])
    emoji = sorted((each for each in EMOJI if f"{each[0]} {each[1]}" in rows), key=lambda each: rows.index(each[0]))
    one = {"user_id": user_id, "device_id": device_id, "emoji": emoji, "numbers": numbers, "id": verification_id}
    assert len(emoji) == 7
    before, after = shown.split(f"\n{SAME} {verifying.PROMPT} y\n")
    assert before.splitlines() == pictures(one)
    assert after.splitlines()[1:] == verified(one | {"device": True, "identity": True})


def test_what_the_guide_says_the_bot_says_is_what_it_says() -> None:
    page = text_of("answering.md")
    quoted = [
        *re.findall(r'^- \*\*(".*?)\*\*:', page, re.MULTILINE),
        *re.findall(r"^## If the bot asks (.*)$", page, re.MULTILINE),
    ]
    quoted = [each for several in quoted for each in re.findall(r'"(.*?)"', several)]
    said = "\n".join(texts_of(sentences)).lower()
    assert len(quoted) > 10
    assert [each for each in quoted if any(part.lower() not in said for part in each.split("…"))] == []
    assert sentences.needs_code(Code("K7")) in page


def test_every_command_of_the_guide_has_the_options_that_it_is_given() -> None:
    commands = typer.main.get_command(app).commands
    for command, rest in re.findall(r"\bagentpod-bot (\w+)([^`\n]*)", text_of("verification.md")):
        known = {name for each in commands[command].params for name in each.opts}
        assert {word for word in rest.split() if word.startswith("--")} <= known


def text_of(file: str) -> str:
    return (DOCS / file).read_text(encoding="utf-8")


def places_in(page: str) -> list[str]:
    """How links name the headings of a page."""
    return [
        re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    ]


def texts_of(module: ModuleType) -> list[str]:
    """Every text in a module's source, with those that stand side by side as one."""
    tree = ast.parse(inspect.getsource(module))
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def chunks(png: bytes) -> list[bytes]:
    """The kinds of a picture's parts."""
    found, at = [], 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        found.append(kind)
        at += length + 12
    return found


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


@pytest.mark.parametrize("channels", [3, 4])
def test_a_picture_with_a_palette_is_the_same_picture(channels: int) -> None:
    """One row for each of the five filters, of two colours that stay apart."""
    colours = [(255, 255, 255, 9)[:channels], (30, 40, 50, 7)[:channels]]
    rows = [[colours[(x * y + x) % 2] for x in range(4)] for y in range(5)]
    raw, above = b"", [0] * 4 * channels
    for kind, row in enumerate(rows):
        plain = [value for pixel in row for value in pixel]
        left = [0] * channels + plain[:-channels]
        corner = [0] * channels + above[:-channels]
        guess = {
            0: [0] * len(plain),
            1: left,
            2: above,
            3: [(a + b) // 2 for a, b in zip(left, above, strict=True)],
            4: [
                min((a, b, c), key=lambda value, at=a + b - c: abs(at - value))
                for a, b, c in zip(left, above, corner, strict=True)
            ],
        }[kind]
        raw += bytes([kind, *((value - foretold) % 256 for value, foretold in zip(plain, guess, strict=True))])
        above = plain
    header = struct.pack(">IIBBBBB", 4, 5, 8, 2 if channels == 3 else 6, 0, 0, 0)
    made = with_palette(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    )
    palette = made[made.index(b"PLTE") + 4 :]
    packed = made[made.index(b"IDAT") + 4 : made.index(b"IEND") - 8]
    lines = zlib.decompress(packed)
    for y, row in enumerate(rows):
        line = lines[y * 5 : y * 5 + 5]
        assert [tuple(palette[3 * at : 3 * at + 3]) for at in line[1:]] == [pixel[:3] for pixel in row]
