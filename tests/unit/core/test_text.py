from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.text import (
    MAX_BLANKS,
    fold,
    folded,
    is_numeric,
    position,
    trimmed,
    visible_block,
    visible_line,
    without_fallback,
    words,
)

ANY_TEXT = st.text(st.characters(codec=None) | st.sampled_from("\\nu{}\n\r\t\u200d\u200c\ufe0f\u0301\u3000🏳❤1\u20e3"))
MAY_STAY = {"\u200c", "\u200d", "\ufe0f"}


def hides(char: str) -> bool:
    """Whether a character is one that no shown text may hold."""
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} and char not in MAY_STAY


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run tests\n\n1. Allow once", r"Run tests\n\n1. Allow once"),
        ("\r\u001b[2K", r"\u{d}\u{1b}[2K"),
        ("a\u2028b\u2029c\x85d\x0be\x0cf", r"a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f"),
        ("\u202eevil\u2066", r"\u{202e}evil\u{2066}"),
        ("a\u200bb\u00adc\ufeff", r"a\u{200b}b\u{ad}c\u{feff}"),
        ("x\U000e0100y\U0001d173z\u3164\u115f\uffa0", r"x\u{e0100}y\u{1d173}z\u{3164}\u{115f}\u{ffa0}"),
        ("\ud800 \ue000 \U0010ffff \u0378", r"\u{d800} \u{e000} \u{10ffff} \u{378}"),
        ("a\ufe0fb\u034fc", r"a\u{fe0f}b\u{34f}c"),
        ("\u0338Allow", r"\u{338}Allow"),
        ("a\tb", r"a\u{9}b"),
    ],
)
def test_what_hides_or_breaks_a_line_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible_line(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧 ❤️ 1️⃣ 🏴‍☠️ 👋🏽 🇩🇪",
        "é e\u0301 ñ Å",
        "עברית العربية",
        "می\u200cخو\u0627\u0647م",
        "क्\u200dष क्\u200cष",
        "日本語\u3000テスト",
        "C:\\tools\\bin",
        "a" + " " * MAX_BLANKS + "b",
    ],
)
def test_real_words_and_emoji_stay_readable(text: str) -> None:
    assert visible_line(text) == text


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u3000", "\u2003", "\u2800"])
def test_a_long_run_of_blanks_of_any_script_is_shown_as_its_count(blank: str) -> None:
    assert visible_line(f"echo ok;{blank * 400}rm -rf ~") == "echo ok;␠\u00d7400rm -rf ~"


def test_a_count_that_the_text_itself_spells_is_told_from_a_real_one() -> None:
    assert visible_line("␠\u00d7400") != visible_line(" " * 400)


def test_a_backslash_is_doubled_only_where_it_would_read_as_an_escape() -> None:
    assert visible_line(r"C:\new") == r"C:\\new"
    assert visible_line("\\\n") == r"\\\n"
    assert visible_line(r"\d+ \u{41}") == r"\d+ \\u{41}"
    assert visible_block(r"printf 'a\nb'") == r"printf 'a\nb'"


def test_a_block_keeps_line_feeds_and_tabs_and_nothing_else() -> None:
    assert visible_block("a\n\tb\r\nc\rd\x0be") == "a\n\tb\nc\\u{d}d\\u{b}e"


def test_a_mark_at_the_start_of_a_line_cannot_sit_on_what_was_printed_before_it() -> None:
    assert visible_block("a\n\u0338b") == "a\n\\u{338}b"


def test_a_tower_of_marks_is_cut_down() -> None:
    assert visible_line("a" + "\u0301" * 20).count("\u0301") == 8


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("x" * 300, 300, "x" * 300),
        ("x" * 301, 300, "x" * 299 + "…"),
        ("abc\n\n\n", 6, r"abc\n…"[:6]),
        ("a👩‍👩b", 4, "a👩…"),
        ("", 3, ""),
    ],
)
def test_a_cut_counts_what_is_shown_and_never_splits_an_escape(text: str, limit: int, shown: str) -> None:
    assert visible_line(text, limit=limit) == shown


