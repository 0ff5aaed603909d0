"""One event of the client-server API as a value of `core.room`: what it is, not whether it counts.

Any room member can send any JSON, so nothing of an event is trusted to be there or to
have its type, and nothing raises. What is not surely a message, a structured answer or
a reaction of another account becomes something that never is an answer.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

from agentpod_bot.core.ids import Code, EventId, RequestId, RoomId, UserId
from agentpod_bot.core.room import (
    Created,
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
    Powered,
    Reacted,
    Redacted,
    Replaced,
    RoomEvent,
    Said,
    StateEvent,
    Structured,
    Undecryptable,
    Unheeded,
)
from agentpod_bot.core.trust import FOR_EVERY_DEVICE
from agentpod_bot.matrix.powers import creators_of, powers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE = "m.room.message"
REACTION = "m.reaction"
ENCRYPTED = "m.room.encrypted"
REDACTION = "m.room.redaction"
MEMBER = "m.room.member"
ENCRYPTION = "m.room.encryption"
TOMBSTONE = "m.room.tombstone"
POWER_LEVELS = "m.room.power_levels"
CREATE = "m.room.create"
VERIFICATION = "m.key.verification.*"
"""Every type of the events with which two devices verify each other in a room."""
VERIFICATION_REQUEST = "m.key.verification.request"
"""The `msgtype` of the message that begins it."""

STATE_TYPES = (MEMBER, ENCRYPTION, TOMBSTONE, POWER_LEVELS, CREATE)
TIMELINE_TYPES = (MESSAGE, REACTION, ENCRYPTED, REDACTION, *STATE_TYPES)

QUESTION_V2 = "dev.agentpod.permission.v2"
CARD_V1 = "dev.agentpod.permission"
OUTCOME_V2 = "dev.agentpod.permission.outcome.v2"
ANSWERS = frozenset(
    {
        "dev.agentpod.permission.answer.v1",
        "dev.agentpod.permission.answer.v2",
        "dev.agentpod.permission.decision.v1",
        "dev.agentpod.permission.decision.v2",
    }
)
OUR_NAMESPACE = "dev.agentpod."

CARD_LIFE_MS = 30 * 60 * 1000
"""How long a question of another account counts as open where it does not say."""

UNREADABLE = EventId("?")
"""Named by a relation that cannot be read: no event has this id, so no such message is a bare one."""

ID_LIMIT = 255  # https://spec.matrix.org/latest/appendices/#common-identifier-format
LARGEST_TS = 2**53 - 1  # the largest integer of Matrix's canonical JSON

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_CODE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9]{2,4}")  # a letter and a digit: never an answer itself


def parse(event: object, *, own: UserId) -> RoomEvent | None:
    """What a timeline event is, to the account `own`; None where it has no usable id or sender."""
    if not isinstance(event, dict):
        return None
    event_id, sender, ts = (
        identifier(event.get("event_id")),
        identifier(event.get("sender")),
        _ts(event.get("origin_server_ts")),
    )
    if event_id is None or sender is None:
        return None
    seen = _Seen(EventId(event_id), UserId(sender), ts or 0)
    kind, content = event.get("type"), _object(event.get("content"))
    # What these say does not depend on when, so a broken time never hides a leave or a redaction.
    if kind == REDACTION and "state_key" not in event:
        return _redaction(seen, event, content)
    if kind in STATE_TYPES and "state_key" in event:
        return _state(seen, event, content) or Unheeded(**seen.fields)
    if seen.sender == own:
        return _own(seen, event, content)
    if ts is None or "state_key" in event or _is_redacted(event):
        return Unheeded(**seen.fields)
    found = _foreign(seen, kind, content)
    if isinstance(found, Said | Structured) and _is_edited_in_place(event, content):
        return Unheeded(**seen.fields)
    return found


def parse_state(event: object) -> StateEvent | None:
    """What an event of a response's `state` is; None for all that says nothing to the bot."""
    if not isinstance(event, dict) or "state_key" not in event:
        return None
    event_id, sender = identifier(event.get("event_id")), identifier(event.get("sender"))
    if event_id is None or sender is None:
        return None
    seen = _Seen(EventId(event_id), UserId(sender), _ts(event.get("origin_server_ts")) or 0)
    return _state(seen, event, _object(event.get("content")))


def is_verification(event: object) -> bool:
    """Whether an event, in clear, is of two devices that verify each other."""
    if not isinstance(event, dict) or "state_key" in event:
        return False
    kind, content = event.get("type"), _object(event.get("content"))
    asks = kind == MESSAGE and content.get("msgtype") == VERIFICATION_REQUEST
    return asks or (isinstance(kind, str) and kind.startswith(VERIFICATION.rstrip("*")))


def is_for_every_device(event: object) -> bool:
    """Whether an event of ours, in clear, is for unverified devices too: it verifies them, or says that they must be.

    None of it may be worth keeping from anybody in the room.
    """
    if is_verification(event):
        return True
    return isinstance(event, dict) and _object(event.get("content")).get(FOR_EVERY_DEVICE) is True


