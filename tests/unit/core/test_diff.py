from __future__ import annotations

import random
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.diff import Change, Diff, Sign, unified, visible_diff
from tests.unit.core.test_text import hides

HEADER = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")
LINES = st.lists(st.sampled_from(["a", "b", "", "}", "return x", "+ x", "--- a/x", "@@ -1,1 +1,1 @@", "\\ No", "x\r"]))
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"])) | st.text(max_size=30)
MEGABYTE = 1_000_000


def patched(old: str | None, diff: str) -> str | None:
    """What a diff makes of a text: a small `patch` that believes nothing but the diff's own lines."""
    head, *lines = diff.split("\n")
    new_name = lines.pop(0)
    assert head.startswith("--- ")
    assert (head == "--- /dev/null") == (old is None)
    rest = re.findall(r"[^\n]*\n|[^\n]+", old or "")
    made: list[str] = []
    taken = at = 0
    while at < len(lines):
        header = HEADER.fullmatch(lines[at])
        assert header, lines[at]
        old_start, old_count, new_start, new_count = map(int, header.groups())
        made += rest[taken : old_start - (old_count > 0)]
        taken = old_start - (old_count > 0)
        assert len(made) == new_start - (new_count > 0)
        at += 1
        ends = (taken + old_count, len(made) + new_count)
        while (taken, len(made)) != ends:
            sign, text = lines[at][0], lines[at][1:]
            at += 1
            if at < len(lines) and lines[at] == "\\ No newline at end of file":
                at += 1
            else:
                text += "\n"
            if sign in " -":
                assert rest[taken] == text
                taken += 1
            if sign in " +":
                made.append(text)
            assert sign in " -+"
    made += rest[taken:]
    return None if new_name == "+++ /dev/null" else "".join(made)


@settings(deadline=None)
@given(st.none() | TEXTS, st.none() | TEXTS, st.integers(0, 4), st.sampled_from([0, 20, 2_000_000]))
@example("a\nb\n", "a\nb", 3, 2_000_000)
@example("", "", 3, 2_000_000)
@example(None, "", 3, 2_000_000)
def test_a_diff_makes_the_old_text_the_new_one_and_counts_its_lines(
    old: str | None, new: str | None, context: int, work: int
) -> None:
    """However little work is allowed: then it is longer, and as true."""
    if old is None and new is None:
        return
    diff = unified(old, new, context=context, work=work)
    text = diff.text("src/app.py")
    assert patched(old, text) == new
    runs = [run for hunk in diff.hunks for run in hunk.runs]
    for sign, count in ((Sign.ADDED, diff.added), (Sign.REMOVED, diff.removed)):
        assert count == sum(run.count for run in runs if run.sign is sign)
    kept = sum(run.count for run in runs if run.sign is Sign.KEPT)
    assert diff.not_shown + kept + diff.added == len(re.findall(r"[^\n]*\n|[^\n]+", new or ""))
    for run in runs:
        assert run.text.count("\n") == run.count - 1


@given(TEXTS, TEXTS)
def test_no_more_than_the_context_stands_around_a_change(old: str, new: str) -> None:
    diff = unified(old, new)
    assert (diff.hunks == ()) == (old == new)
    for hunk in diff.hunks:
        kept = [run.count for run in hunk.runs if run.sign is Sign.KEPT]
        assert max(kept, default=0) <= 6
        assert any(run.sign is not Sign.KEPT for run in hunk.runs)
    for one, other in pairwise(diff.hunks):
        assert one.old_start + one.old_count < other.old_start


def test_a_changed_line_is_shown_as_diff_and_git_show_it() -> None:
    old = "".join(f"line {n}\n" for n in range(1, 21))
    new = old.replace("line 10\n", "line ten\nline 10.5\n").replace("line 20\n", "line 20")
    diff = unified(old, new)
    assert diff.text("apps/hub/main.py").split("\n") == [
        "--- a/apps/hub/main.py",
        "+++ b/apps/hub/main.py",
        "@@ -7,7 +7,8 @@",
        " line 7",
        " line 8",
        " line 9",
        "-line 10",
        "+line ten",
        "+line 10.5",
        " line 11",
        " line 12",
        " line 13",
        "@@ -17,4 +18,4 @@",
        " line 17",
        " line 18",
        " line 19",
        "-line 20",
        "+line 20",
        "\\ No newline at end of file",
    ]
    assert (diff.change, diff.added, diff.removed, diff.not_shown) == (Change.CHANGED, 3, 2, 9)


@pytest.mark.parametrize(
    ("old", "new", "change", "lines"),
    [
        (None, "a\nb\n", Change.CREATED, ["--- /dev/null", "+++ b/x", "@@ -0,0 +1,2 @@", "+a", "+b"]),
        (None, "", Change.CREATED, ["--- /dev/null", "+++ b/x"]),
        ("a\n", None, Change.DELETED, ["--- a/x", "+++ /dev/null", "@@ -1,1 +0,0 @@", "-a"]),
        ("a\n", "", Change.CHANGED, ["--- a/x", "+++ b/x", "@@ -1,1 +0,0 @@", "-a"]),
        ("a\n", "a\n", Change.CHANGED, ["--- a/x", "+++ b/x"]),
    ],
)
def test_a_file_that_comes_to_be_or_ceases_is_told_from_an_empty_one(
    old: str | None, new: str | None, change: Change, lines: list[str]
) -> None:
    diff = unified(old, new)
    assert diff.change is change
    assert diff.text("x").split("\n") == lines


