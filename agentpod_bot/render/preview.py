"""What is shown of a preview: all of it, or head and tail with what is hidden counted in between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.diff import visible_diff
from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.core.text import fits, folded, visible_block, visible_line
from agentpod_bot.render import sentences
from agentpod_bot.render.content import Prose, escape, stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agentpod_bot.core.model import Readable

BODY_CHARACTERS = 4_000
BODY_LINES = 60
MAX_LABEL = 60
"""Characters shown of a part's label."""
MAX_PATH = 255
"""Characters shown of a path that is a diff's label."""
DIFF = "diff"
MAX_UNBROKEN = 80
"""Characters of one line that HTML shows as code that does not wrap."""
MAX_PARTS = 14
"""Parts kept of a preview that must be cut: each needs four lines."""
_FEWEST_LINES = 4
# HTML without `<pre>` would show one blank for these, and none at an end.
_BLANKS = re.compile(r"[ \t\n\f\r]{2}|[\t\n\f\r]|\A | \Z")
# Longer ones are not made visible as a whole: they are cut anyhow, and this runs while others wait.
_LONGEST = 8_192
_WHOLE = 65_536
_NO_LIMIT = 1 << 30
# Labels of other shapes are quoted, so that none can look like a line of the question itself.
_PLAIN_LABEL = re.compile(r"[^\W\d_][\w-]*(?: [\w-]+){0,3}")
_OUR_LINES = frozenset({"permission needed", "code", "calls itself", "session", "note"})
# Labels that are the name of a language and nothing else, as highlighters call it: any other would be a guess.
_LANGUAGES = frozenset(
    """bash c css diff dockerfile go html ini java javascript json kotlin lua makefile markdown perl php powershell
    python ruby rust sql swift toml typescript xml yaml""".split()  # noqa: SIM905 -- a list of names
)


@dataclass(frozen=True, slots=True)
class Part:
    """One shown part of a preview. `tail` is None where nothing of it is hidden."""

    label: str
    head: str
    tail: str | None
    hidden: int
    """Characters of the original between head and tail."""
    is_text: bool
    """A text of its own lines, or a one-line value."""
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a preview; whole parts are left out only behind the `omitted_after` first ones."""

    parts: tuple[Part, ...]
    omitted: int
    omitted_after: int
    is_cut: bool
    """Whether anything at all is not shown."""


class Measured:
    """A preview made visible once, to be shown in several sizes."""

    def __init__(self, preview: Sequence[Readable]) -> None:
        self.preview = preview
        self.omitted = max(0, len(preview) - MAX_PARTS)
        first = MAX_PARTS // 2
        self.ends = [at for at in range(len(preview)) if not first <= at < first + self.omitted]
        self.must_be_cut = sum(len(_content(each)) for each in preview) > _WHOLE
        measured = self.ends if self.must_be_cut else range(len(preview))
        self.whole = {at: _whole(preview[at]) for at in measured}
        self.labels_cut = not all(fits(each.label, _longest_label(each)) for each in preview)

    def size(self, at: int) -> int:
        """Characters of one part, label counted too."""
        part = self.whole[at]
        if part is not None:
            return len(part.label) + len(part.head)
        return len(_content(self.preview[at])) + _longest_label(self.preview[at])

    def height(self, at: int) -> int:
        """Lines of one part in the body."""
        lines = 1 if isinstance(self.preview[at], FieldPreview) else 1 + self._rows(at)
        return max(lines, _FEWEST_LINES) if self.whole[at] is None else lines

    def _rows(self, at: int) -> int:
        part = self.whole[at]
        return (_content(self.preview[at]) if part is None else part.head).count("\n") + 1

    def fits(self, characters: int, lines: int) -> bool:
        """Whether all of it can be shown in so much room."""
        return (
            not self.must_be_cut
            and None not in self.whole.values()
            and sum(map(self.size, self.whole)) <= characters
            and sum(map(self.height, self.whole)) <= lines
        )


def for_body(measured: Measured) -> Shown:
    """Return what a person reads of a preview: at most 4,000 characters and 60 lines."""
    return shown(measured, characters=BODY_CHARACTERS, lines=BODY_LINES)


def shown(measured: Measured, *, characters: int, lines: int = _NO_LIMIT) -> Shown:
    """Return as much of a preview as fits into so many characters and lines, labels counted too."""
    if measured.fits(characters, lines):
        parts = tuple(part for part in measured.whole.values() if part is not None)
        return Shown(parts, omitted=0, omitted_after=0, is_cut=measured.labels_cut)
    kept = measured.ends
    room = _shares([measured.size(at) for at in kept], characters)
    is_short = [share < measured.size(at) for at, share in zip(kept, room, strict=True)]
    heights = [measured.height(at) for at in kept]
    rows = _shares(
        [max(2 * height, _FEWEST_LINES) if short else height for height, short in zip(heights, is_short, strict=True)],
        lines,
    )
    parts = tuple(
        whole
        if (whole := measured.whole[at]) is not None and not is_short[n] and heights[n] <= rows[n]
        else _cut_part(measured.preview[at], room[n], rows[n])
        for n, at in enumerate(kept)
    )
    return Shown(parts, omitted=measured.omitted, omitted_after=MAX_PARTS // 2, is_cut=True)


def prose(preview: Shown) -> Prose:
    """Return what a person reads: in the body every line of a text is indented, in HTML it is code.

    Values follow each other as a list. Text copied from the code is the text that was shown.
    """
    if not preview.omitted:
        return stacked(_blocks(preview.parts), gap="\n")
    note = Prose.of([sentences.items_hidden(preview.omitted)])
    first, last = preview.parts[: preview.omitted_after], preview.parts[preview.omitted_after :]
    return stacked([*_blocks(first), note, *_blocks(last)], gap="\n")


def envelope_entries(preview: Shown) -> list[dict[str, Any]]:
    """Return the same as the envelope's `preview`."""
    entries = [_entry(part) for part in preview.parts]
    if preview.omitted:
        note = {"type": "field", "label": "Note", "value": sentences.items_hidden(preview.omitted)}
        entries.insert(preview.omitted_after, note)
    return entries