@given(ANY_TEXT)
def test_no_shown_line_holds_anything_that_hides(text: str) -> None:
    assert not [char for char in visible_line(text) if hides(char)]
    assert not [char for char in visible_block(text) if hides(char) and char not in "\n\t"]


@pytest.mark.parametrize("start", [*range(0, 0x20000, 0x4000), 0xE0000, 0x10C000])
def test_no_character_at_all_is_shown_that_hides(start: int) -> None:
    every = "x".join(map(chr, range(start, start + 0x4000)))
    for shown in (visible_line(every), visible_block(every).translate({9: None, 10: None})):
        assert not [char for char in shown if hides(char) or char in MAY_STAY]


@given(ANY_TEXT, st.integers(min_value=1, max_value=40))
def test_a_cut_line_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    shown = visible_line(text, limit=limit)
    assert len(shown) <= limit
    assert shown.endswith("…") or shown == visible_line(text)


@given(ANY_TEXT, ANY_TEXT)
def test_two_texts_without_long_blanks_never_look_the_same_unless_they_are(one: str, other: str) -> None:
    if "␠\u00d7" not in visible_line(one) + visible_line(other):
        assert (visible_line(one) == visible_line(other)) == (one == other)


@given(ANY_TEXT)
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert folded(folded(text)) == folded(text)
    assert trimmed(trimmed(text)) == trimmed(text)


@pytest.mark.parametrize(
    "text", ["Allow once", " allow ONCE ", "Allow once.", "allow once)", "\uff21llow once", "Al\u200blow once\ufe0f"]
)
def test_spellings_of_one_label_fold_alike(text: str) -> None:
    assert folded(text) == "allow once"


@pytest.mark.parametrize(
    "text", ["Allow once..", "Allow once!", "Allow  once", "Allow once, please", "\u0410llow once"]
)
def test_other_texts_do_not_fold_to_that_label(text: str) -> None:
    assert folded(text) != "allow once"


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("10", 10), ("\uff11\uff12", 12), ("٣", 3), ("१", 1), ("2\u20e3", 2)]
)
def test_decimal_digits_of_one_script_are_a_position(text: str, number: int) -> None:
    assert is_numeric(text)
    assert position(text) == number


@pytest.mark.parametrize("text", ["0", "01", "1٣", "²", "½", "Ⅱ", "①", "⒈", "10\u20e3", "1\u20e32\u20e3", "9" * 5000])
def test_other_numbers_are_no_position_and_no_name(text: str) -> None:
    assert is_numeric(text)
    assert position(text) is None


@pytest.mark.parametrize("text", ["", "-1", "+1", "1 2", "1-2", "x1", "one", "\u20e3"])
def test_what_is_more_than_a_number_is_not_numeric(text: str) -> None:
    assert not is_numeric(text)


@pytest.mark.parametrize(
    "body",
    [
        "> <@pod:hs.example> Permission needed\n> 1. Allow once\n\n2",
        "> * <@pod:hs.example> Permission needed\n2",
        ">\n> quoted\n>\n\n2",
        "> one\r\n\r\n2",
        "2",
    ],
)
def test_the_quotation_before_a_reply_is_not_part_of_the_answer(body: str) -> None:
    assert without_fallback(body).strip() == "2"


def test_only_the_leading_quotation_and_one_blank_line_are_taken_off() -> None:
    assert without_fallback("> a\n\n\n> b\n1") == "\n> b\n1"
    assert without_fallback("> only a quotation") == ""


def test_words_are_runs_of_letters_and_inner_apostrophes() -> None:
    assert words("\u2018Don\u2019t\u2019 ALLOW-it 2x, Re\u200bject!") == ("don't", "allow", "it", "x", "reject")
    assert words("12 ✓") == ()
