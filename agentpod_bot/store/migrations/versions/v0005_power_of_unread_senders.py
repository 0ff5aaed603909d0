"""What power a sender had when an event came that could not be read. Of those of before, it is not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make room for it."""
    op.add_column("undecrypted_events", sa.Column("sender_level", sa.BigInteger()))
