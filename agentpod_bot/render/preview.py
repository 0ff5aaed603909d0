"""What is shown of a preview: all of it, or head and tail with what is hidden counted in between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.core.text import fits, folded, visible_block, visible_line
from agentpod_bot.render import sentences
from agentpod_bot.render.content import Prose, escape, stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentpod_bot.core.model import Preview

BODY_CHARACTERS = 4_000
BODY_LINES = 60
MAX_LABEL = 60
"""Characters shown of a part's label."""
MAX_PARTS = 14
"""Parts kept of a preview that must be cut: each needs four lines."""
_FEWEST_LINES = 4
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

    def __init__(self, preview: Sequence[Preview]) -> None:
        self.preview = preview
        self.omitted = max(0, len(preview) - MAX_PARTS)
        first = MAX_PARTS // 2
        self.ends = [at for at in range(len(preview)) if not first <= at < first + self.omitted]
        self.must_be_cut = sum(len(_content(each)) for each in preview) > _WHOLE
        measured = self.ends if self.must_be_cut else range(len(preview))
        self.whole = {at: _whole(preview[at]) for at in measured}
        self.labels_cut = not all(fits(each.label, MAX_LABEL) for each in preview)

    def size(self, at: int) -> int:
        """Characters of one part, label counted too."""
        part = self.whole[at]
        return len(_content(self.preview[at])) + MAX_LABEL if part is None else len(part.label) + len(part.head)

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
        [max(height + 2, _FEWEST_LINES) if short else height for height, short in zip(heights, is_short, strict=True)],
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
    """Return what a person reads: in the body every line of a text is indented, in HTML it stands in `<pre>`."""
    blocks: list[Prose] = [_prose(part) for part in preview.parts]
    if preview.omitted:
        blocks.insert(preview.omitted_after, Prose.of([sentences.items_hidden(preview.omitted)]))
    return stacked(blocks, gap="\n")


def envelope_entries(preview: Shown) -> list[dict[str, Any]]:
    """Return the same as the envelope's `preview`."""
    entries = [_entry(part) for part in preview.parts]
    if preview.omitted:
        note = {"type": "field", "label": "Note", "value": sentences.items_hidden(preview.omitted)}
        entries.insert(preview.omitted_after, note)
    return entries


def _prose(part: Part) -> Prose:
    label = part.label
    if not _PLAIN_LABEL.fullmatch(label) or folded(label) in _OUR_LINES:
        label = sentences.in_quotes(label)
    if not part.is_text and part.tail is None:
        return Prose.of([f"{label}: {part.head}"])
    language = folded(part.label) if part.is_text and folded(part.label) in _LANGUAGES else None
    pieces = [Prose.of([f"{label}:"]), _code(part.head, language)]
    if part.tail is not None:
        pieces += [Prose.of([sentences.hidden(part.hidden)]), _code(part.tail, language)]
    return stacked(pieces, gap="\n")


def _code(text: str, language: str | None) -> Prose:
    indented = "\n".join(f"    {line}" for line in text.split("\n"))
    opening = "<code>" if language is None else f'<code class="language-{language}">'
    return Prose(indented, f"<pre>{opening}{escape(text)}</code></pre>")


def _entry(part: Part) -> dict[str, Any]:
    gap = "\n" if part.is_text else " "
    content = part.head if part.tail is None else gap.join((part.head, sentences.hidden(part.hidden), part.tail))
    if part.is_text:
        return {"type": "text", "label": part.label, "text": content}
    return {"type": "field", "label": part.label, "value": content}


def _content(preview: Preview) -> str:
    match preview:
        case FieldPreview(value=value):
            return value
        case TextPreview(text=text):
            return text
        case _:
            assert_never(preview)


def _visible(preview: Preview) -> Callable[[str], str]:
    return visible_line if isinstance(preview, FieldPreview) else visible_block


def _whole(preview: Preview) -> Part | None:
    """Return all of a part; None where it is so long that it has to be cut anyhow."""
    content = _content(preview)
    if len(content) > _LONGEST:
        return None
    head = _visible(preview)(content)
    return Part(_label(preview.label), head, tail=None, hidden=0, is_text=isinstance(preview, TextPreview))


def _cut_part(preview: Preview, characters: int, lines: int) -> Part:
    """Return head and tail of a part and the number of characters between them.

    The original is cut, and each end made visible by itself, so no escape is cut in two.
    Of `lines` one is the label's and one that of the count.
    """
    label, text, visible = _label(preview.label), _content(preview), _visible(preview)
    half = max(min(characters, _LONGEST) - len(label), 0) // 2
    rows = max(lines - 2, 2)
    head = _end(text, visible, half, (rows + 1) // 2, at_start=True)
    tail = _end(text[head:], visible, half, rows // 2, at_start=False)
    return Part(
        label=label,
        head=visible(text[:head]),
        tail=visible(text[len(text) - tail :]),
        hidden=len(text) - head - tail,
        is_text=isinstance(preview, TextPreview),
    )


def _label(label: str) -> str:
    return visible_line(label, limit=MAX_LABEL)


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
