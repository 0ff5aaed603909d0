from __future__ import annotations

import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.ids import Code, EventId, RequestId, UserId
from agentpod_bot.core.room import (
    Encryption,
    EncryptionOn,
    ForeignEdit,
    ForeignQuestion,
    Membered,
    Membership,
    Names,
    OwnEdit,
    OwnOther,
    OwnQuestion,
    Reacted,
    Redacted,
    Replaced,
    Said,
    Structured,
    Undecryptable,
    Unheeded,
)
from agentpod_bot.matrix.events import UNREADABLE, inviter, parse, parse_state

POD = UserId("@pod:hs.example")
OWNER = UserId("@owner:hs.example")
TS = 1_800_000_000_000
SEEN = {"event_id": EventId("$e"), "sender": OWNER, "ts": TS}
BY_POD = SEEN | {"sender": POD}


def event(content: Any, *, sender: str = OWNER, kind: Any = "m.room.message", **more: Any) -> dict[str, Any]:
    base = {"type": kind, "event_id": "$e", "sender": sender, "origin_server_ts": TS, "content": content}
    return base | more


def text(body: Any = "1", **more: Any) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body, **more}


def edit(content: dict[str, Any], target: Any = "$q") -> dict[str, Any]:
    return content | {"m.relates_to": {"rel_type": "m.replace", "event_id": target}, "m.new_content": text()}


QUESTION: dict[str, Any] = {
    "msgtype": "m.text",
    "body": "Permission needed: Run the test suite",
    "suite_event_type": "dev.agentpod.permission.v2",
    "request_id": "acps_3f0c:12",
    "code": "K7",
    "subject": {"id": "acps_3f0c:12", "digest": "ab12", "revision": 1, "expires_at": "2027-01-15T08:30:00.250Z"},
    "dev.agentpod.permission": {"schema_version": 1},
}
EXPIRES_MS = int(datetime(2027, 1, 15, 8, 30, 0, 250_000, tzinfo=UTC).timestamp() * 1000)


def seen(raw: Any) -> Any:
    return parse(raw, own=POD)


# Text.


def test_a_text_of_another_account_is_said_as_it_stands() -> None:
    assert seen(event(text(" 1 "))) == Said(**SEEN, body=" 1 ")


@pytest.mark.parametrize(
    "msgtype", ["m.notice", "m.emote", "m.image", "m.file", "m.audio", "x.y", "M.TEXT", "", None, 1, {}]
)
def test_nothing_but_a_plain_text_message_can_be_an_answer(msgtype: Any) -> None:
    assert seen(event({"msgtype": msgtype, "body": "1"})) == Unheeded(**SEEN)
    structured = {"msgtype": msgtype, "body": "1", "suite_event_type": "dev.agentpod.permission.answer.v2"}
    assert seen(event(structured)) == Unheeded(**SEEN)


@pytest.mark.parametrize("body", [None, 1, True, ["1"], {"a": "1"}])
def test_a_body_that_is_no_text_is_no_answer(body: Any) -> None:
    assert seen(event(text(body))) == Unheeded(**SEEN)


@pytest.mark.parametrize(
    "suite", ["dev.agentpod.permission.outcome.v2", "dev.agentpod.other", "dev.agentpod.", 5, None, {}, []]
)
def test_a_message_with_an_envelope_that_is_no_answer_never_falls_back_to_its_body(suite: Any) -> None:
    assert seen(event(text(suite_event_type=suite))) == Unheeded(**SEEN)


def test_an_envelope_of_somebody_else_does_not_keep_a_text_from_being_read() -> None:
    assert seen(event(text(suite_event_type="org.example.poll"))) == Said(**SEEN, body="1")


@pytest.mark.parametrize("name", ["answer.v1", "answer.v2", "decision.v1", "decision.v2"])
def test_a_structured_answer_keeps_its_fields_unchecked(name: str) -> None:
    content = text("Allow once", suite_event_type=f"dev.agentpod.permission.{name}", option_id=7)
    content["m.relates_to"] = {"rel_type": "m.reference", "event_id": "$q"}
    assert seen(event(content)) == Structured(**SEEN, fields=content, names=Names(reference=EventId("$q")))


# What a message names.