def test_no_file_before_and_none_after_is_no_change() -> None:
    with pytest.raises(ValueError, match="no change"):
        unified(None, None)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("src/app.py", "--- a/src/app.py"),
        ("/home/u/app.py", "--- a/home/u/app.py"),
        ("ein Ort/ä.txt", "--- a/ein Ort/ä.txt"),
        ("x\n+rm -rf ~\n", '--- "a/x\\n+rm -rf ~\\n"'),
        ("C:\\new", '--- "a/C:\\\\new"'),
        ('say "hi"\t\x1b[2K\r', '--- "a/say \\"hi\\"\\t\\033[2K\\r"'),
    ],
)
def test_a_path_stays_on_its_line(path: str, named: str) -> None:
    lines = unified("a", "b").text(path).split("\n")
    assert lines[0] == named
    assert lines[1] == named.replace("---", "+++").replace("a/", "b/", 1)
    assert lines[2].startswith("@@ ")


def test_a_changed_line_end_is_seen() -> None:
    shown = visible_diff(unified("one\r\ntwo\n", "one\ntwo\r\n").text("x"))
    assert shown.split("\n")[3:] == ["-one\\u{d}", "-two", "+one", "+two\\u{d}"]


def test_nothing_joins_or_covers_the_sign_of_a_line() -> None:
    shown = visible_diff("+\u0336\u200dx\n-\ufe0f\n \u202ey\n\u0301z\n\\ No newline at end of file")
    assert shown.split("\n") == [
        "+\\u{336}\\u{200d}x",
        "-\\u{fe0f}",
        " \\u{202e}y",
        "\\u{301}z",
        "\\ No newline at end of file",
    ]


@given(TEXTS | st.text(st.characters(codec="utf-8") | st.sampled_from("\r\n\\ \u202e\u0301"), max_size=40))
def test_a_diff_hides_nothing_and_keeps_its_lines(text: str) -> None:
    shown = visible_diff(text)
    assert shown.count("\n") == text.count("\n")
    assert not [char for char in shown if hides(char) and char not in "\n\t"]


@pytest.mark.parametrize("text", ["GIF89a\x00\x01", "\ufffd\ufffdx\ufffd" * 50, "\x01\x02 abc"])
def test_what_looks_like_binary_data_is_named(text: str) -> None:
    assert unified(None, text).looks_binary
    assert unified(text, None).looks_binary


@pytest.mark.parametrize("text", ["", "x\r\n\ty\f\n", "\x1b[1mbold\x1b[0m\n", "naïve 例え \U0001f600\n"])
def test_what_is_text_is_not_called_binary(text: str) -> None:
    assert not unified(None, text).looks_binary


def hostile() -> dict[str, tuple[str, str]]:
    chance = random.Random(1)
    lines = [f"line {n}\n" for n in range(30_000)]
    mixed = chance.sample(lines, len(lines))
    coins = ["".join(chance.choices(["a\n", "b\n"], k=200_000)) for _ in "ab"]
    gaps = ["".join(f"u{n}\n" + "".join(chance.choices(["a\n", "b\n"], k=20)) for n in range(2_000)) for _ in "ab"]
    return {
        "one value against two": ("a\n" * MEGABYTE, "a\nb\n" * (MEGABYTE // 4)),
        "two values": (coins[0], coins[1]),
        "no order": ("".join(lines), "".join(mixed)),
        "against the order": ("".join(lines), "".join(reversed(lines))),
        "gaps": (gaps[0], gaps[1]),
        "one line": ("a" * MEGABYTE, "b" * MEGABYTE),
    }


@pytest.mark.parametrize("name", hostile())
def test_no_text_takes_long(name: str) -> None:
    """Unbounded, most of these would take minutes to days."""
    old, new = hostile()[name]
    start = time.process_time()
    unified(old, new)
    assert time.process_time() - start < 3


def test_far_apart_changes_of_a_long_file_are_small_changes() -> None:
    lines = [f"line {n}\n" if n % 3 else "}\n" for n in range(20_000)]
    changed = list(lines)
    for n in range(100, 20_000, 1_000):
        changed[n] = "changed\n"
    diff = unified("".join(lines), "".join(changed))
    assert (diff.added, diff.removed, len(diff.hunks)) == (20, 20, 20)


def test_the_shown_text_of_a_run_may_be_another() -> None:
    diff: Diff = unified("key=1\n", "key=2\nx\n")
    assert diff.text("x", show=lambda run: run.text.replace("key", "k")).split("\n")[3:] == ["-k=1", "+k=2", "+x"]
