"""The file with the full text of a question that shows only part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.core.text import visible_line
from agentpod_bot.render import sentences
from agentpod_bot.render.content import in_thread
from agentpod_bot.render.presented import present
from agentpod_bot.render.preview import visible_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import NewQuestion, Question

CONTENT_TYPE = "text/plain"


def filename(asked: NewQuestion) -> str:
    """Return the file's name, which says whose it is: the question's code."""
    return f"{asked.code}.txt"


def full_text(asked: NewQuestion) -> str:
    """Return all that a question asks, made visible and masked as in the room, and cut nowhere."""
    seen = present(asked)
    lines = [f"{asked.code}: {visible_line(seen.asked.title)}", ""]
    for part in seen.preview:
        match part:
            case FieldPreview(label=label, value=value):
                lines.append(f"{visible_line(label)}: {visible_line(value)}")
            case TextPreview(label=label):
                lines += [f"{visible_line(label)}:", visible_text(part), ""]
            case _:
                assert_never(part)
    return "\n".join(lines).rstrip() + "\n"


def fits(file: Mapping[str, Any] | None, *, encrypted: bool) -> bool:
    """Whether an uploaded file can be shown in a room that is encrypted, or is not.

    What was uploaded for the other kind never is: in clear everybody on the way can read it,
    and its key is none of a room's that does not hide it.
    """
    return file is not None and ("file" in file) == encrypted


def file_message(question: Question) -> dict[str, Any]:
    """Return the `m.file` event that shows the uploaded file in the question's thread; it pings nobody.

    The question must have its event and its file; `ValueError` otherwise.
    """
    asked = question.asked
    if question.event_id is None or asked.file is None:
        raise ValueError("only a question that was posted and has a file can show it")
    return {
        "msgtype": "m.file",
        "body": sentences.full_text_of(asked),
        "filename": filename(asked),
        **asked.file,
        "info": {"mimetype": CONTENT_TYPE, "size": len(full_text(asked).encode())},
        "m.mentions": {},
        "m.relates_to": in_thread(question.event_id),
    }