def inviter(state: object, *, own: UserId) -> UserId | None:
    """Who invited `own`, by the stripped state of an invitation; None where it does not say."""
    for event in state if isinstance(state, list) else []:
        if not isinstance(event, dict) or event.get("type") != MEMBER or event.get("state_key") != own:
            continue
        sender = identifier(event.get("sender"))
        if sender is not None and _object(event.get("content")).get("membership") == Membership.INVITE:
            return UserId(sender)
    return None


def event_id_of(event: object) -> EventId | None:
    """The id of a raw event, where it has a usable one."""
    found = identifier(event.get("event_id")) if isinstance(event, dict) else None
    return None if found is None else EventId(found)


def ts_of(event: object) -> int | None:
    """The `origin_server_ts` of a raw event in milliseconds, where it has a usable one."""
    return _ts(event.get("origin_server_ts")) if isinstance(event, dict) else None


class _Seen:
    """The three fields that every value has, ready to be passed on."""

    __slots__ = ("event_id", "sender", "ts")

    def __init__(self, event_id: EventId, sender: UserId, ts: int) -> None:
        self.event_id = event_id
        self.sender = sender
        self.ts = ts

    @property
    def fields(self) -> dict[str, Any]:
        return {"event_id": self.event_id, "sender": self.sender, "ts": self.ts}


def _own(seen: _Seen, event: Mapping[str, Any], content: Mapping[str, Any]) -> RoomEvent:
    if event.get("type") != MESSAGE or "state_key" in event or _is_redacted(event):
        return OwnOther(**seen.fields)
    if _is_edit(content):
        target = _edited(content)
        if target is None:
            return OwnOther(**seen.fields)
        return OwnEdit(**seen.fields, target=target, closes=content.get("suite_event_type") == OUTCOME_V2)
    subject = _object(content.get("subject"))
    request_id, digest, revision = content.get("request_id"), subject.get("digest"), subject.get("revision")
    if (
        content.get("suite_event_type") == QUESTION_V2
        and isinstance(request_id, str)
        and isinstance(digest, str)
        and _is_int(revision)
    ):
        txn_id = _object(event.get("unsigned")).get("transaction_id")
        return OwnQuestion(
            **seen.fields,
            request_id=RequestId(request_id),
            digest=digest,
            revision=revision,
            code=_code(content.get("code")),
            txn_id=txn_id if isinstance(txn_id, str) else None,
        )
    return OwnOther(**seen.fields)


def _foreign(seen: _Seen, kind: object, content: Mapping[str, Any]) -> RoomEvent:
    if kind in (MESSAGE, ENCRYPTED) and _is_edit(content):
        target, new = _edited(content), _object(content.get("m.new_content"))
        if target is None:
            return Unheeded(**seen.fields)
        # One that asks, as an edit that shows votes still does, ends nothing.
        return _question(seen, new, target) if _asks(new) else ForeignEdit(**seen.fields, target=target)
    match kind:
        case "m.room.message":
            return _message(seen, content)
        case "m.reaction":
            return _reaction(seen, content)
        case "m.room.encrypted":
            return Undecryptable(**seen.fields, names=_names(content))
        case _:
            return Unheeded(**seen.fields)


def _message(seen: _Seen, content: Mapping[str, Any]) -> RoomEvent:
    if _asks(content):
        return _question(seen, content)
    suite = content.get("suite_event_type")
    body = content.get("body")
    if content.get("msgtype") != "m.text":
        return Unheeded(**seen.fields)
    if isinstance(suite, str) and suite in ANSWERS:
        return Structured(**seen.fields, fields=content, names=_names(content))
    # A broken or unknown envelope was written by a program: its body is no person's answer.
    if "suite_event_type" in content and (not isinstance(suite, str) or suite.startswith(OUR_NAMESPACE)):
        return Unheeded(**seen.fields)
    if not isinstance(body, str):
        return Unheeded(**seen.fields)
    return Said(**seen.fields, body=body, names=_names(content))


def _question(seen: _Seen, content: Mapping[str, Any], stands_as: EventId | None = None) -> ForeignQuestion:
    is_v2 = content.get("suite_event_type") == QUESTION_V2
    expires_at_ms = _instant_ms(_object(content.get("subject")).get("expires_at")) if is_v2 else None
    return ForeignQuestion(
        **seen.fields,
        code=_code(content.get("code")),
        expires_at_ms=seen.ts + CARD_LIFE_MS if expires_at_ms is None else expires_at_ms,
        stands_as=stands_as,
    )


def _asks(content: Mapping[str, Any]) -> bool:
    """Whether a content is a question of another account."""
    return content.get("suite_event_type") == QUESTION_V2 or isinstance(content.get(CARD_V1), dict)


def _reaction(seen: _Seen, content: Mapping[str, Any]) -> RoomEvent:
    relation = _object(content.get("m.relates_to"))
    target, key = identifier(relation.get("event_id")), relation.get("key")
    if relation.get("rel_type") != "m.annotation" or target is None or not isinstance(key, str):
        return Unheeded(**seen.fields)
    return Reacted(**seen.fields, target=EventId(target), key=key)


