from __future__ import annotations

import hashlib
import json
from dataclasses import fields as fields_of_class
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st

from agentpod_bot.core.ids import ClientName, EventId, OptionId, RequestId, RoomId, Row, UserId
from agentpod_bot.core.journal import COLUMNS, START, Broken, Link, Whole, canonical_json, examine, fields_of, following
from agentpod_bot.core.kept import AuditRow
from agentpod_bot.core.model import Meaning, Scope

WHOLE_ROW = AuditRow(
    what="selected",
    at_ms=1_794_045_600_000,
    row=Row(7),
    client=ClientName("laptop"),
    request_id=RequestId("acps_3f0c:12 é\u2028"),
    revision=2,
    digest="ab12",
    room_id=RoomId("!ops"),
    sender=UserId("@owner:example.org"),
    event_id=EventId("$answer"),
    option_id=OptionId("allow_once"),
    meaning=Meaning.APPROVE,
    scope=Scope.ONCE,
    detail="number",
)

Line = tuple[dict[str, Any], object]


def chain(count: int, before: Link = START) -> list[Line]:
    """So many good lines, each about another question."""
    lines: list[Line] = []
    for number in range(count):
        fields = fields_of(before.seq + 1, AuditRow(what="asked", at_ms=number, row=Row(number)))
        before = following(before, fields)
        lines.append((fields, before.hash))
    return lines


def test_a_lines_hash_is_over_the_hash_before_it_and_all_its_columns_as_canonical_json() -> None:
    fields = fields_of(1, WHOLE_ROW)
    assert tuple(fields) == COLUMNS
    assert len(COLUMNS) == len(fields_of_class(AuditRow)) + 1  # and its number
    # Keys in order, no spaces, characters as they are: for these values, that is RFC 8785.
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert following(START, fields) == Link(1, hashlib.sha256(bytes(32) + canonical).hexdigest())
    after = following(Link(1, "ff" * 32), fields_of(2, WHOLE_ROW))
    assert after.hash != following(START, fields_of(2, WHOLE_ROW)).hash


def test_what_json_cannot_carry_makes_no_line() -> None:
    with pytest.raises(ValueError, match="JSON cannot carry"):
        following(START, fields_of(1, AuditRow(what="late", at_ms=1, sender=UserId("@\ud800:example.org"))))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_chain_that_nobody_touched_is_whole_and_says_where_it_ends(count: int) -> None:
    lines = chain(count)
    head = Link(count, str(lines[-1][1])) if lines else START
    assert examine(START, lines, wanted=None) == Whole(head, count, remembered=True)


def test_a_chain_may_begin_after_lines_that_were_pruned() -> None:
    lines = chain(6)
    anchor = Link(3, str(lines[2][1]))
    assert isinstance(examine(anchor, lines[3:], wanted=None), Whole)
    assert examine(anchor, lines[4:], wanted=None) == Broken(4, "is missing: 5 stands in its place")
    assert isinstance(examine(START, lines[3:], wanted=None), Broken)


def test_lines_that_were_taken_away_at_the_end_show_with_a_head_that_was_kept() -> None:
    lines = chain(6)
    kept = str(lines[-1][1])
    assert examine(START, lines[:-1], wanted=None) == Whole(Link(5, str(lines[4][1])), 5, remembered=True)
    cut = examine(START, lines[:-1], wanted=kept)
    assert isinstance(cut, Whole)
    assert not cut.remembered
    grown = examine(START, chain(9), wanted=kept)
    assert isinstance(grown, Whole)
    assert grown.remembered


def test_a_chain_that_was_made_anew_shows_with_a_head_that_was_kept() -> None:
    kept = str(chain(6)[-1][1])
    anew = examine(START, chain(5) + chain(3, Link(5, "00" * 32)), wanted=kept)
    assert isinstance(anew, Broken)
    whole = examine(START, chain(5), wanted=kept)
    assert isinstance(whole, Whole)
    assert not whole.remembered


