"""The tables. Every change here needs a migration beside it; a test compares the two.

The types are those that SQLite and PostgreSQL share: times are UTC milliseconds in 64
bits, bytes from outside are bytes. A text that an agent or a person wrote is stored as
a JSON string, because PostgreSQL's text refuses U+0000 and UTF-8 has no lone surrogates;
escaped in JSON both come back as they were.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)

from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import Attachment, Outcome, Status, Via

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""Type of a number that the database gives: only INTEGER is SQLite's own row number."""
DOCUMENT = JSON(none_as_null=True)
OUTSIDE_TEXT = JSON(none_as_null=True)


class EffectState(StrEnum):
    """Where an effect of the outbox is; the last two never are tried again."""

    UNSENT = "unsent"
    SENT = "sent"
    ABANDONED = "abandoned"


def one_of(column: str, values: type[StrEnum | IntEnum]) -> str:
    """SQL that holds where the column has one of the enumeration's values."""
    return f"{column} IN ({', '.join(repr(member.value) for member in values)})"


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """Index over the rows for which `where` holds, on both engines."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


questions = Table(
    "questions",
    metadata,
    Column("row", NUMBER, primary_key=True),
    Column("client", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("request_seq", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("event_id", Text),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("closed_at_ms", BigInteger),
    Column("delivered_at_ms", BigInteger),
    Column("shown_ts", BigInteger),
    Column("shown_closed_ts", BigInteger),
    Column("gave_up", Boolean, nullable=False),
    Column("requester", Text),
    Column("salt", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("content_key", Text, nullable=False),
    Column("title", OUTSIDE_TEXT, nullable=False),
    Column("tool_kind", OUTSIDE_TEXT),
    Column("agent", OUTSIDE_TEXT),
    Column("options", DOCUMENT, nullable=False),
    Column("offered", DOCUMENT, nullable=False),
    Column("preview", DOCUMENT, nullable=False),
    Column("preview_complete", Boolean, nullable=False),
    Column("progress", DOCUMENT),
    Column("raw", LargeBinary, nullable=False),
    Column("masked", Boolean, nullable=False),
    Column("attachment", Text, nullable=False),
    Column("file", DOCUMENT),  # may hold the key to read it
    Column("harness", Text, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("twin", Text),
    UniqueConstraint("client", "request_id", "revision"),
    CheckConstraint("revision >= 1", name="revision"),
    CheckConstraint(one_of("status", Status), name="status"),
    CheckConstraint(one_of("attachment", Attachment), name="attachment"),
    CheckConstraint("held OR twin IS NULL", name="twin"),
    CheckConstraint("(status IN ('queued', 'pending')) = (closed_at_ms IS NULL)", name="closed"),
    Index("ix_questions_client_row", "client", "row"),
    Index("ix_questions_client_session_id_request_seq", "client", "session_id", "request_seq"),
    Index("ix_questions_room_id_code", "room_id", "code"),
    Index("ix_questions_room_id_closed_at_ms", "room_id", "closed_at_ms"),
    Index("ix_questions_room_id_created_at_ms", "room_id", "created_at_ms"),
    partial_index("ix_questions_event_id", "event_id", where="event_id IS NOT NULL"),
    partial_index("ix_questions_open_expires_at_ms", "expires_at_ms", where="closed_at_ms IS NULL"),
    partial_index("ix_questions_open_client", "client", "row", where="closed_at_ms IS NULL"),
    partial_index("ix_questions_open_route", "route", "row", where="closed_at_ms IS NULL"),
    partial_index("ix_questions_closed", "closed_at_ms", where="closed_at_ms IS NOT NULL"),
    partial_index("ix_questions_end_shown", "room_id", "shown_closed_ts", where="shown_closed_ts IS NOT NULL"),
    partial_index(
        "ix_questions_end_not_shown",
        "room_id",
        "expires_at_ms",
        where="closed_at_ms IS NOT NULL AND event_id IS NOT NULL AND shown_closed_ts IS NULL",
    ),
    partial_index("ix_questions_held", "row", where="held AND delivered_at_ms IS NULL AND NOT gave_up"),
    sqlite_autoincrement=True,  # a row number is never given twice, also after pruning
)

decisions = Table(
    "decisions",
    metadata,
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("outcome", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("option", DOCUMENT),
    Column("answered_by", Text),
    Column("via", Text),
    Column("comment", OUTSIDE_TEXT),
    Column("event_id", Text),
    Column("answer_ts", BigInteger),
    Column("claim", DOCUMENT),
    Column("reason", OUTSIDE_TEXT),
    Column("voters", DOCUMENT),
    CheckConstraint(one_of("outcome", Outcome), name="outcome"),
    CheckConstraint(f"via IS NULL OR {one_of('via', Via)}", name="via"),
    CheckConstraint("(outcome = 'selected') = (option IS NOT NULL)", name="option"),
    CheckConstraint("(outcome = 'selected') = (answered_by IS NOT NULL)", name="answered_by"),
    CheckConstraint("voters IS NULL OR outcome = 'selected'", name="voters"),
)

copies = Table(
    "copies",
    metadata,
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("route", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("asked_at_ms", BigInteger, nullable=False),
    Column("event_id", Text),
    Column("shown_ts", BigInteger),
    Column("shown_closed_ts", BigInteger),
    Column("withdrawn_at_ms", BigInteger),
    Column("offered", DOCUMENT, nullable=False),
    Column("masked", Boolean, nullable=False),
    Column("attachment", Text, nullable=False),
    Column("file", DOCUMENT),  # may hold the key to read it
    CheckConstraint(one_of("attachment", Attachment), name="attachment"),
    Index("ix_copies_room_id", "room_id"),
    partial_index("ix_copies_event_id", "event_id", where="event_id IS NOT NULL"),
)

votes = Table(
    "votes",
    metadata,
    Column("seq", NUMBER, primary_key=True),
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE"), nullable=False),
    Column("sender", Text, nullable=False),
    Column("option_id", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("ts", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("device_id", Text),
    Column("ed25519", Text),
    UniqueConstraint("question_row", "sender"),
    Index("ix_votes_event_id", "event_id"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("effect_id", NUMBER, primary_key=True),
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE")),
    Column("room_id", Text, nullable=False),
    Column("effect", Text(collation="C").with_variant(Text(), "sqlite"), nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("not_before_ms", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),  # what not_before_ms was at first
    Column("attempts", Integer, nullable=False),
    Column("txn_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("event_id", Text),
    Column("sent_at_ms", BigInteger),
    Column("reason", OUTSIDE_TEXT),
    Column("content", DOCUMENT),
    UniqueConstraint("txn_id"),
    CheckConstraint(one_of("state", EffectState), name="state"),
    CheckConstraint(one_of("priority", Priority), name="priority"),
    CheckConstraint("(state = 'sent') = (event_id IS NOT NULL)", name="event_id"),
    CheckConstraint("(state = 'sent') = (sent_at_ms IS NOT NULL)", name="sent_at_ms"),
    partial_index(
        "uq_outbox_question_row_room_id_effect",
        "question_row",
        "room_id",
        "effect",
        unique=True,
        where="question_row IS NOT NULL",
    ),
    partial_index("uq_outbox_room_id_effect", "room_id", "effect", unique=True, where="question_row IS NULL"),
    Index("ix_outbox_room_id_effect", "room_id", "effect"),
    partial_index("ix_outbox_event_id", "event_id", where="event_id IS NOT NULL"),
    partial_index("ix_outbox_hints", "room_id", "not_before_ms", where=f"priority = {Priority.HINT.value}"),
    partial_index("ix_outbox_unsent", "room_id", "priority", "effect_id", where="state = 'unsent'"),
    sqlite_autoincrement=True,
)

is_unsent = outbox.c.state == literal_column(f"'{EffectState.UNSENT.value}'")
"""Written out rather than bound: only so can SQLite use the index over the unsent effects."""
is_hint = outbox.c.priority == literal_column(f"{Priority.HINT.value}")
"""Written out likewise, for the index over the hints."""

callbacks = Table(
    "callbacks",
    metadata,
    Column("callback_id", NUMBER, primary_key=True),
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE"), nullable=False),
    Column("client", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("webhook_id", Text, nullable=False),
    Column("closed_at_ms", BigInteger, nullable=False),
    Column("not_before_ms", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    UniqueConstraint("question_row"),
    UniqueConstraint("webhook_id"),
    Index("ix_callbacks_client_not_before_ms", "client", "not_before_ms"),
    Index("ix_callbacks_client_request_id", "client", "request_id", "callback_id"),
    Index("ix_callbacks_closed_at_ms", "closed_at_ms"),
    sqlite_autoincrement=True,
)
"""Only those that are still to be made: one that was taken or given up is gone."""

processed_events = Table(
    "processed_events",
    metadata,
    Column("seq", NUMBER, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    UniqueConstraint("event_id"),
    Index("ix_processed_events_room_id_seq", "room_id", "seq"),
)

ciphertexts = Table(
    "ciphertexts",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,  # one small tree: it only grows
)
"""What was decrypted before, each as a hash. Never pruned: an old answer must not become one to a new question."""

undecrypted_events = Table(
    "undecrypted_events",
    metadata,
    Column("seq", NUMBER, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("session_id", OUTSIDE_TEXT, nullable=False),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("event", DOCUMENT, nullable=False),
    Column("notice_txn_id", Text),
    Column("notice", DOCUMENT),
    Column("sender_level", BigInteger),
    UniqueConstraint("event_id"),
    Index("ix_undecrypted_events_room_id_seq", "room_id", "seq"),
    partial_index("ix_undecrypted_events_notice_txn_id", "notice_txn_id", where="notice_txn_id IS NOT NULL"),
)

sync_positions = Table(
    "sync_positions",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("next_batch", Text, nullable=False),
)

write_checks = Table(
    "write_checks",
    metadata,
    Column("slot", SmallInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    CheckConstraint("slot = 1", name="slot"),
)

encrypted_rooms = Table(
    "encrypted_rooms",
    metadata,
    Column("room_id", Text, primary_key=True),
    Column("judged", Boolean, nullable=False),
)

replaced_rooms = Table(
    "replaced_rooms",
    metadata,
    Column("room_id", Text, primary_key=True),
    Column("successor", Text),
    Column("sender", Text),
    Column("encrypted", Boolean),
)

route_moves = Table(
    "route_moves",
    metadata,
    Column("route", Text, primary_key=True),
    Column("room_id", Text, primary_key=True),
    Column("successor", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    CheckConstraint("successor != room_id", name="successor"),
)
"""Of each route that follows upgrades, the rooms that it left."""

left_places = Table(
    "left_places",
    metadata,
    Column("question_row", ForeignKey("questions.row", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("room_id", Text, primary_key=True),
    Column("route", Text, nullable=False),
    Column("event_id", Text),
    Column("shown_ts", BigInteger),
    Column("at_ms", BigInteger, nullable=False),
    Index("ix_left_places_room_id", "room_id"),
    partial_index("ix_left_places_event_id", "event_id", where="event_id IS NOT NULL"),
)
"""Where questions, or their copies, stood before they were asked again in the room that replaced that one."""

foreign_questions = Table(
    "foreign_questions",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("room_id", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("code", Text),
    Column("shown_ts", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("closed_ts", BigInteger),
    Index("ix_foreign_questions_room_id_closed_ts", "room_id", "closed_ts"),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", NUMBER, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("what", Text, nullable=False),
    Column("question_row", BigInteger),  # no foreign key: the line outlives its question
    Column("client", Text),
    Column("request_id", Text),
    Column("revision", BigInteger),
    Column("digest", Text),
    Column("room_id", Text),
    Column("sender", Text),
    Column("event_id", Text),
    Column("option_id", Text),
    Column("meaning", Text),
    Column("scope", Text),
    Column("detail", Text),
    Column("hash", Text, nullable=False),
    Index("ix_audit_question_row", "question_row"),
    Index("ix_audit_client_seq", "client", "seq"),
)

audit_anchor = Table(
    "audit_anchor",
    metadata,
    Column("place", SmallInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    CheckConstraint("place = 1", name="place"),
)
"""The last line of the audit that was pruned: what the oldest kept line follows."""
