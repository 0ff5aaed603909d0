"""The people in the rooms: they see questions, and answer rightly, wrongly, late, or without being allowed to.

In encrypted rooms each of them has a device that encrypts. Who is told there that nobody
could read what they said says it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from agentpod_bot.errors import HomeserverUnavailable, Refused
from chaos.plan import OWNER, Form
from tests.e2e_person import ENCRYPTED, E2EPerson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from agentpod_bot.demo.person import Person
    from chaos.plan import Act, Request

QUESTION = "dev.agentpod.permission.v2"
ANSWER = "dev.agentpod.permission.answer.v2"
MESSAGE = "m.room.message"
REACTION = "m.reaction"
NONSENSE = ("9", "maybe", "1 please", "yes", "ok, the first one", "01")
PATIENCE_S = 90.0
UNREADABLE = "could not be decrypted"
"""In the notice about a message for which the bot has no key."""
UNTOLD_S = 25.0
"""Who knows that nobody can read what they said, and is told nothing, says it again after so long all the same."""

Event = dict[str, Any]
T = TypeVar("T")


class People:
    """Everybody who is in the rooms. The owner's eyes see for all of them."""

    def __init__(self, persons: Mapping[str, Person], bot: str, planned: Mapping[tuple[str, str], Request]) -> None:
        """`planned` are the requests by room id and request id."""
        self.said: Counter[str] = Counter()
        self.failures: list[str] = []
        """What somebody could not say."""
        self.keyless: list[str] = []
        """Events whose keys nobody was given."""
        self.late_keys: list[str] = []
        """Events whose keys were given later."""
        self._unsure: dict[str, tuple[Act, str, Event]] = {}
        """What was said encrypted, by its event id: the act, the room's id, the question."""
        self._unread: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By event id: set once the bot has said that it could not read it."""
        self._persons = persons
        self._bot = bot
        self._planned = planned
        self._acting: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether somebody still means to do something."""
        return bool(self._acting)

    async def watch(self) -> None:
        """See every question, and have it answered as planned; until cancelled."""
        owner = self._persons[OWNER]
        while True:
            try:
                await owner.sync(wait_ms=5_000)
            except (HomeserverUnavailable, Refused):
                await asyncio.sleep(0.2)
            seen, owner.seen = owner.seen, []
            for room_id, event in seen:
                if event["type"] == ENCRYPTED:
                    owner.seen.append((room_id, event))  # its key may come
                elif event["sender"] == self._bot:
                    self._heard(room_id, event)

    async def stop(self) -> None:
        """Do nothing more."""
        for task in tuple(self._acting):
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)

    async def testimony(self, rooms: Iterable[str]) -> dict[str, Any]:
        """What everybody's device can read of these rooms; see `chaos.checker.sealed`."""
        opened: dict[str, Event] = {}
        unread: dict[str, list[str]] = {}
        for person in self._persons.values():
            if not isinstance(person, E2EPerson):
                continue
            await _insisting(person.catch_up)
            events = [event for room_id in rooms for event in await person.history(room_id)]
            sealed = [event for event in events if person.raw[event["event_id"]]["type"] == ENCRYPTED]
            unread[person.user_id] = [event["event_id"] for event in sealed if event["type"] == ENCRYPTED]
            opened |= {
                event["event_id"]: {"type": event["type"], "content": event["content"]}
                for event in sealed
                if event["type"] != ENCRYPTED
            }
        return {"opened": opened, "unread": unread, "keyless": self.keyless, "late_keys": self.late_keys}

    def _heard(self, room_id: str, event: Event) -> None:
        """The bot said something."""
        content = event["content"]
        if content.get("suite_event_type") == QUESTION:
            self._seen(room_id, event)
        elif content.get("msgtype") == "m.notice" and UNREADABLE in content["body"]:
            said: str = content["m.relates_to"]["m.in_reply_to"]["event_id"]
            self._unread[said].set()
            self._again(said)

    def _seen(self, room_id: str, event: Event) -> None:
        request = self._planned.get((room_id, event["content"]["request_id"]))
        if request is None:
            return
        acts = request.acts if event["content"]["subject"]["revision"] == 1 else request.acts_on_new
        for act in acts:
            self._begin(act, room_id, event)

    def _begin(self, act: Act, room_id: str, question: Event) -> None:
        task = asyncio.create_task(self._act(act, room_id, question))
        self._acting.add(task)
        task.add_done_callback(self._done)

    def _again(self, event_id: str) -> None:
        """Answer again what could not be read; a key that comes late is waited for instead."""
        if self._unread[event_id].is_set() and event_id in self._unsure:
            act, room_id, question = self._unsure.pop(event_id)
            if act.form is not Form.LATE_KEY:
                self._begin(
                    replace(act, form=act.again or Form.NUMBER, again=None, after_s=1.0, late=False), room_id, question
                )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._acting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(repr(error))

    async def _act(self, act: Act, room_id: str, question: Event) -> None:
        wait_s = act.after_s
        if act.late:
            deadline = datetime.fromisoformat(question["content"]["subject"]["expires_at"])
            wait_s += deadline.timestamp() - time.time()
        await asyncio.sleep(max(0.0, wait_s))
        person = self._persons[act.who]
        if act.form is Form.EDITED:
            talk = await self._say(person, room_id, _reply(question["event_id"], "let me think"))
            await self._say(person, room_id, _edit(talk, str(act.option)))
        elif act.form in (Form.KEYLESS, Form.LATE_KEY) and isinstance(person, E2EPerson):
            await self._say_without_key(person, act, room_id, question)
        else:
            kind, content = contents(act.form, act.option, question)
            event_id = await self._say(person, room_id, content, kind=kind, in_clear=act.form is Form.IN_CLEAR)
            if isinstance(person, E2EPerson) and kind == MESSAGE:
                self._unsure[event_id] = act, room_id, question
                self._again(event_id)
        self.said[act.form.value] += 1

    async def _say_without_key(self, person: E2EPerson, act: Act, room_id: str, question: Event) -> None:
        """Say what nobody can read, or not yet."""
        await self._abreast(person)
        _, content = contents(act.form, act.option, question)
        sealed = await _insisting(lambda: person.sealed_without_key(room_id, content))
        event_id = await self._put(person, room_id, ENCRYPTED, sealed)
        self._unsure[event_id] = act, room_id, question
        if act.form is Form.LATE_KEY:
            self.late_keys.append(event_id)
            await asyncio.sleep(act.key_after_s)
            await _insisting(lambda: person.give_key(room_id, sealed["session_id"]))
            return
        self.keyless.append(event_id)
        self._again(event_id)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._unread[event_id].wait(), UNTOLD_S)
        self._unread[event_id].set()
        self._again(event_id)

    async def _say(
        self, person: Person, room_id: str, content: Event, *, kind: str = MESSAGE, in_clear: bool = False
    ) -> str:
        """Say something once, encrypted where it can be; returns the event's id."""
        if isinstance(person, E2EPerson) and kind == MESSAGE and not in_clear:
            await self._abreast(person)
            content, kind = await _insisting(lambda: person.sealed(room_id, content)), ENCRYPTED
        return await self._put(person, room_id, kind, content)

    async def _abreast(self, person: E2EPerson) -> None:
        """Have somebody's device know of the others; the owner's syncs all the time."""
        if person is not self._persons[OWNER]:
            await _insisting(lambda: person.sync(wait_ms=0))

    @staticmethod
    async def _put(person: Person, room_id: str, kind: str, content: Event) -> str:
        """Send something once, however often it takes."""
        path = f"rooms/{quote(room_id, safe='')}/send/{kind}/{uuid.uuid4().hex}"
        try:
            event_id: str = (await _insisting(lambda: person.call("PUT", path, content)))["event_id"]
        except Refused as refused:
            if refused.errcode == "M_DUPLICATE_ANNOTATION":
                return ""  # the same reaction by the same person stands there
            raise
        return event_id