@pytest.mark.hypothesis
@given(st.dictionaries(st.sampled_from(COLUMNS), st.one_of(st.none(), st.booleans(), st.integers(), st.text())))
def test_the_quick_form_of_a_line_is_that_of_rfc_8785(fields: dict[str, Any]) -> None:
    try:
        expected = rfc8785.dumps(fields)
    except rfc8785.CanonicalizationError:
        with pytest.raises((rfc8785.CanonicalizationError, ValueError)):
            canonical_json(fields)
    else:
        assert canonical_json(fields) == expected


@pytest.mark.parametrize("text", ["".join(map(chr, range(0x100))), "  ﻿😀", "퟿", '/\\"'])
def test_every_kind_of_character_has_the_form_of_rfc_8785(text: str) -> None:
    assert canonical_json({"what": text}) == rfc8785.dumps({"what": text})


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())


@pytest.mark.hypothesis
@given(at=st.integers(0, 7), column=st.sampled_from(COLUMNS), value=scalars)
def test_any_change_of_any_column_breaks_the_chain_there(at: int, column: str, value: Any) -> None:
    lines = chain(8)
    fields, stored = lines[at]
    assume(value != fields[column] or isinstance(value, bool))  # in JSON 0.0 is 0, and False is not
    lines[at] = ({**fields, column: value}, stored)
    result = examine(START, lines, wanted=None)
    assert isinstance(result, Broken)
    assert result.seq == at + 1


@pytest.mark.hypothesis
@given(at=st.integers(0, 7), stored=st.one_of(scalars, st.just("00" * 32)))
def test_any_change_of_a_stored_hash_breaks_the_chain_there(at: int, stored: object) -> None:
    lines = chain(8)
    lines[at] = (lines[at][0], stored)
    assert examine(START, lines, wanted=None) == Broken(at + 1, "is not what was written after the line before it")


@pytest.mark.hypothesis
@given(at=st.integers(0, 6), many=st.integers(1, 7))
def test_lines_that_are_taken_out_before_the_last_break_the_chain_at_the_first_of_them(at: int, many: int) -> None:
    lines = chain(8)
    del lines[at : min(at + many, 7)]
    result = examine(START, lines, wanted=None)
    assert isinstance(result, Broken)
    assert result.seq == at + 1


@pytest.mark.hypothesis
@given(one=st.integers(0, 7), other=st.integers(0, 7), numbered=st.booleans())
def test_two_lines_that_change_places_break_the_chain_at_the_first_of_them(
    one: int, other: int, *, numbered: bool
) -> None:
    """Also where each takes the number of the other's place."""
    if one == other:
        return
    lines = chain(8)
    lines[one], lines[other] = lines[other], lines[one]
    if numbered:
        for at in (one, other):
            lines[at] = ({**lines[at][0], "seq": at + 1}, lines[at][1])
    result = examine(START, lines, wanted=None)
    assert isinstance(result, Broken)
    assert result.seq == min(one, other) + 1


@pytest.mark.hypothesis
@given(at=st.integers(0, 7), chained=st.booleans(), renumbered=st.booleans())
def test_a_line_that_is_put_in_breaks_the_chain_there_or_right_after(
    at: int, *, chained: bool, renumbered: bool
) -> None:
    """Even where it is chained to what is before it: what follows was not written after it."""
    lines = chain(8)
    before = START if at == 0 else Link(at, str(lines[at - 1][1]))
    fields = fields_of(at + 1, AuditRow(what="selected", at_ms=99))
    link = following(before, fields)
    lines.insert(at, (fields, link.hash if chained else "00" * 32))
    if renumbered:
        for number in range(at + 1, len(lines)):
            lines[number] = ({**lines[number][0], "seq": number + 1}, lines[number][1])
    result = examine(START, lines, wanted=None)
    assert isinstance(result, Broken)
    assert result.seq == (at + 2 if chained else at + 1)


def test_a_column_too_many_or_too_few_is_found() -> None:
    lines = chain(3)
    lines[1] = ({**lines[1][0], "note": "approved"}, lines[1][1])
    assert isinstance(examine(START, lines, wanted=None), Broken)
    lines = chain(3)
    del lines[1][0]["sender"]
    assert isinstance(examine(START, lines, wanted=None), Broken)
