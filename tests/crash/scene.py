"""One request from its asking to its end, with a daemon that dies once on the way, and what must hold then.

What is looked at is the room, what the harness was told, and the daemon's own file read by
plain SQL: nothing of the daemon's code judges it. Only whether the lines of the audit still
follow from each other is for `agentpod-bot audit verify` to say, as it is for whoever keeps one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
from typer.testing import CliRunner

from agentpod_bot.cli.commands import app
from tests.integration.daemons import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.dooms import DoomedDaemon
    from tests.integration.daemons import Harness

Event = dict[str, Any]

QUESTION = "dev.agentpod.permission.v2"
OUTCOME = "dev.agentpod.permission.outcome.v2"
ENCRYPTED = "m.room.encrypted"
REQUEST = "r1"
HOOK = "claude-code"
CALL = {
    "session_id": "896e5561",
    "transcript_path": "/home/dev/896e.jsonl",
    "cwd": "/home/dev/project",
    "permission_mode": "default",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "npm test"},
}
AGAIN_S = 0.05
DIES_WITHIN_S = 15.0
WAITS_S = 60.0


class Way(StrEnum):
    """The part of a request's life in which the daemon dies."""

    ASK = "from the harness's call until the room shows the question"
    ANSWER = "from the person's answer until room and harness know of it"


class Form(StrEnum):
    """In which words the harness asks."""

    NATIVE = "a request with an id, asked again until its view is closed"
    HOOK = "a held call without an id, made again where its connection was cut"


class Room(Protocol):
    """The room as a person has it."""

    @property
    def homeserver(self) -> str:
        """Its address."""
        ...

    @property
    def room_id(self) -> str:
        """The room's id."""
        ...

    @property
    def pod(self) -> str:
        """The bot."""
        ...

    @property
    def owner(self) -> str:
        """The approver."""
        ...

    @property
    def bot(self) -> tuple[str, str]:
        """The bot's account and access token."""
        ...

    async def prepare(self, daemon: DoomedDaemon) -> None:
        """Give a daemon what it needs to speak here, before its first start."""
        ...

    async def answer(self, question_id: str) -> None:
        """The owner allows it."""
        ...

    async def events(self) -> list[Event]:
        """Every event, oldest first."""
        ...


class Unreached(Exception):
    """The daemon did not come to the point."""


