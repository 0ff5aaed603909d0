from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.ids import UserId
from agentpod_bot.core.room import Device, ForeignEdit, Origin, Said, Undecryptable, Unheeded
from agentpod_bot.matrix.opened import NoKey, Opened, Unreadable, parse_opened

POD = UserId("@pod:hs.example")
PHONE = Device(UserId("@owner:hs.example"), "PHONE", "key")
SEALED = {
    "event_id": "$e",
    "sender": "@owner:hs.example",
    "type": "m.room.encrypted",
    "origin_server_ts": 7,
    "content": {"algorithm": "m.megolm.v1.aes-sha2", "m.relates_to": {"m.in_reply_to": {"event_id": "$q"}}},
}


def opened(kind: str, content: dict[str, Any], **more: Any) -> Any:
    clear = SEALED | {"type": kind, "content": content} | more
    return parse_opened(SEALED, Opened(event=clear, origin=Origin.DEVICE, device=PHONE, ciphertext="c1"), own=POD)


def test_what_was_said_encrypted_says_how_it_came() -> None:
    said = opened("m.room.message", {"msgtype": "m.text", "body": "1"})
    assert isinstance(said, Said)
    assert (said.body, said.origin, said.device, said.ciphertext) == ("1", Origin.DEVICE, PHONE, "c1")


@pytest.mark.parametrize(
    ("kind", "content", "more"),
    [
        ("m.room.redaction", {"redacts": "$q"}, {"redacts": "$q"}),
        ("m.room.member", {"membership": "leave"}, {"state_key": "@owner:hs.example"}),
        ("m.room.encryption", {}, {"state_key": ""}),
        ("m.room.tombstone", {}, {"state_key": ""}),
        ("m.room.encrypted", {}, {}),
        ("org.example.other", {}, {}),
    ],
)
def test_inside_a_ciphertext_nothing_but_messages_and_reactions_means_anything(
    kind: str, content: dict[str, Any], more: dict[str, Any]
) -> None:
    assert isinstance(opened(kind, content, **more), Unheeded)


@pytest.mark.parametrize(
    "relation", [None, {}, 7, {"rel_type": "m.thread", "event_id": "$q"}, {"m.in_reply_to": {"event_id": "$q"}}]
)
def test_an_edit_that_lost_its_relation_is_no_message(relation: object) -> None:
    content = {"msgtype": "m.text", "body": "* 1", "m.new_content": {"msgtype": "m.text", "body": "1"}}
    assert isinstance(opened("m.room.message", content | {"m.relates_to": relation}), Unheeded)
    assert isinstance(opened("m.room.message", content), Unheeded)
    whole = content | {"m.relates_to": {"rel_type": "m.replace", "event_id": "$q"}}
    assert isinstance(opened("m.room.message", whole), ForeignEdit)


def test_what_lacks_its_key_is_kept_whole_and_what_never_can_be_read_is_not() -> None:
    lacking = parse_opened(SEALED, NoKey("s"), own=POD)
    assert isinstance(lacking, Undecryptable)
    assert (lacking.session_id, lacking.event, lacking.names.reply_to) == ("s", SEALED, "$q")
    never = parse_opened(SEALED, Unreadable(), own=POD)
    assert isinstance(never, Undecryptable)
    assert (never.session_id, never.event) == (None, None)
