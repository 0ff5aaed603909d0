"""Stores of every schema that there was, as files: what an upgrade finds on somebody's disk.

`python -m tests.stored_stores` makes the file of the newest schema and what is to be read
in it. Once a schema is released, its file never changes again, and its migration neither;
the text beside it does, where a later version reads more out of the same file.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import asdict, replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import ClientName, EventId, OptionId, RequestId, RoomId, RouteName, Row, TxnId, WebhookId
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import Attachment, Claim, Copy, Hold, Outcome, Progress, Via, Vote
from agentpod_bot.core.room import Device, Undecrypted, UnreadNotice
from agentpod_bot.core.upgrades import Successor, Tombstone
from agentpod_bot.store.database import open_store
from agentpod_bot.store.schema import known_schemas
from tests.unit.store.examples import (
    ALLOW,
    BOT,
    LAPTOP,
    OFFERED,
    OTHER,
    OTHER_BOT,
    OTHER_ROOM,
    OWNER,
    ROOM,
    T0,
    audit_line,
    effect,
    ended,
    foreign,
    insert_closed,
    insert_pending,
    question,
    selected,
)

if TYPE_CHECKING:
    from agentpod_bot.core.model import Closing, Question
    from agentpod_bot.ports import Tx

FOLDER = Path(__file__).parent / "golden" / "stores"
SMALL_PAGE = 1024
CI = ClientName("ci")
NEXT_ROOM = RoomId("!next")
ENCRYPTED_FILE = {
    "file": {"url": "mxc://hs.example/copy", "key": {"k": "secret"}, "iv": "iv", "hashes": {"sha256": "h"}}
}


def fill(tx: Tx) -> None:
    """Rows of every kind, in every state."""
    numbers = count(1)
    queued = tx.insert(question(next(numbers)))
    pending = insert_pending(tx, next(numbers), requester=OWNER, masked=True, agent="hermes", tool_kind=None)
    tx.show(pending.row, EventId("$q2"), T0 + 1)
    for sender in (OWNER, OTHER_BOT):
        given = EventId(f"$v{sender}")
        allow = OptionId(ALLOW.option_id)
        vote = Vote(sender=sender, option_id=allow, event_id=given, ts=T0, at_ms=T0, room_id=ROOM)
        tx.vote(pending.row, replace(vote, device=Device(sender, "PHONE", "key")) if sender == OWNER else vote)
    endings: list[Closing] = [
        ended(outcome, reason="why\x00") for outcome in Outcome if outcome is not Outcome.SELECTED
    ]
    endings += [selected(via=via) for via in Via]
    endings.append(selected(voters=(OWNER, OTHER_BOT), comment=None))
    claim = Claim(option_id=OTHER.option_id, by="somebody \ud800")
    endings.append(ended(Outcome.ANSWERED_ELSEWHERE, claim=claim))
    closed = [insert_closed(tx, next(numbers), ending) for ending in endings]
    tx.show_closed(closed[0].row, T0 + 3)
    tx.deliver(closed[1].row, T0 + 4)
    tx.give_up(closed[2].row)
    decided = next(each for each in closed if each.closing is not None and each.closing.outcome is Outcome.SELECTED)
    progress = Progress(next_index=2, completed=(0, 1), failed_index=None, failure_reason="no\x00", status="running")
    tx.progress(decided.row, progress)
    for attachment in Attachment:
        stored = tx.insert(question(next(numbers), client=CI))
        tx.attach(stored.row, attachment, file={"url": f"mxc://hs.example/{attachment.value}"})
    held = tx.insert(question(next(numbers), harness="claude-code", hold=Hold("claude-code:main:aa")))
    copied(tx, pending.row, held.row)
    first = insert_closed(tx, number := next(numbers), ended(Outcome.SUPERSEDED))
    tx.insert(question(number, revision=first.key.revision + 1))
    moved(tx, insert_pending(tx, next(numbers)))
    for priority in Priority:
        tx.enqueue(effect(f"effect:{priority.value}", row=queued.row, priority=priority, txn=f"txn-{priority.value}"))
    tx.enqueue(effect("unrendered", row=pending.row, content=None))
    for name in ("sent", "abandoned", "postponed"):
        tx.enqueue(effect(name, room_id=OTHER_ROOM))
    for name in ("sent", "abandoned", "postponed"):
        begun = tx.begin(OTHER_ROOM, T0)
        assert begun is not None
        match name:
            case "sent":
                tx.sent(begun.effect_id, EventId("$sent"), T0 + 5)
            case "abandoned":
                tx.abandon(begun.effect_id, "M_FORBIDDEN \ud800")
            case _:
                tx.postpone(begun.effect_id, T0 + 60_000)
    synced(tx)
    tx.touch(T0)
    tx.call_back(decided, WebhookId("msg_0123"), T0 + 6)
    recorded(tx, queued, decided)


def synced(tx: Tx) -> None:
    """What timelines have shown."""
    for event_id, closed_ts in (("$theirs", None), ("$over", T0 + 9)):
        tx.keep_foreign(foreign(event_id, code=None if closed_ts else foreign().code))
        if closed_ts is not None:
            tx.close_foreign(EventId(event_id), OTHER_BOT, closed_ts)
    tx.mark_seen(ROOM, EventId("$one"), T0)
    tx.mark_seen(ROOM, EventId("$two"), T0 + 1)
    tx.take_ciphertext(ROOM, "0123")
    raw = {"type": "m.room.encrypted", "content": {"session_id": "session", "ciphertext": "\x00\ud800"}}
    dark = Undecrypted(event_id=EventId("$dark"), room_id=ROOM, session_id="session", first_seen_ms=T0, event=raw)
    told = replace(
        dark, event_id=EventId("$told"), sender_level=50, notice=UnreadNotice(TxnId("unread"), {"body": "\x00\ud800"})
    )
    for kept in (dark, told):
        tx.keep_undecrypted(kept, at_most=2)
    tx.move(BOT, "s72594_4483_1934")
    tx.mark_encrypted(ROOM, judged=False)
    tx.mark_encrypted(OTHER_ROOM, judged=True)


def recorded(tx: Tx, queued: Question, decided: Question) -> None:
    """Lines of the audit, after one that was forgotten."""
    tx.audit(audit_line(at_ms=T0 - 1))
    tx.audit(audit_line("asked", row=queued.row, client=LAPTOP, request_id=RequestId("acps_3f0c:1"), revision=1))
    tx.audit(
        audit_line(
            "selected",
            row=decided.row,
            digest=decided.asked.digest,
            option_id=ALLOW.option_id,
            meaning=ALLOW.meaning,
            scope=ALLOW.scope,
        )
    )
    tx.audit(audit_line("set_aside", room_id=ROOM, sender=OWNER, event_id=EventId("$odd"), detail="RuntimeError"))
    tx.prune_audit(T0)


def copied(tx: Tx, *rows: Row) -> None:
    """Copies of questions; the first is shown, ended and withdrawn."""
    for row in rows:
        tx.add_copy(
            row, Copy(route=RouteName("boss"), room_id=OTHER_ROOM, asked_at_ms=T0, offered=OFFERED, file=ENCRYPTED_FILE)
        )
    tx.post_copy(rows[0], EventId("$copy"))
    tx.show_copy(rows[0], EventId("$copy"), T0 + 2)
    tx.show_copy_closed(rows[0], T0 + 4)
    tx.withdraw_copy(rows[0], T0 + 5)


def moved(tx: Tx, stored: Question) -> None:
    """A question that was asked again in the room that replaced its own."""
    tx.mark_replaced(ROOM, Tombstone(Successor(NEXT_ROOM, OWNER), encrypted=True))
    tx.keep_move(stored.asked.route, ROOM, NEXT_ROOM, T0 + 7)
    tx.leave(stored, NEXT_ROOM, Attachment.NONE, T0 + 7)
    tx.post_left(stored.row, ROOM, EventId("$left"), T0 + 8)


def readout(tx: Tx) -> dict[str, Any]:
    """All that the program can read out of a store, as JSON."""
    rows = [stored for number in range(1, 100) if (stored := tx.question(Row(number))) is not None]
    read: dict[str, Any] = {
        "questions": rows,
        "open": [stored.row for stored in tx.open_questions()],
        "votes": {stored.row: tx.votes(stored.row) for stored in rows if tx.votes(stored.row)},
        "audit": {stored.row: list(tx.audited(stored.row)) for stored in rows if list(tx.audited(stored.row))},
        "page": tx.page(LAPTOP, status=None, session_id=None, limit=100, before=None),
        "backlog": tx.backlog(),
        "due": dict(tx.rooms_due()),
        "effects": {
            name: found
            for name in [f"effect:{priority.value}" for priority in Priority]
            if (found := tx.unsent(Row(1), ROOM, name)) is not None
        },
        "unrendered": tx.unsent(Row(2), ROOM, "unrendered"),
        "postponed": tx.effect_of_txn(TxnId(f"None-{OTHER_ROOM}-postponed")),
        "sent": tx.about(EventId("$sent"), OTHER_ROOM),
        "foreign": tx.foreign(ROOM, since_ms=T0),
        "seen": [tx.seen(EventId(name)) for name in ("$one", "$two", "$three")],
        "newest_seen": tx.newest_seen(ROOM),
        "replaced": [tx.is_replaced(room_id) for room_id in (ROOM, NEXT_ROOM)],
        "tombstones": [tx.tombstone(room_id) for room_id in (ROOM, NEXT_ROOM)],
        "moves": [[*left, entered] for left, entered in tx.moves().items()],
        "left": tx.left_in(ROOM, since_ms=T0),
        "undecrypted": tx.undecrypted(None, since_ms=0),
        "position": tx.position(BOT),
        "encrypted": [
            tx.is_encrypted(room_id, judged=judged) for room_id in (ROOM, OTHER_ROOM) for judged in (False, True)
        ],
    }
    plain: dict[str, Any] = json.loads(json.dumps(_plain(read), sort_keys=True))
    return plain


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case bytes():
            return value.hex()
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case frozenset():
            return sorted(_plain(inner) for inner in value)
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case str() | int() | float() | None:
            return value
        case _:
            return {"is": type(value).__name__, **_plain(asdict(value))}


async def read_from(path: Path) -> dict[str, Any]:
    """Open a store, migrating it where it is old, and read it."""
    store = open_store(path)
    try:
        return await store.run(readout)
    finally:
        await store.close()


async def make(path: Path) -> None:
    """Make a full store, as one small file."""
    store = open_store(path)
    await store.run(fill)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=DELETE", f"PRAGMA page_size={SMALL_PAGE}", "VACUUM"):
            connection.execute(statement)


def main() -> None:
    """Make the newest schema's file anew, and what is read in each."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "agentpod.db"
        asyncio.run(make(made))
        (FOLDER / f"{known_schemas()[0]}.db").write_bytes(made.read_bytes())
        for schema in known_schemas():
            copy = Path(folder) / f"{schema}.db"
            copy.write_bytes((FOLDER / copy.name).read_bytes())
            text = json.dumps(asyncio.run(read_from(copy)), indent=1, sort_keys=True)
            (FOLDER / f"{schema}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