def _redaction(seen: _Seen, event: Mapping[str, Any], content: Mapping[str, Any]) -> RoomEvent:
    # Before room version 11 only the top level counts and the content is the sender's own;
    # since then homeservers copy the content's value to the top level. So the top goes first.
    target = identifier(event.get("redacts")) or identifier(content.get("redacts"))
    return Unheeded(**seen.fields) if target is None else Redacted(**seen.fields, target=EventId(target))


def _state(seen: _Seen, event: Mapping[str, Any], content: Mapping[str, Any]) -> StateEvent | None:
    state_key = event.get("state_key")
    match event.get("type"):
        case "m.room.member":
            user_id, membership = identifier(state_key), content.get("membership")
            if user_id is None or not isinstance(membership, str) or membership not in set(Membership):
                return None
            return Membered(**seen.fields, user_id=UserId(user_id), membership=Membership(membership))
        case "m.room.encryption" if state_key == "":
            return EncryptionOn(
                **seen.fields, encryption=encryption_of(content)
            )  # whatever it holds: clear text is over
        case "m.room.tombstone" if state_key == "":
            named = identifier(content.get("replacement_room"))
            return Replaced(**seen.fields, successor=None if named is None else RoomId(named))
        case "m.room.power_levels" if state_key == "":
            replaced = _object(event.get("unsigned")).get("prev_content")
            before = powers_of(replaced) if isinstance(replaced, dict) else None
            return Powered(**seen.fields, powers=powers_of(content), before=before)
        case "m.room.create" if state_key == "":
            return Created(**seen.fields, creators=creators_of(content, seen.sender))
        case _:
            return None


def encryption_of(content: Mapping[str, Any]) -> Encryption:
    """How a room wants to be encrypted, by the content of its `m.room.encryption`."""
    usual = Encryption()
    period_ms, messages = content.get("rotation_period_ms"), content.get("rotation_period_msgs")
    return Encryption(
        is_megolm=content.get("algorithm") == "m.megolm.v1.aes-sha2",
        rotation_ms=period_ms if _is_int(period_ms) and period_ms > 0 else usual.rotation_ms,
        rotation_messages=messages if _is_int(messages) and messages > 0 else usual.rotation_messages,
    )


def _names(content: Mapping[str, Any]) -> Names:
    """What a message names. Where a relation is there but cannot be read, `UNREADABLE`.

    https://spec.matrix.org/latest/client-server-api/#fallback-for-unthreaded-clients
    """
    relation = content.get("m.relates_to")
    if relation is None:
        return Names()
    if not isinstance(relation, dict):
        return Names(reference=UNREADABLE)
    reply_to: EventId | None = None
    if "m.in_reply_to" in relation and relation.get("is_falling_back") is not True:
        reply_to = _target(_object(relation["m.in_reply_to"]))
    match relation.get("rel_type"):
        case None if "event_id" not in relation:
            return Names(reply_to=reply_to)
        case "m.thread":
            return Names(reply_to=reply_to, thread=_target(relation))
        case _:  # a relation that is not known here names its event all the same
            return Names(reply_to=reply_to, reference=_target(relation))


def _target(relation: Mapping[str, Any]) -> EventId:
    found = identifier(relation.get("event_id"))
    return UNREADABLE if found is None else EventId(found)


def _is_edit(content: Mapping[str, Any]) -> bool:
    return _object(content.get("m.relates_to")).get("rel_type") == "m.replace"


def _edited(content: Mapping[str, Any]) -> EventId | None:
    found = identifier(_object(content.get("m.relates_to")).get("event_id"))
    return None if found is None else EventId(found)


def _is_edited_in_place(event: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Whether a message comes with what an edit made of it: then nobody knows what was said; an edit decides nothing.

    Until version 1.6 of the specification servers gave an event so, and with it less than the
    whole edit; since then they give both as they were sent. An encrypted edit replaces nothing.
    https://spec.matrix.org/latest/client-server-api/#server-side-aggregation-of-mreplace-relationships
    """
    edit = _object(_object(event.get("unsigned")).get("m.relations")).get("m.replace")
    if not isinstance(edit, dict):
        return False
    if not isinstance(edit.get("content"), dict):
        return True
    new = edit["content"].get("m.new_content")
    return isinstance(new, dict) and all(content.get(name) == value for name, value in new.items())


def _is_redacted(event: Mapping[str, Any]) -> bool:
    return _object(event.get("unsigned")).get("redacted_because") is not None


def _code(value: object) -> Code | None:
    return Code(value.upper()) if isinstance(value, str) and _CODE.fullmatch(value) else None


def _instant_ms(value: object) -> int | None:
    """UTC milliseconds of an RFC 3339 time with its zone; None for anything else."""
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        return None
    try:
        return (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):  # no such day, hour or zone
        return None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_TS


def _ts(value: object) -> int | None:
    return value if _is_int(value) and value >= 0 else None


def identifier(value: object) -> str | None:
    """An identifier that can be kept: text of 1 to 255 characters, all of them plain."""
    if isinstance(value, str) and 0 < len(value) <= ID_LIMIT and value.isprintable():
        return value
    return None
