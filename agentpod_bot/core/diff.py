r"""What a change does to one file, as a unified diff: complete, and found in bounded time.

A unified diff leaves out nothing but unchanged lines, and says how many. The standard
library's matcher needs time that grows with the cube of hostile texts, so it sees only what
it can be done with; longer texts are first parted at the lines that stand once in each, and
what even then is too much counts as replaced. Such a diff is longer, never wrong.

Format: https://www.gnu.org/software/diffutils/manual/html_node/Detailed-Unified.html, with
paths written as git writes them. Lines end at line feeds only, so a carriage return is a
character of its line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from agentpod_bot.core.text import visible_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONTEXT = 3
"""Unchanged lines shown around a change."""
WORK = 2_000_000
"""Comparisons of lines that finding a diff may take, beyond what grows with its length: some 60 ms at the worst."""
NOWHERE = "/dev/null"
NO_LINE_FEED = "\\ No newline at end of file"

_LEVELS = 3
_SAMPLE = 8_192
# What no text has but by accident: controls other than white space and escape, and what stands for undecodable bytes.
_BYTES = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_FEW = 10
# Nothing in it has to be made visible.
_PLAIN = re.compile(r"(?:[!-\[\]-~]| (?! ))*+")
_SIGNS = frozenset("+- @\\")
_QUOTED = re.compile('["\\\\\x00-\x1f\x7f]')
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class Sign(StrEnum):
    """What a diff's line begins with."""

    KEPT = " "
    REMOVED = "-"
    ADDED = "+"


class Change(StrEnum):
    """What happens to the file."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Run:
    """Lines of a hunk that follow each other and have one sign."""

    sign: Sign
    start: int
    """Number of the first, from 0: in the old text if they are removed, else in the new one."""
    count: int
    text: str
    """The lines, without the last one's line feed."""
    has_line_feed: bool
    """Whether the last one has it."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that follow each other; places count from 0."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    runs: tuple[Run, ...]

    @property
    def header(self) -> str:
        """Where it stands: a side's first line and count; the line before where that side has none."""
        old = f"{self.old_start + (self.old_count > 0)},{self.old_count}"
        new = f"{self.new_start + (self.new_count > 0)},{self.new_count}"
        return f"@@ -{old} +{new} @@"


@dataclass(frozen=True, slots=True)
class Diff:
    """What a change does to a file."""

    change: Change
    hunks: tuple[Hunk, ...]
    added: int
    removed: int
    not_shown: int
    """Unchanged lines that stand in no hunk."""
    looks_binary: bool

    def text(self, path: str, *, show: Callable[[Run], str] | None = None) -> str:
        """Return head and hunks, without a line feed at the end; `show` gives another text for a run.

        That text must have as many lines.
        """
        old, new = _name("a", path), _name("b", path)
        lines = [f"--- {NOWHERE if self.change is Change.CREATED else old}"]
        lines.append(f"+++ {NOWHERE if self.change is Change.DELETED else new}")
        for hunk in self.hunks:
            lines.append(hunk.header)
            for run in hunk.runs:
                text = run.text if show is None else show(run)
                lines += [f"{run.sign}{line}" for line in text.split("\n")]
                if not run.has_line_feed:
                    lines.append(NO_LINE_FEED)
        return "\n".join(lines)


def unified(old: str | None, new: str | None, *, context: int = CONTEXT, work: int = WORK) -> Diff:
    """Return what turns `old` into `new`, all of it; None is a file that is not there (`ValueError`: twice)."""
    if old is None and new is None:
        raise ValueError("a file that is not there and does not come to be is no change")
    before, after = _lines(old or ""), _lines(new or "")
    hunks = tuple(_hunks(before, after, _changes(before, after, work), context))
    signs: Counter[Sign] = Counter()
    for run in (run for hunk in hunks for run in hunk.runs):
        signs[run.sign] += run.count
    return Diff(
        change=Change.CREATED if old is None else Change.DELETED if new is None else Change.CHANGED,
        hunks=hunks,
        added=signs[Sign.ADDED],
        removed=signs[Sign.REMOVED],
        not_shown=len(after) - signs[Sign.ADDED] - signs[Sign.KEPT],
        looks_binary=_looks_binary(old or "") or _looks_binary(new or ""),
    )


def visible_diff(text: str) -> str:
    r"""Return a diff as `visible_block` does, but each line by itself and after its sign.

    So a carriage return before a line feed is seen (`\u{d}`), and nothing joins a sign.
    """
    return "\n".join(line if _PLAIN.fullmatch(line) else _visible_line(line) for line in text.split("\n"))


def _visible_line(line: str) -> str:
    return line[0] + visible_block(line[1:]) if line[:1] in _SIGNS else visible_block(line)


def _name(side: str, path: str) -> str:
    """Return a path as git writes it: in quotation marks where it holds any, backslashes or controls."""
    name = f"{side}/{path.removeprefix('/')}"
    return '"' + _QUOTED.sub(_escape, name) + '"' if _QUOTED.search(name) else name


def _escape(match: re.Match[str]) -> str:
    return _SHORT_ESCAPES.get(match[0]) or f"\\{ord(match[0]):03o}"


def _looks_binary(text: str) -> bool:
    sample = text[:_SAMPLE]
    return "\0" in text or len(_BYTES.findall(sample)) * _FEW > len(sample)


