from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import DiffPreview, FieldPreview, Meaning, Option, Scope, TextPreview
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import native
from agentpod_bot.harness.opaque import fault_of_id

ALLOW: dict[str, Any] = {"id": "allow_once", "kind": "allow_once"}
REJECT: dict[str, Any] = {"id": "reject_once", "kind": "reject_once"}


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other tests may have the processor meanwhile."""


def body(**changes: Any) -> bytes:
    shape: dict[str, Any] = {"session_id": "acps_3f0c", "title": "Run the test suite", "options": [ALLOW, REJECT]}
    return json.dumps(shape | changes).encode()


def options(*shapes: dict[str, Any]) -> tuple[Option, ...]:
    return native.parse(body(options=shapes)).options


def faults(sent: bytes) -> list[tuple[str | int, ...]]:
    with pytest.raises(Invalid) as caught:
        native.parse(sent)
    return [caught.value.loc, *(loc for loc, _ in caught.value.more)]


def test_a_whole_request_is_read_as_it_was_sent() -> None:
    sent = body(
        request_seq=12,
        request_id="acps_3f0c:12",
        tool_kind="execute",
        agent="hermes",
        route="ops",
        options=[{"id": "a", "kind": "allow_once", "label": " Erlauben "}],
        preview=[
            {"type": "text", "label": "Command", "text": "bun test\n"},
            {"type": "field", "label": "Location", "value": "apps/hub"},
        ],
        preview_complete=False,
        expires_at="2026-11-07T10:30:00.000Z",
        supersede=True,
    )
    asked = native.parse(sent)
    assert (asked.session_id, asked.request_seq, asked.request_id) == ("acps_3f0c", 12, "acps_3f0c:12")
    assert (asked.title, asked.tool_kind, asked.agent, asked.route) == (
        "Run the test suite",
        "execute",
        "hermes",
        "ops",
    )
    assert [o.label for o in asked.options] == [" Erlauben "]
    assert asked.preview == (TextPreview("Command", "bun test\n"), FieldPreview("Location", "apps/hub"))
    assert asked.preview_complete is False
    assert asked.supersede is True
    assert asked.expires_at_ms == 1_794_047_400_000
    assert asked.raw == sent


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"old_text": "a\r\n", "new_text": "b"}, DiffPreview("a.py", "a\r\n", "b")),
        ({"old_text": None, "new_text": "b"}, DiffPreview("a.py", None, "b")),
        ({"new_text": ""}, DiffPreview("a.py", None, "")),
        ({"old_text": "a", "new_text": None}, DiffPreview("a.py", "a", None)),
    ],
)
def test_a_diff_is_read_as_acp_means_it(sent: dict[str, str | None], read: DiffPreview) -> None:
    assert native.parse(body(preview=[{"type": "diff", "path": "a.py", **sent}])).preview == (read,)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"path": "a.py", "old_text": None, "new_text": None}, "new_text"),
        ({"path": "a.py", "old_text": "a"}, "new_text"),
        ({"path": "", "new_text": "a"}, "path"),
        ({"path": "a" * 4_097, "new_text": "a"}, "path"),
        ({"new_text": "a"}, "path"),
        ({"path": "a.py", "new_text": 1}, "new_text"),
    ],
)
def test_a_diff_that_says_no_change_of_a_file_is_refused_with_its_field(sent: dict[str, Any], field: str) -> None:
    """A forgotten new text must never be shown as a deletion."""
    assert faults(body(preview=[{"type": "diff", **sent}])) == [("preview", 0, field)]


def test_what_is_left_out_or_null_stays_open_for_the_broker() -> None:
    absent = ("request_seq", "request_id", "tool_kind", "agent", "route", "expires_at", "ttl_s")
    for sent in (body(), body(**dict.fromkeys(absent))):
        asked = native.parse(sent)
        assert (asked.request_seq, asked.request_id, asked.tool_kind, asked.agent, asked.route) == (None,) * 5
        assert (asked.expires_at_ms, asked.ttl_ms) == (None, None)
        assert (asked.preview, asked.preview_complete, asked.supersede) == ((), True, False)


def test_unknown_fields_are_ignored_also_those_that_would_name_a_room_or_an_approver() -> None:
    sent = body(
        room="!mine", room_id="!mine", approvers=["@mallory:example.org"], callback="http://127.0.0.1/", x={"y": []}
    )
    assert native.parse(sent) == native.parse(body()).__class__(
        session_id=native.parse(body()).session_id,
        title="Run the test suite",
        options=native.parse(body()).options,
        raw=sent,
    )


@pytest.mark.parametrize(
    ("kind", "meaning", "scope", "label"),
    [
        ("allow_once", Meaning.APPROVE, Scope.ONCE, "Allow once"),
        ("allow_always", Meaning.APPROVE, Scope.ALWAYS, "Always allow"),
        ("reject_once", Meaning.REJECT, Scope.ONCE, "Reject"),
        ("reject_always", Meaning.REJECT, Scope.ALWAYS, "Never allow"),
    ],
)
def test_a_kind_gives_meaning_scope_and_where_none_was_sent_the_standard_label(
    kind: str, meaning: Meaning, scope: Scope, label: str
) -> None:
    assert options({"id": "x", "kind": kind}) == (Option(OptionId("x"), label, meaning, scope),)
    both = {"id": "x", "meaning": str(meaning), "scope": str(scope)}
    assert options(both) == options({"id": "x", "kind": kind}) == options({**both, "kind": kind})


@pytest.mark.parametrize("kind", ["Allow_once", "allow", "allow-once", "approve", " allow_once", "allow_session"])
def test_a_kind_that_is_not_exactly_known_never_approves(kind: str) -> None:
    (option,) = options({"id": "x", "kind": kind, "label": "Allow once"})
    assert (option.meaning, option.scope) == (Meaning.CHOOSE, None)


def test_an_approval_without_a_scope_keeps_none_and_is_called_by_the_widest() -> None:
    assert options({"id": "x", "meaning": "approve"}) == (Option(OptionId("x"), "Always allow", Meaning.APPROVE, None),)
    assert options({"id": "x", "meaning": "reject"})[0].label == "Reject"


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({"kind": "allow_once", "meaning": "reject"}, "meaning"),
        ({"kind": "reject_once", "meaning": "approve"}, "meaning"),
        ({"kind": "reject_once", "meaning": "choose", "label": "No"}, "meaning"),
        ({"kind": "allow_once", "scope": "always"}, "scope"),
        ({"kind": "allow_always", "meaning": "approve", "scope": "once"}, "scope"),
        ({"kind": "later", "meaning": "approve", "label": "Later"}, "meaning"),
        ({"kind": "later", "scope": "once", "label": "Later"}, "scope"),
        ({"meaning": "choose", "scope": "once", "label": "Later"}, "scope"),
        ({"meaning": "choose"}, "label"),
        ({"kind": "later"}, "label"),
        ({"meaning": "Approve"}, "meaning"),
        ({"meaning": "approve", "scope": "session"}, "scope"),
        ({"kind": "allow_once", "label": ""}, "label"),
        ({"kind": "allow_once", "label": " \t\n"}, "label"),
        ({"kind": ""}, "kind"),
        ({"kind": 1}, "kind"),
    ],
)
def test_an_option_that_contradicts_itself_or_has_no_name_is_refused(shape: dict[str, Any], field: str) -> None:
    assert faults(body(options=[{"id": "x", **shape}])) == [("options", 0, field)]


@pytest.mark.parametrize("shape", [{}, {"label": "Allow once"}, {"scope": "once"}, {"kind": None, "meaning": None}])
def test_an_option_without_kind_and_meaning_is_refused(shape: dict[str, Any]) -> None:
    assert faults(body(options=[{"id": "allow_once", **shape}])) == [("options", 0)]


def test_every_field_at_fault_is_named_at_once() -> None:
    sent = body(title=" ", expires_at="2026-02-30T10:30:00Z", options=[{"id": "x"}, {"id": "x", "kind": "allow_once"}])
    assert faults(sent) == [("title",), ("options", 0), ("options", 1, "id"), ("expires_at",)]
    assert faults(b"{}") == [("session_id",), ("title",), ("options",)]


@pytest.mark.parametrize("title", ["", " ", "\n\t", "\u3000"])
def test_a_blank_title_is_refused(title: str) -> None:
    assert faults(body(title=title)) == [("title",)]


@pytest.mark.parametrize("option_id", ["agentpod.reject", "agentpod.", "agentpod.x"])
def test_ids_that_the_bot_may_add_cannot_be_taken(option_id: str) -> None:
    assert faults(body(options=[{"id": option_id, "kind": "allow_once"}])) == [("options", 0, "id")]


def test_one_to_twenty_options_with_different_ids_are_taken() -> None:
    choices = [{"id": f"o{n}", "meaning": "choose", "label": f"Option {n}"} for n in range(21)]
    assert len(options(*choices[:20])) == 20
    assert faults(body(options=choices)) == [("options",)]
    assert faults(body(options=[])) == [("options",)]
    assert faults(body(options=[ALLOW, REJECT, ALLOW])) == [("options", 2, "id")]


def test_a_full_list_that_approves_needs_its_own_way_to_say_no() -> None:
    choices = [{"id": f"o{n}", "meaning": "choose", "label": f"Option {n}"} for n in range(18)]
    assert faults(body(options=[*choices, ALLOW, {"id": "b", "kind": "allow_always"}])) == [("options",)]
    assert len(options(*choices, ALLOW, REJECT)) == 20
    assert len(options(*choices, ALLOW)) == 19


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n",
        "\x00",
        "a\u200bb",
        "\u202eabc",
        "a\u00adb",
        "\ufe0f",
        "\u3164",
        "\U000e0041",
        "\u2028",
        "\x7f",
        "x" * 256,
    ],
)
def test_ids_that_cannot_be_shown_as_they_are_are_refused_never_escaped(text: str) -> None:
    assert faults(body(session_id=text)) == [("session_id",)]
    assert faults(body(request_id=text)) == [("request_id",)]
    assert faults(body(options=[{"id": text, "kind": "allow_once"}])) == [("options", 0, "id")]


@pytest.mark.parametrize("text", ["a b", "ü/%2F?#{}..", "🙂", ".", "x" * 255, "\u0430"])
def test_ids_are_opaque(text: str) -> None:
    asked = native.parse(body(session_id=text, request_id=text))
    assert (asked.session_id, asked.request_id) == (text, text)


def test_an_option_id_has_at_most_200_characters() -> None:
    assert options({"id": "🙂" * 200, "kind": "allow_once"})[0].option_id == "🙂" * 200
    assert faults(body(options=[{"id": "x" * 201, "kind": "allow_once"}])) == [("options", 0, "id")]


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "2026-11-07",
        "2026-11-07 10:30:00Z",
        "2026-11-07T10:30:00",
        "2026-02-30T10:30:00Z",
        "",
        "2026-11-07T10:30Z",
        "2026-11-07t10:30:00Z",
        "2026-11-07T10:30:00z",
        "2026-11-07T10:30:00+0530",
        "2026-11-07T10:30:00+05",
        "2026-11-07T10:30:00+24:00",
        "2026-11-07T10:30:00+05:60",
        "2026-11-07T24:00:00Z",
        "2026-11-07T10:60:00Z",
        "2026-11-07T10:30:60Z",
        "2026-13-07T10:30:00Z",
        "0000-11-07T10:30:00Z",
        "2026-11-07T10:30:00.Z",
        "2026-11-07T10:30:00Z\n",
        " 2026-11-07T10:30:00Z",
        "\uff12026-11-07T10:30:00Z",
        1_794_047_400_000,
    ],
)
def test_an_expiry_that_is_no_existing_rfc_3339_time_is_refused(text: object) -> None:
    assert faults(body(expires_at=text)) == [("expires_at",)]


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-07T10:30:00Z", 1_794_047_400_000),
        ("2026-11-07T16:00:00+05:30", 1_794_047_400_000),
        ("2026-11-07T00:30:00.5-10:00", 1_794_047_400_500),
        ("2026-11-07T10:30:00.1239999Z", 1_794_047_400_123),
        ("2026-11-07T10:30:00.04Z", 1_794_047_400_040),
        ("2024-02-29T00:00:00-00:00", 1_709_164_800_000),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_an_expiry_is_the_instant_that_it_names_never_a_later_one(text: str, at_ms: int) -> None:
    assert native.parse(body(expires_at=text)).expires_at_ms == at_ms


def test_a_time_to_live_is_whole_seconds_and_not_beside_an_expiry() -> None:
    assert native.parse(body(ttl_s=90)).ttl_ms == 90_000
    for wrong in (0, -1, 1.5, "90", True, 2**53):
        assert faults(body(ttl_s=wrong)) == [("ttl_s",)]
    assert faults(body(ttl_s=90, expires_at="2026-11-07T10:30:00Z")) == [("ttl_s",)]


@pytest.mark.parametrize("number", [2**53, 10**39, -(10**39), -1, 1.0, 1.5, True, "1", [1]])
def test_a_request_seq_that_a_homeserver_would_refuse_is_refused(number: object) -> None:
    assert faults(body(request_seq=number)) == [("request_seq",)]


@pytest.mark.parametrize("digits", [41, 5_000])
def test_a_request_seq_of_very_many_digits_is_refused_and_no_crash(digits: int) -> None:
    with pytest.raises(MalformedJson, match="a number is too large to be read"):
        native.parse(body(request_seq=0).replace(b'"request_seq": 0', b'"request_seq": ' + b"9" * digits))


def test_the_largest_exact_number_is_taken() -> None:
    assert native.parse(body(request_seq=2**53 - 1)).request_seq == 2**53 - 1
    assert native.parse(body(request_seq=0)).request_seq == 0


@pytest.mark.parametrize(
    ("changes", "loc"),
    [
        ({"title": 1}, ("title",)),
        ({"options": {}}, ("options",)),
        ({"options": ["allow_once"]}, ("options", 0)),
        ({"preview": "bun test"}, ("preview",)),
        ({"preview": None}, ("preview",)),
        ({"preview": [{"type": "image", "label": "x", "value": "y"}]}, ("preview", 0)),
        ({"preview": [{"type": "text", "label": "x", "value": "y"}]}, ("preview", 0, "text")),
        ({"preview": [{"type": "field", "label": 1, "value": "y"}]}, ("preview", 0, "label")),
        ({"preview": [{"type": "text", "label": "x" * 1_001, "text": "y"}]}, ("preview", 0, "label")),
        ({"preview": [{"type": "text", "label": "x", "text": "y"}] * 201}, ("preview",)),
        ({"preview_complete": None}, ("preview_complete",)),
        ({"preview_complete": 1}, ("preview_complete",)),
        ({"preview_complete": "true"}, ("preview_complete",)),
        ({"supersede": "yes"}, ("supersede",)),
        ({"agent": "x" * 256}, ("agent",)),
        ({"agent": ["x"]}, ("agent",)),
        ({"tool_kind": ""}, ("tool_kind",)),
        ({"route": ""}, ("route",)),
    ],
)
def test_a_field_of_another_type_or_size_is_refused_with_its_path(
    changes: dict[str, Any], loc: tuple[object, ...]
) -> None:
    assert faults(body(**changes)) == [loc]


def test_a_part_of_an_unknown_type_is_refused_with_the_types_that_are_known_and_not_with_what_was_sent() -> None:
    with pytest.raises(Invalid) as refused:
        native.parse(body(preview=[{"type": "hunter2", "text": "y"}]))
    assert str(refused.value) == "preview.0: is of an unknown type; known are field, text, diff"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b'{"session_id": "a",}',
        b"{'session_id': 'a'}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": [{"b": Infinity}]}',
        b'{"a": 1e400}',
        b'{"title": "a", "title": "b"}',
        b'{"x": {"a": 1, "\\u0061": 2}}',
        b'{"title": "\xff"}',
        b'{"title": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        '{"title": "a"}'.encode("utf-16"),
        b'{"title": "a\nb"}',
        b"[" * 100_000,
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": 1} {"b": 2}',
    ],
)
def test_what_is_not_one_unambiguous_json_text_is_malformed(sent: bytes) -> None:
    with pytest.raises(MalformedJson):
        native.parse(sent)


@pytest.mark.parametrize("sent", [b"[]", b"null", b'"title"', b"1", b"true"])
def test_json_that_is_no_object_is_invalid(sent: bytes) -> None:
    assert faults(sent) == [()]


@pytest.mark.parametrize(
    ("changes", "loc"),
    [
        ({"title": "a\ud800"}, ("title",)),
        ({"ignored": {"deep": ["\udfff"]}}, ("ignored", "deep", 0)),
        ({"\ud83d": 1}, ()),
        ({"preview": [{"type": "text", "label": "x", "text": "\udc00\ud800"}]}, ("preview", 0, "text")),
    ],
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(changes: dict[str, Any], loc: tuple[object, ...]) -> None:
    assert faults(body(**changes)) == [loc]


def test_a_surrogate_pair_is_the_character_that_it_encodes() -> None:
    assert b"\\ud83d\\ude42" in body(title="🙂")
    assert native.parse(body(title="🙂")).title == "🙂"


def test_an_error_never_repeats_what_was_sent() -> None:
    secret = "hunter2hunter2"
    for sent in (
        body(title=[secret]),
        body(request_seq=secret),
        body(options=[{"id": "x", "kind": "allow_once", "meaning": secret}]),
        body(preview=[{"type": secret, "label": "x", "text": "y"}]),
    ):
        with pytest.raises(Invalid) as caught:
            native.parse(sent)
        said = [str(caught.value), *(msg for _, msg in caught.value.more)]
        assert not any(secret in sentence for sentence in said)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@UNHURRIED
@given(
    st.dictionaries(st.sampled_from(["session_id", "title", "options", "preview", "expires_at", "ttl_s", "x"]), JSONS)
)
def test_any_json_is_a_request_or_an_expected_error(shape: dict[str, Any]) -> None:
    with suppress(Invalid, MalformedJson):
        native.parse(json.dumps(shape).encode())


@UNHURRIED
@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_expected_error(sent: bytes) -> None:
    with pytest.raises((Invalid, MalformedJson)):
        native.parse(sent)


@UNHURRIED
@given(st.sampled_from(["approve", "reject", "choose", None]), st.sampled_from(["once", "always", None]), st.text())
def test_only_a_known_kind_or_a_plain_meaning_ever_approves(meaning: str | None, scope: str | None, kind: str) -> None:
    shape = {"id": "x", "kind": kind, "label": "Allow once", "meaning": meaning, "scope": scope}
    try:
        (option,) = options(shape)
    except Invalid:
        return
    assert option.meaning is not Meaning.APPROVE or kind in {"allow_once", "allow_always"}


@UNHURRIED
@given(st.text(min_size=1, max_size=20))
def test_a_plain_id_survives_unchanged_and_any_other_is_refused(text: str) -> None:
    if fault_of_id(text) is None:
        assert native.parse(body(session_id=text)).session_id == text
    else:
        assert faults(body(session_id=text)) == [("session_id",)]