@pytest.mark.parametrize(
    ("relation", "names"),
    [
        (None, Names()),
        ({}, Names()),
        ({"m.in_reply_to": {"event_id": "$q"}}, Names(reply_to=EventId("$q"))),
        ({"m.in_reply_to": {"event_id": "$q"}, "is_falling_back": False}, Names(reply_to=EventId("$q"))),
        ({"m.in_reply_to": {"event_id": "$q"}, "is_falling_back": "true"}, Names(reply_to=EventId("$q"))),
        ({"m.in_reply_to": {"event_id": "$q"}, "is_falling_back": True}, Names()),
        (
            {"rel_type": "m.thread", "event_id": "$t", "is_falling_back": True, "m.in_reply_to": {"event_id": "$q"}},
            Names(thread=EventId("$t")),
        ),
        (
            {"rel_type": "m.thread", "event_id": "$t", "m.in_reply_to": {"event_id": "$q"}},
            Names(reply_to=EventId("$q"), thread=EventId("$t")),
        ),
        ({"rel_type": "m.reference", "event_id": "$r"}, Names(reference=EventId("$r"))),
        ({"rel_type": "org.example.new", "event_id": "$r"}, Names(reference=EventId("$r"))),
    ],
)
def test_a_message_names_what_it_replies_to_refers_to_or_is_in_a_thread_of(relation: Any, names: Names) -> None:
    assert seen(event(text(**{"m.relates_to": relation}))) == Said(**SEEN, body="1", names=names)


def test_a_real_reply_goes_before_its_thread() -> None:
    relation = {"rel_type": "m.thread", "event_id": "$t", "m.in_reply_to": {"event_id": "$q"}}
    assert seen(event(text(**{"m.relates_to": relation}))).names.named == "$q"


@pytest.mark.parametrize(
    "relation",
    [
        "$q",
        ["$q"],
        7,
        {"m.in_reply_to": "$q"},
        {"m.in_reply_to": {"event_id": 7}},
        {"m.in_reply_to": None},
        {"rel_type": "m.thread"},
        {"rel_type": "m.reference", "event_id": ""},
        {"rel_type": ["m.thread"], "event_id": None},
    ],
)
def test_a_relation_that_cannot_be_read_never_makes_a_bare_answer(relation: Any) -> None:
    assert seen(event(text(**{"m.relates_to": relation}))).names.named == UNREADABLE


# Edits.


@pytest.mark.parametrize("content", [text("2"), QUESTION, text(suite_event_type="dev.agentpod.permission.answer.v2")])
def test_an_edit_is_an_edit_whatever_else_it_carries(content: dict[str, Any]) -> None:
    assert seen(event(edit(content))) == ForeignEdit(**SEEN, target=EventId("$q"))
    own = seen(event(edit(content), sender=POD))
    assert own == OwnEdit(**BY_POD, target=EventId("$q"), closes=False)


def test_an_edit_that_is_also_a_reply_is_an_edit() -> None:
    content = edit(text())
    content["m.relates_to"]["m.in_reply_to"] = {"event_id": "$other"}
    assert seen(event(content)) == ForeignEdit(**SEEN, target=EventId("$q"))


@pytest.mark.parametrize("target", [None, 7, "", {}])
def test_an_edit_of_nothing_is_no_answer_either(target: Any) -> None:
    assert seen(event(edit(text(), target))) == Unheeded(**SEEN)
    assert seen(event(edit(text(), target), sender=POD)) == OwnOther(**BY_POD)


NEWER = {"event_id": "$n", "content": edit(text("* 1"), "$e")}
OLDER = {"event_id": "$n", "origin_server_ts": TS, "sender": OWNER}


@pytest.mark.parametrize("bundled", [NEWER, OLDER])
def test_a_message_that_comes_with_what_an_edit_made_of_it_is_no_answer(bundled: dict[str, Any]) -> None:
    """Nobody knows what was said at first: it may have been a rejection."""
    unsigned = {"m.relations": {"m.replace": bundled}}
    assert seen(event(text("1"), unsigned=unsigned)) == Unheeded(**SEEN)
    answer = text("1", suite_event_type="dev.agentpod.permission.answer.v2")
    assert seen(event(answer, unsigned=unsigned)) == Unheeded(**SEEN)


def test_a_message_that_was_edited_later_and_comes_as_it_was_sent_counts_as_it_was_sent() -> None:
    raw = event(text("3"), unsigned={"m.relations": {"m.replace": NEWER}})
    assert seen(raw) == Said(**SEEN, body="3")
    encrypted = {"event_id": "$n", "content": {"ciphertext": "…"}}
    assert seen(event(text("3"), unsigned={"m.relations": {"m.replace": encrypted}})) == Said(**SEEN, body="3")


