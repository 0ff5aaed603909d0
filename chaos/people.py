"""The people in the rooms: they see questions, and answer rightly, wrongly, late, or without being allowed to."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentpod_bot.errors import HomeserverUnavailable, Refused
from chaos.plan import OWNER, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.demo.person import Person
    from chaos.plan import Act, Request

QUESTION = "dev.agentpod.permission.v2"
ANSWER = "dev.agentpod.permission.answer.v2"
MESSAGE = "m.room.message"
REACTION = "m.reaction"
NONSENSE = ("9", "maybe", "1 please", "yes", "ok, the first one", "01")
PATIENCE_S = 90.0

Event = dict[str, Any]


class People:
    """Everybody who is in the rooms. The owner's eyes see for all of them."""

    def __init__(self, persons: Mapping[str, Person], bot: str, planned: Mapping[tuple[str, str], Request]) -> None:
        """`planned` are the requests by room id and request id."""
        self.said: Counter[str] = Counter()
        self.failures: list[str] = []
        """What somebody could not say."""
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
                for room_id, event in await owner.sync(wait_ms=5_000):
                    if event["sender"] == self._bot and event["content"].get("suite_event_type") == QUESTION:
                        self._seen(room_id, event)
                owner.seen.clear()
            except (HomeserverUnavailable, Refused):
                await asyncio.sleep(0.2)

    async def stop(self) -> None:
        """Do nothing more."""
        for task in tuple(self._acting):
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)

    def _seen(self, room_id: str, event: Event) -> None:
        request = self._planned.get((room_id, event["content"]["request_id"]))
        if request is None:
            return
        acts = request.acts if event["content"]["subject"]["revision"] == 1 else request.acts_on_new
        for act in acts:
            task = asyncio.create_task(self._act(act, room_id, event))
            self._acting.add(task)
            task.add_done_callback(self._done)

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
        else:
            kind, content = contents(act.form, act.option, question)
            await self._say(person, room_id, content, kind=kind)
        self.said[act.form.value] += 1

    @staticmethod
    async def _say(person: Person, room_id: str, content: Event, *, kind: str = MESSAGE) -> str:
        """Say something once, however often it takes."""
        path = f"rooms/{quote(room_id, safe='')}/send/{kind}/{uuid.uuid4().hex}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                event_id: str = (await person.call("PUT", path, content))["event_id"]
            except Refused as refused:
                if refused.errcode == "M_DUPLICATE_ANNOTATION":
                    return ""  # the same reaction by the same person stands there
                raise
            except HomeserverUnavailable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.3)
            else:
                return event_id


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
