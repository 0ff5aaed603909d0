"""Makes a picture of text small: a PNG with a palette instead of the full colours of smoothed letters."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}
"""Bytes of a pixel by PNG's colour type: with and without transparency, which a page does not have."""
MOST = 256


def with_palette(png: bytes) -> bytes:
    """Return an 8-bit picture with at most 256 colours, each the most used of those that it stands for.

    Only what Chromium writes is read: 8 bits a channel, not interlaced (`ValueError` otherwise).
    Format: https://www.w3.org/TR/png-3/
    """
    chunks = list(_chunks(png))
    width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or colour not in CHANNELS or interlaced:  # noqa: PLR2004 - as said above
        raise ValueError("only plain pictures of 8 bits a channel are read")
    packed = b"".join(body for name, body in chunks if name == b"IDAT")
    rows = list(_rows(zlib.decompress(packed), width * CHANNELS[colour], CHANNELS[colour]))
    pixels = [[row[at : at + 3] for at in range(0, len(row), CHANNELS[colour])] for row in rows]
    used = Counter(pixel for row in pixels for pixel in row)
    shift = next(shift for shift in range(9) if len({_coarse(pixel, shift) for pixel in used}) <= MOST)
    shift = max(shift, 3)
    palette: dict[bytes, bytes] = {}
    for pixel, _ in used.most_common():
        palette.setdefault(_coarse(pixel, shift), pixel)
    places = {coarse: place for place, coarse in enumerate(palette)}
    index = {pixel: places[_coarse(pixel, shift)] for pixel in used}
    lines = b"".join(b"\0" + bytes(index[pixel] for pixel in row) for row in pixels)
    return SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"".join(palette.values())),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        yield name, png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _coarse(pixel: bytes, shift: int) -> bytes:
    return bytes(value >> shift for value in pixel)


def _rows(data: bytes, length: int, step: int) -> Iterator[bytes]:
    """Undo the filters: each byte was written as its difference from what its neighbours foretell."""
    above = bytes(length)
    for start, end in pairwise(range(0, len(data) + 1, length + 1)):
        row = bytearray(data[start + 1 : end])
        for at in range(length):
            left, corner = (row[at - step], above[at - step]) if at >= step else (0, 0)
            row[at] = (row[at] + _foretold(data[start], left, above[at], corner)) & 0xFF
        above = bytes(row)
        yield above


def _foretold(kind: int, left: int, up: int, corner: int) -> int:
    match kind:
        case 0:
            return 0
        case 1:
            return left
        case 2:
            return up
        case 3:
            return (left + up) // 2
        case _:
            guess = left + up - corner
            return min((left, up, corner), key=lambda value: abs(guess - value))