@pytest.mark.parametrize("relations", [7, [], {"m.replace": 7}, {"m.thread": {"count": 1}}, {"m.replace": None}])
def test_other_bundled_relations_keep_no_message_from_being_read(relations: Any) -> None:
    assert seen(event(text("3"), unsigned={"m.relations": relations})) == Said(**SEEN, body="3")


def test_an_edit_that_asks_is_a_question_that_stands_as_what_it_edits() -> None:
    raw = event(text("* …", **{"m.relates_to": {"rel_type": "m.replace", "event_id": "$q"}, "m.new_content": QUESTION}))
    asked = ForeignQuestion(**SEEN, code=Code("K7"), expires_at_ms=EXPIRES_MS, stands_as=EventId("$q"))
    assert seen(raw) == asked


def test_an_own_edit_closes_only_with_an_outcome_receipt() -> None:
    content = edit(text(suite_event_type="dev.agentpod.permission.outcome.v2"))
    assert seen(event(content, sender=POD)) == OwnEdit(**BY_POD, target=EventId("$q"), closes=True)


# Questions.


def test_an_own_question_is_recognised_with_its_transaction_id() -> None:
    raw = event(QUESTION, sender=POD, unsigned={"transaction_id": "t1", "age": 3})
    assert seen(raw) == OwnQuestion(
        **BY_POD, request_id=RequestId("acps_3f0c:12"), digest="ab12", revision=1, code=Code("K7"), txn_id="t1"
    )


@pytest.mark.parametrize("unsigned", [None, {}, {"transaction_id": 5}, []])
def test_an_own_question_of_another_device_has_no_transaction_id(unsigned: Any) -> None:
    assert seen(event(QUESTION, sender=POD, unsigned=unsigned)).txn_id is None


@pytest.mark.parametrize(
    "broken", [{"request_id": 5}, {"subject": None}, {"subject": {"digest": "x", "revision": True}}]
)
def test_an_own_question_without_its_identity_is_just_something_of_ours(broken: dict[str, Any]) -> None:
    assert seen(event(QUESTION | broken, sender=POD)) == OwnOther(**BY_POD)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("m.room.message", text("1")),
        ("m.room.message", text(suite_event_type="dev.agentpod.permission.answer.v2")),
        ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "1️⃣"}}),
        ("m.room.encrypted", {}),
    ],
)
def test_what_the_bot_itself_sends_is_never_an_answer(kind: str, content: dict[str, Any]) -> None:
    assert seen(event(content, sender=POD, kind=kind)) == OwnOther(**BY_POD)


def test_a_question_of_another_account_is_open_until_it_says() -> None:
    assert seen(event(QUESTION)) == ForeignQuestion(**SEEN, code=Code("K7"), expires_at_ms=EXPIRES_MS)


@pytest.mark.parametrize("msgtype", ["m.text", "m.notice", None])
def test_a_card_alone_is_a_question_open_for_half_an_hour(msgtype: Any) -> None:
    content = {"msgtype": msgtype, "body": "1", "dev.agentpod.permission": {}}
    assert seen(event(content)) == ForeignQuestion(**SEEN, code=None, expires_at_ms=TS + 1_800_000)


def test_a_card_that_is_no_object_is_no_question() -> None:
    assert seen(event(text(**{"dev.agentpod.permission": True}))) == Said(**SEEN, body="1")


@pytest.mark.parametrize(
    "expires_at",
    [
        "soon",
        "2027-01-15",
        "2027-01-15 08:30:00Z",
        "2027-01-15T08:30:00",
        "2027-02-30T08:30:00Z",
        "2027-01-15T25:00:00Z",
        "2027-01-15T08:30:00Z ",
        "\N{ARABIC-INDIC DIGIT TWO}027-01-15T08:30:00Z",
        "0000-01-15T08:30:00Z",
        "",
        None,
        5,
    ],
)
def test_an_expiry_that_cannot_be_read_is_half_an_hour(expires_at: Any) -> None:
    content = QUESTION | {"subject": {"expires_at": expires_at}}
    assert seen(event(content)).expires_at_ms == TS + 1_800_000


def test_an_expiry_with_another_zone_is_the_same_instant() -> None:
    content = QUESTION | {"subject": {"expires_at": "2027-01-15T10:30:00.250+02:00"}}
    assert seen(event(content)).expires_at_ms == EXPIRES_MS


