from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.answer import (
    LONGEST_COMMENT,
    NoMatch,
    Reading,
    Selected,
    Why,
    begins_like_an_answer,
    cleaned,
    codes_in,
    match_reaction,
    match_reading,
    match_readings,
    match_text,
    readings,
)
from agentpod_bot.core.ids import Code, OptionId
from agentpod_bot.core.model import Meaning, Option, Scope, Via
from agentpod_bot.core.text import folded, is_numeric, position, trimmed
from tests.examples import ALLOW, ALWAYS, FOUR, NEVER, REJECT, offered

OPTIONS = offered(*FOUR)
CODES = frozenset({Code("K7"), Code("M3")})


def answer(body: str) -> Selected | NoMatch:
    return match_readings(readings(body, CODES), OPTIONS)


@pytest.mark.parametrize(
    "text",
    [
        *("allow_always", "reject_always"),  # the first word of these ids is another kind's
        *("yes", "ok", "0", "-1", "+1", "01", "5", "²", "½", "Ⅰ", "1-2", "1,2", "1 2", "1.0", "1..", "allow", "no"),
        *("1 please", "no, that is not ok", "1 but only for tests", "all", "", " ", ".", "approve", "👍", "K7"),
    ],
)
def test_text_that_is_not_plainly_an_option_decides_nothing(text: str) -> None:
    """Allowing what nobody named is the one failure that this program must never have."""
    assert isinstance(answer(text), NoMatch)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1", 1), (" 2 ", 2), ("3.", 3), ("4)", 4), ("1\ufe0f\u20e3", 1), ("٣", 3), ("２", 2), ("\u200b1", 1)),
        *(("Allow once", 1), ("ALWAYS ALLOW", 2), ("reject", 3), ("Never allow.", 4), ("ｒｅｊｅｃｔ", 3)),
        *(("reject_once", 3), ("Allow_Once", 1)),
    ],
)
def test_number_name_and_id_select_their_option_however_they_are_typed(text: str, number: int) -> None:
    match = answer(text)
    assert isinstance(match, Selected)
    assert match.option.position == number
    assert match.comment is None


def test_the_form_of_an_answer_is_told() -> None:
    forms = [match.via for text in ("3", "Reject", "reject_once") if isinstance(match := answer(text), Selected)]
    assert forms == [Via.NUMBER, Via.NAME, Via.ID]


@pytest.mark.parametrize(
    ("body", "comment"),
    [
        ("3: use the staging database", "use the staging database"),
        ("Reject\nnot today\nnor tomorrow", "not today\nnor tomorrow"),
        ("reject:", None),
        ("never allow\uff1a 不", "不"),
        ("3: 1", "1"),
        ("Reject: Allow once", "Allow once"),
        ("3: as K7: later", "as K7: later"),
    ],
)
def test_a_rejection_may_carry_a_reason(body: str, comment: str | None) -> None:
    match = answer(body)
    assert isinstance(match, Selected)
    assert match.option.option.meaning is Meaning.REJECT
    assert match.comment == comment


@pytest.mark.parametrize("body", ["1: go on", "Allow once\nplease", "2:", "1\n", "1:2", "allow once: yes"])
def test_nothing_may_follow_an_approval(body: str) -> None:
    """A trailing line break is white space, and no reason."""
    match = answer(body)
    assert isinstance(match, NoMatch) or body.strip() == "1"


@pytest.mark.parametrize("body", ["K7 2", "2 K7", "k7 Always allow", "Always allow k7", "2. K7", "Always allow K7."])
def test_a_code_stands_directly_before_or_after_the_answer(body: str) -> None:
    found = readings(body, CODES)
    assert {reading.code for reading in found} == {Code("K7")}
    match = match_readings(found, OPTIONS)
    assert isinstance(match, Selected)
    assert match.option.option == ALWAYS


@pytest.mark.parametrize("body", ["K7 reject: too early", "reject K7: too early", "3 K7\ntoo early"])
def test_a_code_and_a_reason_stand_together(body: str) -> None:
    coded = [reading for reading in readings(body, CODES) if reading.code == Code("K7")]
    match = match_readings(coded, OPTIONS)
    assert isinstance(match, Selected)
    assert match.option.option == REJECT
    assert match.comment == "too early"


@pytest.mark.parametrize("body", ["K7", "K7 1 M3", "K7 M3", "K7 1 K7", "1 K7 please", "please K7 1", "1K7", "K7: 1"])
def test_a_code_anywhere_else_is_no_answer(body: str) -> None:
    assert all(isinstance(match_reading(reading, OPTIONS), NoMatch) for reading in readings(body, CODES))


