"""Bringing a database to the tables of this version, and refusing one that is not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from agentpod_bot.errors import StoreRefused

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

log = structlog.get_logger(__name__)


def migrate(engine: Engine, *, to: str = "head") -> None:
    """Run every migration that is missing, up to the newest or to one of them, all in one transaction.

    Raises StoreRefused for a database of a newer version, and for one that another program made.
    """
    config = _config()
    script = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        here = MigrationContext.configure(connection).get_current_heads()
        _refuse_foreign(connection, here)
        _refuse_newer(script, here)
        if set(here) != set(script.get_heads()):
            config.attributes["connection"] = connection
            command.upgrade(config, to)
            there = MigrationContext.configure(connection).get_current_heads()
            log.info("store_schema_changed", before=", ".join(here) or None, now=", ".join(there))


def known_schemas() -> tuple[str, ...]:
    """Every schema that this version can open, the newest first."""
    script = ScriptDirectory.from_config(_config())
    return tuple(revision.revision for revision in script.walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "agentpod_bot.store:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _refuse_newer(script: ScriptDirectory, here: tuple[str, ...]) -> None:
    known = {revision.revision for revision in script.walk_revisions()}
    if unknown := set(here) - known:
        newest = ", ".join(script.get_heads())
        raise StoreRefused(
            f"the store was written by a newer version of agentpod-bot (its schema is {', '.join(sorted(unknown))}, "
            f"this version knows up to {newest}); install that version again, "
            "or set store.path to a copy from before the upgrade"
        )


def _refuse_foreign(connection: Connection, here: tuple[str, ...]) -> None:
    if not here and inspect(connection).get_table_names():
        raise StoreRefused(
            "the file of store.path is a database of another program; set store.path to a file of the bot's own"
        )
