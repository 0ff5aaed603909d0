"""What a tombstone named, for a bot that may no longer read it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make room for it; of tombstones that were processed before, it is not known."""
    op.add_column("replaced_rooms", sa.Column("successor", sa.Text()))
    op.add_column("replaced_rooms", sa.Column("sender", sa.Text()))
    op.add_column("replaced_rooms", sa.Column("encrypted", sa.Boolean()))
