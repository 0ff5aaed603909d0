"""Everything that is known of a run, fetched by the standard library alone.

The rooms are read over the homeserver's API by an account that was not there before; the
rest is the harness's log, the daemon's own list over HTTP, and the audit as SQLite has it.
Of encrypted rooms that account sees what the homeserver has; what people's devices made of
it is their testimony (`Sealed`).
"""

from __future__ import annotations

import json
import sqlite3
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos.checker.sealed import Sealed

PAGE = 200
TIMEOUT_S = 60
KEPT = "evidence.json"

Event = dict[str, Any]
View = dict[str, Any]


@dataclass(frozen=True)
class Room:
    """One room, its whole history oldest first."""

    room_id: str
    route: str
    client: str
    approvers: tuple[str, ...]
    events: tuple[Event, ...] = field(repr=False)


@dataclass(frozen=True)
class Audited:
    """One line of the audit."""

    what: str
    client: str | None
    request_id: str | None
    revision: int | None
    sender: str | None
    event_id: str | None
    option_id: str | None


@dataclass(frozen=True)
class Evidence:
    """What everybody says. `listed` are the daemon's views by client."""

    bot: str
    agents: tuple[str, ...]
    rooms: tuple[Room, ...]
    log: tuple[dict[str, Any], ...]
    listed: tuple[tuple[str, View], ...]
    audit: tuple[Audited, ...]
    sealed: Sealed | None = None
    """None where the rooms are not encrypted."""


def gathered(path: Path) -> Evidence:
    """Fetch all that the manifest names."""
    manifest = json.loads(path.read_text())
    homeserver, token = manifest["homeserver"], manifest["reader_token"]
    start = _get(f"{homeserver}/_matrix/client/v3/sync?timeout=0", token)["next_batch"]
    rooms = tuple(
        Room(
            room["room_id"],
            room["route"],
            room["client"],
            tuple(room["approvers"]),
            tuple(_history(homeserver, token, room["room_id"], start)),
        )
        for room in manifest["rooms"]
    )
    log = tuple(json.loads(line) for line in Path(manifest["harness_log"]).read_text().splitlines())
    listed = tuple(
        (client, view) for client, token in manifest["tokens"].items() for view in _listed(manifest["daemon"], token)
    )
    audit = _audit(manifest["store"])
    sealed = Sealed.of(json.loads(Path(manifest["testimony"]).read_text())) if "testimony" in manifest else None
    return Evidence(manifest["bot"], tuple(manifest["agents"]), rooms, log, listed, audit, sealed)


def keep(evidence: Evidence, path: Path) -> None:
    """Write it into a file, for its owner only: it holds what was asked."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(evidence)))


def kept(path: Path) -> Evidence:
    """Read it back."""
    stored = json.loads(path.read_text())
    rooms = tuple(Room(**room | {"approvers": tuple(room["approvers"])}) for room in stored["rooms"])
    listed = tuple((client, view) for client, view in stored["listed"])
    audit = tuple(Audited(**line) for line in stored["audit"])
    sealed = None if stored["sealed"] is None else Sealed.of(stored["sealed"])
    return Evidence(stored["bot"], tuple(stored["agents"]), rooms, tuple(stored["log"]), listed, audit, sealed)


def _history(homeserver: str, token: str, room_id: str, start: str) -> list[Event]:
    newest_first: list[Event] = []
    position: str | None = start
    while position is not None:
        query = urllib.parse.urlencode({"dir": "b", "limit": PAGE, "from": position})
        room = urllib.parse.quote(room_id, safe="")
        page = _get(f"{homeserver}/_matrix/client/v3/rooms/{room}/messages?{query}", token)
        newest_first += page["chunk"]
        position = page.get("end")
    return newest_first[::-1]


def _listed(daemon: str, token: str) -> list[View]:
    views: list[View] = []
    cursor: str | None = ""
    while cursor is not None:
        query = urllib.parse.urlencode({"limit": 100} | ({"cursor": cursor} if cursor else {}))
        page = _get(f"{daemon}/v1/requests?{query}", token)
        views += page["requests"]
        cursor = page["next_cursor"]
    return views


def _audit(store: str) -> tuple[Audited, ...]:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT what, client, request_id, revision, sender, event_id, option_id FROM audit ORDER BY seq"
        ).fetchall()
    finally:
        connection.close()
    return tuple(Audited(*row) for row in rows)


def _get(url: str, token: str) -> dict[str, Any]:
    if not url.startswith("http://127.0.0.1:"):
        raise ValueError(f"{url} is not on this machine")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
        told: dict[str, Any] = json.load(response)
        return told
