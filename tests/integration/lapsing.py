"""A real homeserver whose sessions lapse at a test's word, as its `session_lifetime` lets them by itself."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

from agentpod_bot.demo.homeserver import PrivateSynapse

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account

LIFETIMES: dict[str, Any] = {
    "session_lifetime": "24h",
    "refreshable_access_token_lifetime": "1h",
    # Without this cache a token's end is looked up at every request, and not only at the first.
    "caches": {"per_cache_factors": {"get_user_by_access_token": 0}},
}
BUSY_S = 20.0


class LapsingSynapse(PrivateSynapse):
    """Every access token of it has an end, and a soft logout follows it."""

    def lapse(self, access_token: str) -> None:
        """Have the end of a token come now, and not in a day."""
        with contextlib.closing(sqlite3.connect(self.folder / "synapse.db", timeout=BUSY_S)) as database, database:
            ended = database.execute("UPDATE access_tokens SET valid_until_ms = 1 WHERE token = ?", [access_token])
            assert ended.rowcount == 1

    async def log_in(self, account: Account) -> dict[str, Any]:
        """Log an account in once more, on a new device and with a refresh token; returns what Synapse answers."""
        login = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": account.user_id},
            "password": account.password,
            "refresh_token": True,
        }
        async with self.person(account) as person:
            return await person.call("POST", "login", login)

    def _write_config(self, port: int) -> Path:
        path = super()._write_config(port)
        path.write_text(json.dumps(json.loads(path.read_text()) | LIFETIMES))
        return path