@pytest.mark.parametrize(
    ("code", "read"), [("k7", "K7"), ("K 7", None), ("", None), (7, None), ("K" * 17, None), ("ß7", None)]
)
def test_only_a_plain_short_code_is_taken(code: Any, read: str | None) -> None:
    assert seen(event(QUESTION | {"code": code})).code == read


# Reactions, redactions, encryption.


def test_a_reaction_is_a_key_on_an_event() -> None:
    content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "1️⃣"}}
    assert seen(event(content, kind="m.reaction")) == Reacted(**SEEN, target=EventId("$q"), key="1️⃣")


@pytest.mark.parametrize(
    "relation",
    [
        None,
        {},
        {"rel_type": "m.annotation", "event_id": "$q"},
        {"rel_type": "m.annotation", "key": "1"},
        {"rel_type": "m.annotation", "event_id": "$q", "key": 1},
        {"rel_type": "m.reference", "event_id": "$q", "key": "1"},
        {"rel_type": "m.replace", "event_id": "$q", "key": "1"},
    ],
)
def test_a_reaction_that_is_not_exactly_one_does_nothing(relation: Any) -> None:
    assert seen(event({"m.relates_to": relation}, kind="m.reaction")) == Unheeded(**SEEN)


@pytest.mark.parametrize(
    "where", [{"redacts": "$q"}, {"content": {"redacts": "$q"}}, {"redacts": "$q", "content": {"redacts": "$x"}}]
)
def test_a_redaction_names_its_target_at_the_top_or_in_the_content(where: dict[str, Any]) -> None:
    raw = event({}, kind="m.room.redaction") | where
    assert seen(raw) == Redacted(**SEEN, target=EventId("$q"))
    assert seen(raw | {"sender": POD}) == Redacted(**BY_POD, target=EventId("$q"))


def test_a_redaction_of_nothing_is_unheeded() -> None:
    assert seen(event({"redacts": 7}, kind="m.room.redaction")) == Unheeded(**SEEN)


@pytest.mark.parametrize("kind", ["m.room.message", "m.reaction", "m.room.encrypted"])
def test_a_redacted_event_is_no_answer(kind: str) -> None:
    content = text(**{"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "1"}})
    redacted = {"unsigned": {"redacted_because": {"event_id": "$r"}}}
    assert seen(event(content, kind=kind, **redacted)) == Unheeded(**SEEN)
    assert seen(event(QUESTION, sender=POD, **redacted)) == OwnOther(**BY_POD)


def test_an_encrypted_event_still_says_what_it_is_about() -> None:
    content = {"ciphertext": "…", "m.relates_to": {"m.in_reply_to": {"event_id": "$q"}}}
    assert seen(event(content, kind="m.room.encrypted")) == Undecryptable(**SEEN, names=Names(reply_to=EventId("$q")))


def test_an_encrypted_edit_is_an_edit() -> None:
    assert seen(event(edit({}), kind="m.room.encrypted")) == ForeignEdit(**SEEN, target=EventId("$q"))


# State.


@pytest.mark.parametrize("membership", list(Membership))
def test_a_membership_is_about_the_account_of_its_state_key(membership: Membership) -> None:
    raw = event({"membership": membership.value}, kind="m.room.member", state_key="@x:hs.example")
    expected = Membered(**SEEN, user_id=UserId("@x:hs.example"), membership=membership)
    assert seen(raw) == expected
    assert parse_state(raw) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("m.room.encryption", partial(EncryptionOn, encryption=Encryption(is_megolm=False))),
        ("m.room.tombstone", Replaced),
    ],
)
def test_encryption_and_replacement_hold_whatever_their_content(kind: str, value: Any) -> None:
    for raw in (
        event({}, kind=kind, state_key=""),
        event(None, kind=kind, state_key="", unsigned={"redacted_because": {}}),
    ):
        assert seen(raw) == value(**SEEN)
        assert parse_state(raw) == value(**SEEN)
        assert seen(raw | {"sender": POD}) == value(**BY_POD)


@pytest.mark.parametrize(
    ("kind", "content", "state_key"),
    [
        ("m.room.member", {"membership": "join"}, 7),
        ("m.room.member", {"membership": "JOIN"}, "@x:hs.example"),
        ("m.room.member", {"membership": ["join"]}, "@x:hs.example"),
        ("m.room.encryption", {}, "other"),
        ("m.room.tombstone", {}, None),
    ],
)
def test_broken_state_says_nothing(kind: str, content: Any, state_key: Any) -> None:
    raw = event(content, kind=kind, state_key=state_key)
    assert seen(raw) == Unheeded(**SEEN)
    assert parse_state(raw) is None


