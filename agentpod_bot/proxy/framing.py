"""Lines that hold something else than the one message that both protocols put on a line, as some readers take them."""

from __future__ import annotations

import json
import re

from agentpod_bot.proxy.talk import message_of, text_of, texts_in

# Where some readers end a line, beside where all do.
_LINE_ENDS = re.compile("[\r\u2028\u2029]")


def is_plain(line: bytes) -> bool:
    """Whether every reader finds the same on a line: one message, or nothing.

    Not so with a batch, several messages, a carriage return inside, or what is no JSON here.
    """
    said = line.strip()
    return not said or (b"\r" not in said and bool(message_of(said)))


def crowd_of(line: bytes) -> list[bytes]:
    """The messages of a line that is not one, each as a line of its own."""
    if not line.strip() or message_of(line):
        return []
    texts = [each for piece in _LINE_ENDS.split(text_of(line)) for each in texts_in(piece)[0]]
    several = [each for text in texts for each in (text if isinstance(text, list) else [text])]
    return [json.dumps(each).encode() + b"\n" for each in several if isinstance(each, dict)]
