from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest

from docs.pictures import PICTURES, page
from docs.png import with_palette
from tests.unit.render.test_question import is_clean

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINKS = re.compile(r"\]\(([^)#:]+)\)")
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
        assert (file.parent / link).exists(), link


def test_every_picture_is_shown_and_no_other_is_kept() -> None:
    shown = set(re.findall(r"pictures/([\w-]+)\.png", (DOCS / "answering.md").read_text(encoding="utf-8")))
    assert shown == set(PICTURES) == {file.stem for file in (DOCS / "pictures").iterdir()}


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