class Scene:
    """One daemon, one room, one request."""

    def __init__(self, daemon: DoomedDaemon, room: Room, form: Form) -> None:
        daemon.config["clients"]["laptop"]["harnesses"] = ["native", HOOK]
        self._form = form
        self._daemon = daemon
        self._room = room
        self._told: list[dict[str, Any]] = []

    async def record(self, way: Way, path: Path) -> list[str]:
        """Every point of a way, in order, where nothing dies."""
        return await self._play(way, None, path)

    async def survive(self, way: Way, point: str, path: Path) -> None:
        """Die at a point, start again, and hold every promise. Raises `Unreached`, and `AssertionError`."""
        await self._play(way, point, path)

    async def _play(self, way: Way, point: str | None, path: Path) -> list[str]:
        points: list[str] = []
        await self._daemon.start()
        async with self._daemon.harness() as harness:
            asking: asyncio.Task[None] | None = None
            try:
                if way is Way.ASK:
                    await self._order(point, path)
                    asking = asyncio.create_task(self._keep_asking(harness))
                    points = await self._ordered(way, point, path)
                    question_id = await self._question()
                    await self._room.answer(question_id)
                else:
                    asking = asyncio.create_task(self._keep_asking(harness))
                    question_id = await self._question()
                    await harness.waiting_calls(1)
                    await eventually(self._is_shown)
                    await self._order(point, path)
                    await self._room.answer(question_id)
                    points = await self._ordered(way, point, path)
                await asyncio.wait_for(asking, WAITS_S)
                await eventually(self._is_over)
            finally:
                if asking is not None:
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)
                await self._daemon.stop()
        await self._holds(question_id, died=point is not None)
        return points

    async def _order(self, point: str | None, path: Path) -> None:
        """Have it die at a point, or record, which begins where it has done with everything before."""
        if point is not None:
            await self._daemon.order(kill=point)
            return
        await self._daemon.order(record=str(path))
        await self._daemon.recorded(path)
        await self._daemon.order(record=str(path))

    async def _ordered(self, way: Way, point: str | None, path: Path) -> list[str]:
        """Let it record to the end, or die and start anew."""
        if point is None:
            await eventually(self._is_shown if way is Way.ASK else self._is_over)
            return await self._daemon.recorded(path)
        if not await self._daemon.died(within_s=DIES_WITHIN_S):
            raise Unreached(point)
        await self._daemon.start()
        return []

    async def _keep_asking(self, harness: Harness) -> None:
        """Ask the same again and again until told how it ended, as a harness does whose calls are cut."""
        while not self._told:
            with contextlib.suppress(aiohttp.ClientError):
                match self._form:
                    case Form.NATIVE:
                        reply = await harness.ask(wait_s=WAITS_S, request_id=REQUEST)
                        assert reply.status in (200, 201, 503), reply
                        over = reply.status != 503 and reply.body["status"] not in ("queued", "pending")
                    case Form.HOOK:
                        reply = await harness.call("POST", f"/v1/harness/{HOOK}", CALL)
                        assert reply.status == 200, reply
                        over = True
                if over:
                    self._told.append(reply.body)
                    return
            while (await self._daemon.readiness())[0] != 200:
                await asyncio.sleep(AGAIN_S)

    async def _question(self) -> str:
        async def stands_there() -> bool:
            return bool(await self._questions())

        await eventually(stands_there)
        event_id: str = (await self._questions())[0]["event_id"]
        return event_id

    async def _questions(self) -> list[Event]:
        return [e for e in await self._room.events() if e["content"].get("suite_event_type") == QUESTION]

    async def _is_shown(self) -> bool:
        return self._sql("SELECT count(*) FROM questions WHERE shown_ts IS NOT NULL") == [(1,)]

    async def _is_over(self) -> bool:
        """Nothing is left to be said, and the sync has brought back what was."""
        unsent = self._sql("SELECT count(*) FROM outbox WHERE state = 'unsent'")
        shown = self._sql("SELECT count(*) FROM questions WHERE shown_closed_ts IS NOT NULL")
        return (unsent, shown) == ([(0,)], [(1,)])

    def _sql(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self._daemon.store}?mode=ro", uri=True)) as connection:
            return connection.execute(statement).fetchall()

    async def _holds(self, question_id: str, *, died: bool) -> None:
        """One question, one decision, told once, and everything that is written says the same."""
        events = await self._room.events()
        assert [event for event in events if event["type"] == ENCRYPTED] == [], "some of it nobody can read"
        ours = [event for event in events if event["sender"] == self._room.pod and event["type"] == "m.room.message"]
        questions = [event for event in ours if event["content"].get("suite_event_type") == QUESTION]
        assert [event["event_id"] for event in questions] == [question_id]
        edits = [event["content"] for event in ours if event["content"].get("suite_event_type") == OUTCOME]
        assert len(ours) == 1 + len(edits), "the bot said something else, too"
        assert 1 <= len(edits) <= 2 + died
        for edit in edits:
            assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": question_id}
            assert (edit["outcome"], edit["option_id"], edit["decided_by"]) == (
                "selected",
                "allow_once",
                self._room.owner,
            )
        [told] = self._told
        match self._form:
            case Form.NATIVE:
                decision = told["decision"]
                assert (decision["outcome"], decision["option_id"]) == ("selected", "allow_once")
                assert (decision["answered_by"], told["event_id"]) == (self._room.owner, question_id)
            case Form.HOOK:
                assert told["hookSpecificOutput"]["decision"]["behavior"] == "allow"
        decided = "SELECT status, outcome, instr(option, 'allow_once') > 0, answered_by, d.event_id IS NOT NULL"
        assert self._sql(f"{decided} FROM questions LEFT JOIN decisions AS d ON question_row = row") == [
            ("decided", "selected", 1, self._room.owner, 1)
        ]
        lines = [what for (what,) in self._sql("SELECT what FROM audit ORDER BY seq")]
        counts = Counter(lines)
        # A harness that was told in the moment of the death does not ask again, and nobody knows that it was told.
        assert counts.pop("delivered", 0) == 1 or died
        assert counts == {"asked": 1, "shown": 1, "selected": 1}
        assert [what for what in lines if what != "delivered"] == ["asked", "shown", "selected"]
        verified = CliRunner().invoke(app, ["audit", "verify", "--store", str(self._daemon.store)])
        assert verified.exit_code == 0, verified.output
        assert verified.output.startswith(f"Lines 1 to {len(lines)}: each follows from the one before it.\n")