def test_a_label_that_holds_a_colon_is_read_whole_before_it_is_cut() -> None:
    keep = Option(OptionId("keep"), "Reject: keep the file", Meaning.REJECT, Scope.ONCE)
    options = offered(ALLOW, REJECT, keep)
    match = match_readings(readings("Reject: keep the file", CODES), options)
    assert isinstance(match, Selected)
    assert match.option.option == keep
    assert match.comment is None


def test_cuts_that_mean_different_rejections_decide_nothing() -> None:
    first = Option(OptionId("a"), "Reject", Meaning.REJECT, Scope.ONCE)
    second = Option(OptionId("b"), "Reject: both", Meaning.REJECT, Scope.ONCE)
    match = match_readings(readings("Reject: both: why", CODES), offered(ALLOW, first, second))
    assert match == NoMatch(Why.AMBIGUOUS)


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("1\ufe0f\u20e3", 1),
        ("2\u20e3", 2),
        ("4\ufe0f\u20e3", 4),
        ("5\u20e3", None),
        ("👍", None),
        ("1", None),
        ("", None),
    ],
)
def test_only_an_options_keycap_is_an_answering_reaction(key: str, number: int | None) -> None:
    selected = match_reaction(key, OPTIONS)
    assert (selected.option.position if selected else None) == number


def test_the_tenth_keycap_is_the_tenth_option() -> None:
    ten = offered(*(Option(OptionId(f"o{n}"), f"Choice {n}", Meaning.CHOOSE, None) for n in range(11)))
    selected = match_reaction("🔟", ten)
    assert selected is not None
    assert selected.option.position == 10


@pytest.mark.parametrize("body", ["1 but only for tests", "7", "allow it", "Always", "reject it, I think"])
def test_a_short_text_that_begins_as_an_answer_would_looks_like_a_try(body: str) -> None:
    assert begins_like_an_answer(body, OPTIONS)


@pytest.mark.parametrize("body", ["hmm, what does it do?", "see you at 2", "", "thanks", "1 " + "x" * 60])
def test_plain_talk_does_not_look_like_a_try(body: str) -> None:
    assert not begins_like_an_answer(body, OPTIONS)


def test_codes_are_found_wherever_they_stand_as_a_token() -> None:
    assert codes_in("what about k7 and XM3?", CODES) == {Code("K7")}


def test_a_reason_is_kept_without_what_no_store_takes_and_bounded() -> None:
    assert cleaned("a\0b\ud800") == "ab?"
    assert cleaned(" \n ") is None
    assert len(cleaned("x" * 9_999) or "") == LONGEST_COMMENT


@given(st.text())
def test_whatever_is_typed_selects_only_what_it_plainly_is(body: str) -> None:
    match = match_text(body, OPTIONS)
    if isinstance(match, Selected):
        option = match.option
        bare = trimmed(body)
        assert option in OPTIONS
        if is_numeric(bare):
            assert position(bare) == option.position
        else:
            assert folded(body) in option.names or folded(body) == folded(option.option.option_id)


WORDS = st.sampled_from(
    [
        "1",
        "2",
        "K7",
        "m3",
        "allow",
        "once",
        "always",
        "reject",
        "never",
        "no",
        "not",
        "yes",
        ":",
        "\n",
        "don't",
        "4",
        ".",
    ]
)


@given(st.lists(WORDS, max_size=6).map(" ".join))
def test_no_mix_of_answering_words_approves_unless_it_names_the_option_alone(body: str) -> None:
    for found in readings(body, CODES):
        match = match_reading(found, OPTIONS)
        if isinstance(match, Selected) and match.option.option.meaning is Meaning.APPROVE:
            left = " ".join(folded(found.text).split())
            assert left in {"1", "2", "allow once", "always allow"}
            assert found.comment is None


def test_a_reading_without_text_is_no_match() -> None:
    assert match_reading(Reading(None, "", None), OPTIONS) == NoMatch(Why.EMPTY)
    assert match_readings((), OPTIONS) == NoMatch(Why.EMPTY)


def test_words_of_another_meaning_never_select_an_approving_option() -> None:
    liar = Option(OptionId("no"), "Reject", Meaning.APPROVE, Scope.ALWAYS)
    options = offered(liar, NEVER)
    for text in ("Reject", "no", "reject", "NO"):
        assert isinstance(match_text(text, options), NoMatch)
    assert isinstance(match_text("1", options), Selected)
