"""The first tables.

A migration is never changed once it is released, and never reads `store.tables`.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def only_where(condition: str) -> dict[str, Any]:
    """Keyword arguments of a partial index."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "ciphertexts",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_ciphertexts"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "undecrypted_events",
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.JSON(), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_undecrypted_events"),
        sa.UniqueConstraint("event_id", name="uq_undecrypted_events_event_id"),
    )
    op.create_index("ix_undecrypted_events_room_id_seq", "undecrypted_events", ["room_id", "seq"])
    op.create_table(
        "encrypted_rooms",
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("judged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("room_id", name="pk_encrypted_rooms"),
    )
    op.create_table(
        "foreign_questions",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("code", sa.Text()),
        sa.Column("shown_ts", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ts", sa.BigInteger()),
        sa.PrimaryKeyConstraint("event_id", name="pk_foreign_questions"),
    )
    op.create_index("ix_foreign_questions_room_id_closed_ts", "foreign_questions", ["room_id", "closed_ts"])
    op.create_table(
        "processed_events",
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_processed_events"),
        sa.UniqueConstraint("event_id", name="uq_processed_events_event_id"),
    )
    op.create_index("ix_processed_events_room_id_seq", "processed_events", ["room_id", "seq"])
    op.create_table(
        "questions",
        sa.Column("row", NUMBER, nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("request_seq", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text()),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_at_ms", sa.BigInteger()),
        sa.Column("delivered_at_ms", sa.BigInteger()),
        sa.Column("shown_ts", sa.BigInteger()),
        sa.Column("shown_closed_ts", sa.BigInteger()),
        sa.Column("gave_up", sa.Boolean(), nullable=False),
        sa.Column("requester", sa.Text()),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content_key", sa.Text(), nullable=False),
        sa.Column("title", sa.JSON(), nullable=False),
        sa.Column("tool_kind", sa.JSON()),
        sa.Column("agent", sa.JSON()),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("offered", sa.JSON(), nullable=False),
        sa.Column("preview", sa.JSON(), nullable=False),
        sa.Column("preview_complete", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.JSON()),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("masked", sa.Boolean(), nullable=False),
        sa.Column("attachment", sa.Text(), nullable=False),
        sa.Column("file", sa.JSON()),
        sa.Column("harness", sa.Text(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("twin", sa.Text()),
        sa.CheckConstraint("(status IN ('queued', 'pending')) = (closed_at_ms IS NULL)", name="ck_questions_closed"),
        sa.CheckConstraint(
            "status IN ('queued', 'pending', 'decided', 'expired', 'cancelled', 'superseded', "
            "'answered_elsewhere', 'undeliverable')",
            name="ck_questions_status",
        ),
        sa.CheckConstraint(
            "attachment IN ('none', 'wanted', 'uploaded', 'shown', 'failed')", name="ck_questions_attachment"
        ),
        sa.CheckConstraint("held OR twin IS NULL", name="ck_questions_twin"),
        sa.CheckConstraint("revision >= 1", name="ck_questions_revision"),
        sa.PrimaryKeyConstraint("row", name="pk_questions"),
        sa.UniqueConstraint("client", "request_id", "revision", name="uq_questions_client_request_id_revision"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_questions_client_row", "questions", ["client", "row"])
    op.create_index("ix_questions_client_session_id_request_seq", "questions", ["client", "session_id", "request_seq"])
    op.create_index("ix_questions_closed", "questions", ["closed_at_ms"], **only_where("closed_at_ms IS NOT NULL"))
    op.create_index(
        "ix_questions_end_not_shown",
        "questions",
        ["room_id", "expires_at_ms"],
        **only_where("closed_at_ms IS NOT NULL AND event_id IS NOT NULL AND shown_closed_ts IS NULL"),
    )
    op.create_index(
        "ix_questions_end_shown",
        "questions",
        ["room_id", "shown_closed_ts"],
        **only_where("shown_closed_ts IS NOT NULL"),
    )
    op.create_index("ix_questions_event_id", "questions", ["event_id"], **only_where("event_id IS NOT NULL"))
    op.create_index(
        "ix_questions_held", "questions", ["row"], **only_where("held AND delivered_at_ms IS NULL AND NOT gave_up")
    )
    op.create_index("ix_questions_open_client", "questions", ["client", "row"], **only_where("closed_at_ms IS NULL"))
    op.create_index(
        "ix_questions_open_expires_at_ms", "questions", ["expires_at_ms"], **only_where("closed_at_ms IS NULL")
    )
    op.create_index("ix_questions_open_route", "questions", ["route", "row"], **only_where("closed_at_ms IS NULL"))
    op.create_index("ix_questions_room_id_closed_at_ms", "questions", ["room_id", "closed_at_ms"])
    op.create_index("ix_questions_room_id_code", "questions", ["room_id", "code"])
    op.create_index("ix_questions_room_id_created_at_ms", "questions", ["room_id", "created_at_ms"])
    op.create_table(
        "sync_positions",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("next_batch", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_sync_positions"),
    )
    op.create_table(
        "audit",
        sa.Column("seq", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("question_row", sa.BigInteger()),
        sa.Column("client", sa.Text()),
        sa.Column("request_id", sa.Text()),
        sa.Column("revision", sa.BigInteger()),
        sa.Column("digest", sa.Text()),
        sa.Column("room_id", sa.Text()),
        sa.Column("sender", sa.Text()),
        sa.Column("event_id", sa.Text()),
        sa.Column("option_id", sa.Text()),
        sa.Column("meaning", sa.Text()),
        sa.Column("scope", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit"),
    )
    op.create_index("ix_audit_client_seq", "audit", ["client", "seq"])
    op.create_index("ix_audit_question_row", "audit", ["question_row"])
    op.create_table(
        "copies",
        sa.Column("question_row", NUMBER, autoincrement=False, nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("asked_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.Text()),
        sa.Column("shown_ts", sa.BigInteger()),
        sa.Column("shown_closed_ts", sa.BigInteger()),
        sa.Column("withdrawn_at_ms", sa.BigInteger()),
        sa.Column("offered", sa.JSON(), nullable=False),
        sa.Column("masked", sa.Boolean(), nullable=False),
        sa.Column("attachment", sa.Text(), nullable=False),
        sa.Column("file", sa.JSON()),
        sa.CheckConstraint(
            "attachment IN ('none', 'wanted', 'uploaded', 'shown', 'failed')", name="ck_copies_attachment"
        ),
        sa.ForeignKeyConstraint(["question_row"], ["questions.row"], name="fk_copies_question_row", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("question_row", name="pk_copies"),
    )
    op.create_index("ix_copies_event_id", "copies", ["event_id"], **only_where("event_id IS NOT NULL"))
    op.create_index("ix_copies_room_id", "copies", ["room_id"])
    op.create_table(
        "audit_anchor",
        sa.Column("place", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("place = 1", name="ck_audit_anchor_place"),
        sa.PrimaryKeyConstraint("place", name="pk_audit_anchor"),
    )
    op.create_table(
        "decisions",
        sa.Column("question_row", NUMBER, autoincrement=False, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("option", sa.JSON()),
        sa.Column("answered_by", sa.Text()),
        sa.Column("via", sa.Text()),
        sa.Column("comment", sa.JSON()),
        sa.Column("event_id", sa.Text()),
        sa.Column("answer_ts", sa.BigInteger()),
        sa.Column("claim", sa.JSON()),
        sa.Column("reason", sa.JSON()),
        sa.Column("voters", sa.JSON()),
        sa.CheckConstraint("voters IS NULL OR outcome = 'selected'", name="ck_decisions_voters"),
        sa.CheckConstraint("(outcome = 'selected') = (answered_by IS NOT NULL)", name="ck_decisions_answered_by"),
        sa.CheckConstraint("(outcome = 'selected') = (option IS NOT NULL)", name="ck_decisions_option"),
        sa.CheckConstraint(
            "outcome IN ('selected', 'expired', 'cancelled', 'superseded', 'answered_elsewhere', 'undeliverable')",
            name="ck_decisions_outcome",
        ),
        sa.CheckConstraint(
            "via IS NULL OR via IN ('number', 'name', 'id', 'structured', 'reaction')", name="ck_decisions_via"
        ),
        sa.ForeignKeyConstraint(
            ["question_row"], ["questions.row"], name="fk_decisions_question_row", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("question_row", name="pk_decisions"),
    )
    op.create_table(
        "outbox",
        sa.Column("effect_id", NUMBER, nullable=False),
        sa.Column("question_row", NUMBER),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(collation="C").with_variant(sa.Text(), "sqlite"), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("txn_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text()),
        sa.Column("sent_at_ms", sa.BigInteger()),
        sa.Column("reason", sa.JSON()),
        sa.Column("content", sa.JSON()),
        sa.CheckConstraint("(state = 'sent') = (event_id IS NOT NULL)", name="ck_outbox_event_id"),
        sa.CheckConstraint("(state = 'sent') = (sent_at_ms IS NOT NULL)", name="ck_outbox_sent_at_ms"),
        sa.CheckConstraint("state IN ('unsent', 'sent', 'abandoned')", name="ck_outbox_state"),
        sa.CheckConstraint("priority IN (0, 1, 2, 3, 4, 5, 6, 7)", name="ck_outbox_priority"),
        sa.ForeignKeyConstraint(["question_row"], ["questions.row"], name="fk_outbox_question_row", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("effect_id", name="pk_outbox"),
        sa.UniqueConstraint("txn_id", name="uq_outbox_txn_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_event_id", "outbox", ["event_id"], **only_where("event_id IS NOT NULL"))
    op.create_index("ix_outbox_hints", "outbox", ["room_id", "not_before_ms"], **only_where("priority = 6"))
    op.create_index("ix_outbox_room_id_effect", "outbox", ["room_id", "effect"])
    op.create_index(
        "ix_outbox_unsent", "outbox", ["room_id", "priority", "effect_id"], **only_where("state = 'unsent'")
    )
    op.create_index(
        "uq_outbox_question_row_room_id_effect",
        "outbox",
        ["question_row", "room_id", "effect"],
        unique=True,
        **only_where("question_row IS NOT NULL"),
    )
    op.create_index(
        "uq_outbox_room_id_effect", "outbox", ["room_id", "effect"], unique=True, **only_where("question_row IS NULL")
    )
    op.create_table(
        "callbacks",
        sa.Column("callback_id", NUMBER, nullable=False),
        sa.Column("question_row", NUMBER, nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("closed_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["question_row"], ["questions.row"], name="fk_callbacks_question_row", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("callback_id", name="pk_callbacks"),
        sa.UniqueConstraint("question_row", name="uq_callbacks_question_row"),
        sa.UniqueConstraint("webhook_id", name="uq_callbacks_webhook_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_callbacks_client_not_before_ms", "callbacks", ["client", "not_before_ms"])
    op.create_index("ix_callbacks_client_request_id", "callbacks", ["client", "request_id", "callback_id"])
    op.create_index("ix_callbacks_closed_at_ms", "callbacks", ["closed_at_ms"])
    op.create_table(
        "votes",
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("question_row", NUMBER, nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("option_id", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("vouched", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["question_row"], ["questions.row"], name="fk_votes_question_row", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_votes"),
        sa.UniqueConstraint("question_row", "sender", name="uq_votes_question_row_sender"),
    )
    op.create_index("ix_votes_event_id", "votes", ["event_id"])
    op.create_table(
        "write_checks",
        sa.Column("slot", sa.SmallInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("slot = 1", name="ck_write_checks_slot"),
        sa.PrimaryKeyConstraint("slot", name="pk_write_checks"),
    )
    _upgrades()


def _upgrades() -> None:
    """Make what tells of rooms that were replaced."""
    op.create_table(
        "replaced_rooms",
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("room_id", name="pk_replaced_rooms"),
    )
    op.create_table(
        "route_moves",
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("successor", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("successor != room_id", name="ck_route_moves_successor"),
        sa.PrimaryKeyConstraint("route", "room_id", name="pk_route_moves"),
    )
    op.create_table(
        "left_places",
        sa.Column("question_row", NUMBER, autoincrement=False, nullable=False),
        sa.Column("room_id", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text()),
        sa.Column("shown_ts", sa.BigInteger()),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["question_row"], ["questions.row"], name="fk_left_places_question_row", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("question_row", "room_id", name="pk_left_places"),
    )
    op.create_index("ix_left_places_event_id", "left_places", ["event_id"], **only_where("event_id IS NOT NULL"))
    op.create_index("ix_left_places_room_id", "left_places", ["room_id"])
