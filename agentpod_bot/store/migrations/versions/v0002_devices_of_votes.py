"""Votes name the device that vouches for them. Those of before name none, so nothing vouches for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Put the device in the place of the word that there was one."""
    op.drop_column("votes", "vouched")
    op.add_column("votes", sa.Column("device_id", sa.Text()))
    op.add_column("votes", sa.Column("ed25519", sa.Text()))