def _blocks(parts: Sequence[Part]) -> Iterator[Prose]:
    for are_values, alike in groupby(parts, key=lambda part: not part.is_text and part.tail is None):
        if are_values:
            yield _list(list(alike))
        else:
            yield from map(_text, alike)


def _list(parts: list[Part]) -> Prose:
    names = [_name(part) for part in parts]
    lines = [f"{name}: {part.head}" for name, part in zip(names, parts, strict=True)]
    items = [f"<li>{escape(name)}: {_value(part.head)}</li>" for name, part in zip(names, parts, strict=True)]
    return Prose("\n".join(lines), f"<ul>{''.join(items)}</ul>")


def _value(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>" if _BLANKS.search(text) else escape(text)


def _text(part: Part) -> Prose:
    pieces = [Prose.of([f"{_name(part)}:"]), _code(part.head, part.language)]
    if part.tail is not None:
        pieces += [Prose.of([sentences.hidden(part.hidden)]), _code(part.tail, part.language)]
    return stacked(pieces, gap="\n")


def _name(part: Part) -> str:
    label = part.label
    is_plain = _PLAIN_LABEL.fullmatch(label) and folded(label) not in _OUR_LINES
    return label if is_plain else sentences.in_quotes(label)


def _code(text: str, language: str | None) -> Prose:
    """Return code. A long line wraps in HTML, set apart, where nothing of it is lost outside of `<pre>`."""
    indented = "\n".join(f"    {line}" for line in text.split("\n"))
    opening = "<code>" if language is None else f'<code class="language-{language}">'
    around = "blockquote" if len(text) > MAX_UNBROKEN and not _BLANKS.search(text) else "pre"
    return Prose(indented, f"<{around}>{opening}{escape(text)}</code></{around}>")


def _entry(part: Part) -> dict[str, Any]:
    gap = "\n" if part.is_text else " "
    content = part.head if part.tail is None else gap.join((part.head, sentences.hidden(part.hidden), part.tail))
    if part.is_text:
        return {"type": "text", "label": part.label, "text": content}
    return {"type": "field", "label": part.label, "value": content}


def visible_text(text: TextPreview) -> str:
    """Return all of a text, made visible."""
    return visible_diff(text.text) if text.language == DIFF else visible_block(text.text)


def _content(preview: Readable) -> str:
    match preview:
        case FieldPreview(value=value):
            return value
        case TextPreview(text=text):
            return text
        case _:
            assert_never(preview)


def _visible(preview: Readable) -> Callable[[str], str]:
    match preview:
        case FieldPreview():
            return visible_line
        case TextPreview(language=language):
            return visible_diff if language == DIFF else visible_block
        case _:
            assert_never(preview)


def _language(preview: Readable) -> str | None:
    """Return the language of a text where it is certain: said so, or its label and nothing else."""
    if isinstance(preview, FieldPreview):
        return None
    language = folded(preview.label) if preview.language is None else preview.language
    return language if language in _LANGUAGES else None


def _whole(preview: Readable) -> Part | None:
    """Return all of a part; None where it is so long that it has to be cut anyhow."""
    content = _content(preview)
    if len(content) > _LONGEST:
        return None
    label = visible_line(preview.label, limit=_longest_label(preview))
    return _part(preview, label, _visible(preview)(content))


def _part(preview: Readable, label: str, head: str, tail: str | None = None, hidden: int = 0) -> Part:
    is_text = isinstance(preview, TextPreview)
    return Part(label, head, tail, hidden, is_text=is_text, language=_language(preview))


def _cut_part(preview: Readable, characters: int, lines: int) -> Part:
    """Return head and tail of a part and the number of characters between them.

    The original is cut, and each end made visible by itself, so no escape is cut in two.
    Of `lines` one is the label's and one that of the count.
    """
    text, visible = _content(preview), _visible(preview)
    label = visible_line(preview.label, limit=min(_longest_label(preview), max(MAX_LABEL, characters // 4)))
    half = max(min(characters, _LONGEST) - len(label), 0) // 2
    rows = max(lines - 2, 2)
    head = _end(text, visible, half, (rows + 1) // 2, at_start=True)
    tail = _end(text[head:], visible, half, rows // 2, at_start=False)
    at = len(text) - tail
    shown = visible(text[at:])
    if tail and isinstance(preview, TextPreview) and preview.language == DIFF:
        shown = _signed(text, at)
    return _part(preview, label, visible(text[:head]), shown, at - head)


def _signed(diff: str, at: int) -> str:
    """Return the end of a diff, made visible; where that begins within a line, with that line's own sign."""
    start = diff.rfind("\n", 0, at) + 1
    if at == start:
        return visible_diff(diff[at:])
    return visible_diff(f"{diff[start]}…{diff[max(at, start + 1) :]}")


def _longest_label(preview: Readable) -> int:
    return MAX_PATH if isinstance(preview, TextPreview) and preview.language == DIFF else MAX_LABEL


def _end(text: str, visible: Callable[[str], str], characters: int, lines: int, *, at_start: bool) -> int:
    """Return how many characters of one end of a text fit, made visible, into so many characters and lines."""
    length = min(len(text), characters)
    piece = text[:length] if at_start else text[len(text) - length :]
    rows = piece.split("\n")
    if len(rows) > lines:
        length = len("\n".join(rows[:lines] if at_start else rows[-lines:]))
    while length:
        size = len(visible(text[:length] if at_start else text[len(text) - length :]))
        if size <= characters:
            break
        length = min(length - 1, length * characters // size)
    return length


def _shares(wanted: Sequence[int], total: int) -> list[int]:
    """Share `total` out so that small wishes are met whole and the larger ones get the same."""
    shares = [0] * len(wanted)
    left = total
    for waiting, at in zip(range(len(wanted), 0, -1), sorted(range(len(wanted)), key=wanted.__getitem__), strict=True):
        shares[at] = min(wanted[at], left // waiting)
        left -= shares[at]
    return shares