@pytest.mark.parametrize("kind", ["m.room.member", "m.room.encryption", "m.room.tombstone"])
def test_a_state_type_without_a_state_key_is_no_state(kind: str) -> None:
    raw = event({"membership": "join"}, kind=kind)
    assert seen(raw) == Unheeded(**SEEN)
    assert parse_state(raw) is None


@pytest.mark.parametrize("state_key", ["", "x", None])
def test_a_message_with_a_state_key_is_no_message(state_key: Any) -> None:
    for kind, content in [("m.room.message", text()), ("m.room.message", QUESTION), ("m.reaction", {})]:
        assert seen(event(content, kind=kind, state_key=state_key)) == Unheeded(**SEEN)


# Broken events.


@pytest.mark.parametrize("ts", [None, "1", 1.5, True, -1, 2**53, {}])
def test_a_message_without_a_usable_time_is_no_answer(ts: Any) -> None:
    unheeded = Unheeded(**SEEN | {"ts": 0})
    assert seen(event(text(), origin_server_ts=ts)) == unheeded


def test_a_broken_time_does_not_hide_that_somebody_left() -> None:
    raw = event({"membership": "ban"}, kind="m.room.member", state_key=OWNER, origin_server_ts=-5)
    assert seen(raw) == Membered(**SEEN | {"ts": 0}, user_id=OWNER, membership=Membership.BAN)


@pytest.mark.parametrize("field", ["event_id", "sender"])
@pytest.mark.parametrize("value", [None, 7, "", "x" * 256, "a\nb", "a\x00b", "\ud800"])
def test_an_event_without_usable_ids_is_nothing(field: str, value: Any) -> None:
    assert seen(event(text()) | {field: value}) is None


@pytest.mark.parametrize("kind", [None, 7, {}, "m.room.name", "M.ROOM.MESSAGE", "m.room.message "])
def test_an_unknown_type_is_unheeded(kind: Any) -> None:
    assert seen(event(text(), kind=kind)) == Unheeded(**SEEN)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TOP = ("type", "event_id", "sender", "origin_server_ts", "state_key", "redacts", "unsigned", "content")
INSIDE = ("msgtype", "body", "suite_event_type", "m.relates_to", "subject", "code", "membership")
PATHS = [*((key,) for key in TOP), *(("content", key) for key in (*INSIDE, "dev.agentpod.permission"))]
SAMPLES = [
    event(text()),
    event(text(suite_event_type="dev.agentpod.permission.answer.v2")),
    event(QUESTION),
    event(QUESTION, sender=POD),
    event(edit(text()), sender=POD),
    event({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$q", "key": "1"}}, kind="m.reaction"),
    event({"membership": "join"}, kind="m.room.member", state_key=POD),
    event({}, kind="m.room.redaction", redacts="$q"),
    event({}, kind="m.room.encrypted"),
]


@st.composite
def bent(draw: st.DrawFn) -> Any:
    raw = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
        *way, last = path
        place: Any = raw
        for step in way:
            place = place[step] if isinstance(place.get(step), dict) else {}
        place[last] = draw(JSON)
    return raw


@given(raw=bent() | JSON)
def test_no_json_at_all_raises_or_passes_for_an_answer(raw: Any) -> None:
    parse_state(raw)
    inviter([raw], own=POD)
    inviter(raw, own=POD)
    value = seen(raw)
    if isinstance(value, Said | Structured | Reacted):
        assert raw["type"] == ("m.reaction" if isinstance(value, Reacted) else "m.room.message")
        assert raw["sender"] == value.sender != POD
        assert "state_key" not in raw
        assert isinstance(raw["origin_server_ts"], int)
        if not isinstance(value, Reacted):
            assert raw["content"]["msgtype"] == "m.text"
            relation = raw["content"].get("m.relates_to")
            assert not (isinstance(relation, dict) and relation.get("rel_type") == "m.replace")


# Invitations.


def test_an_inviter_is_the_sender_of_the_bots_own_invitation() -> None:
    other = {
        "type": "m.room.member",
        "state_key": OWNER,
        "sender": "@x:hs.example",
        "content": {"membership": "invite"},
    }
    own = other | {"state_key": POD, "sender": OWNER}
    assert inviter([None, {}, other, own], own=POD) == OWNER
    assert inviter([other, own | {"content": {"membership": "join"}}, own | {"sender": None}], own=POD) is None