def _lines(text: str) -> list[str]:
    """Split at line feeds, which stay: a last line without one is another than with it."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


# --- From two lists of lines to what was kept, and from that to hunks.


class _Kept(NamedTuple):
    """So many lines that are the same in both texts."""

    old: int
    new: int
    length: int


class _Replaced(NamedTuple):
    """Lines of the old text, and those of the new one in their place; either may be none."""

    old: int
    old_end: int
    new: int
    new_end: int


def _changes(old: Sequence[str], new: Sequence[str], work: int) -> Iterator[_Replaced]:
    kept = _Matching(old, new, work).between(0, len(old), 0, len(new))
    kept.append(_Kept(len(old), len(new), 0))
    old_at = new_at = 0
    for same in kept:
        if (old_at, new_at) != same[:2]:
            yield _Replaced(old_at, same.old, new_at, same.new)
        old_at, new_at = same.old + same.length, same.new + same.length


def _hunks(old: Sequence[str], new: Sequence[str], changes: Iterator[_Replaced], context: int) -> Iterator[Hunk]:
    near: list[_Replaced] = []
    for change in changes:
        if near and change.old - near[-1].old_end > 2 * context:
            yield _hunk(old, new, near, context)
            near = []
        near.append(change)
    if near:
        yield _hunk(old, new, near, context)


def _hunk(old: Sequence[str], new: Sequence[str], changes: list[_Replaced], context: int) -> Hunk:
    first, last = changes[0], changes[-1]
    before = min(context, first.old)
    after = min(context, len(old) - last.old_end)
    runs: list[Run] = []

    def add(sign: Sign, lines: Sequence[str], start: int, end: int) -> None:
        if start < end:
            text = "".join(lines[start:end])
            runs.append(Run(sign, start, end - start, text.removesuffix("\n"), text.endswith("\n")))

    add(Sign.KEPT, new, first.new - before, first.new)
    ends = [following.new for following in changes[1:]]
    for change, end in zip(changes, [*ends, last.new_end + after], strict=True):
        add(Sign.REMOVED, old, change.old, change.old_end)
        add(Sign.ADDED, new, change.new, change.new_end)
        add(Sign.KEPT, new, change.new_end, end)
    return Hunk(
        old_start=first.old - before,
        old_count=last.old_end + after - first.old + before,
        new_start=first.new - before,
        new_count=last.new_end + after - first.new + before,
        runs=tuple(runs),
    )


class _Matching:
    """Finds the lines that two texts share, in their order, with so much work at most."""

    def __init__(self, old: Sequence[str], new: Sequence[str], work: int) -> None:
        self._old = old
        self._new = new
        self._work = work

    def between(self, old: int, old_end: int, new: int, new_end: int, *, levels: int = _LEVELS) -> list[_Kept]:
        """Return what a part of each text shares."""
        start, end = self._ends(old, old_end, new, new_end)
        first = _Kept(old, new, start)
        last = _Kept(old_end - end, new_end - end, end)
        middle = self._middle(old + start, last.old, new + start, last.new, levels)
        return [kept for kept in (first, *middle, last) if kept.length]

    def _ends(self, old: int, old_end: int, new: int, new_end: int) -> tuple[int, int]:
        """Count the equal lines at the start and, of the others, at the end."""
        most = min(old_end - old, new_end - new)
        start = 0
        while start < most and self._old[old + start] == self._new[new + start]:
            start += 1
        end = 0
        while end < most - start and self._old[old_end - end - 1] == self._new[new_end - end - 1]:
            end += 1
        return start, end

    def _middle(self, old: int, old_end: int, new: int, new_end: int, levels: int) -> list[_Kept]:
        if old == old_end or new == new_end:
            return []
        olds, news = Counter(self._old[old:old_end]), Counter(self._new[new:new_end])
        pairs = sum(count * news[line] for line, count in olds.items())
        work = (pairs + old_end - old + new_end - new) * min(old_end - old, new_end - new)
        if work <= self._work:
            self._work -= work
            matcher = SequenceMatcher(None, self._old[old:old_end], self._new[new:new_end], autojunk=False)
            return [_Kept(old + a, new + b, count) for a, b, count in matcher.get_matching_blocks()]
        if levels == 0:
            return []
        once = {line for line, count in olds.items() if count == 1 and news[line] == 1}
        kept: list[_Kept] = []
        for anchor in [*self._anchors(old, old_end, new, new_end, once), _Kept(old_end, new_end, 0)] if once else []:
            if anchor.old > old and anchor.new > new:
                kept += self.between(old, anchor.old, new, anchor.new, levels=levels - 1)
            kept.append(anchor)
            old, new = anchor.old + 1, anchor.new + 1
        return kept

    def _anchors(self, old: int, old_end: int, new: int, new_end: int, once: set[str]) -> list[_Kept]:
        """Return the longest run of lines that stand once in each part, in the order of both."""
        places = {self._new[at]: at for at in range(new, new_end) if self._new[at] in once}
        ends: list[int] = []
        at_end: list[int] = []
        before: list[int | None] = []
        pairs = [(at, places[self._old[at]]) for at in range(old, old_end) if self._old[at] in once]
        for index, (_, place) in enumerate(pairs):
            length = bisect_left(ends, place)
            before.append(at_end[length - 1] if length else None)
            ends[length : length + 1] = [place]
            at_end[length : length + 1] = [index]
        chain: list[_Kept] = []
        link = at_end[-1] if at_end else None
        while link is not None:
            chain.append(_Kept(*pairs[link], 1))
            link = before[link]
        return chain[::-1]
