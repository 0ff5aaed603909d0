"""Events that could not be read keep what their senders are to be told of them. Of those of before they were told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add which notice waits, and what it says in reply to the event."""
    op.add_column("undecrypted_events", sa.Column("notice_txn_id", sa.Text()))
    op.add_column("undecrypted_events", sa.Column("notice", sa.JSON()))
    has_notice = sa.text("notice_txn_id IS NOT NULL")
    op.create_index(
        "ix_undecrypted_events_notice_txn_id",
        "undecrypted_events",
        ["notice_txn_id"],
        sqlite_where=has_notice,
        postgresql_where=has_notice,
    )