async def _insisting(act: Callable[[], Awaitable[T]]) -> T:
    """Do something again and again until the homeserver takes it, or for as long as patience lasts."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await act()
        except HomeserverUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.3)


def contents(form: Form, position: int, question: Event) -> tuple[str, Event]:
    """What is sent: the event's type and content."""
    content, event_id = question["content"], question["event_id"]
    options = content["options"]
    label, option_id = options[position - 1]["label"], options[position - 1]["id"]
    made: dict[Form, Callable[[], Event]] = {
        Form.NUMBER: lambda: _reply(event_id, str(position)),
        Form.NAME: lambda: _reply(event_id, label.lower() if position % 2 else label),
        Form.REASON: lambda: _reply(event_id, f"{position}: not before step {position} is done"),
        Form.THREAD: lambda: _text(str(position), {"rel_type": "m.thread", "event_id": event_id}),
        Form.CODE_NUMBER: lambda: _text(f"{position} {content['code']}"),
        Form.CODE_NAME: lambda: _text(f"{content['code'].lower()} {label}"),
        Form.BARE: lambda: _text(str(position)),
        Form.NONSENSE: lambda: _reply(event_id, NONSENSE[len(event_id + label) % len(NONSENSE)]),
        Form.NOTICE: lambda: _reply(event_id, str(position)) | {"msgtype": "m.notice"},
        Form.STRUCTURED: lambda: _structured(question, option_id, content["subject"]["digest"]),
        Form.WRONG_DIGEST: lambda: _structured(question, option_id, "0" * 64),
        Form.REACTION: lambda: _reaction(event_id, f"{position}\ufe0f\u20e3"),
        Form.WRONG_KEY: lambda: _reaction(event_id, "\N{THUMBS UP SIGN}"),
        Form.IN_CLEAR: lambda: _reply(event_id, str(position)),
        Form.KEYLESS: lambda: _reply(event_id, str(position)),
        Form.LATE_KEY: lambda: _reply(event_id, str(position)),
    }
    return (REACTION if form in (Form.REACTION, Form.WRONG_KEY) else MESSAGE), made[form]()


def _text(body: str, relation: Event | None = None) -> Event:
    said = {"msgtype": "m.text", "body": body}
    return said if relation is None else said | {"m.relates_to": relation}


def _reply(event_id: str, body: str) -> Event:
    return _text(body, {"m.in_reply_to": {"event_id": event_id}})


def _edit(event_id: str, body: str) -> Event:
    relation = {"rel_type": "m.replace", "event_id": event_id}
    return _text(f"* {body}", relation) | {"m.new_content": _text(body)}


def _reaction(event_id: str, key: str) -> Event:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": key}}


def _structured(question: Event, option_id: str, digest: str) -> Event:
    content = question["content"]
    return _text("An answer", {"rel_type": "m.reference", "event_id": question["event_id"]}) | {
        "suite_event_type": ANSWER,
        "schema_version": 1,
        "request_id": content["request_id"],
        "option_id": option_id,
        "subject": {"digest": digest, "revision": content["subject"]["revision"]},
    }
