"""A person with a device of their own that can encrypt: the other side of an encrypted room in tests and in chaos.

It is a second nio client, with a store of its own, and trusts every device that it meets: nothing
of the daemon's own encryption is in it. It can do what a `Person` can, in rooms of both kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import aiohttp
import nio
from nio.crypto.attachments import decrypt_attachment
from nio.crypto.sessions import OutboundGroupSession
from nio.store import SqliteStore

from agentpod_bot.demo.person import FILTER, POLL_MS, Event, Person
from agentpod_bot.errors import HomeserverUnavailable, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

T = TypeVar("T")

ENCRYPTED = "m.room.encrypted"
CLEAR = frozenset({"m.reaction", "m.room.redaction"})
"""What is never encrypted, because Matrix has it in clear text."""
CONFIG = nio.AsyncClientConfig(encryption_enabled=True, store=SqliteStore, max_limit_exceeded=0, max_timeouts=0)
PATIENCE_S = 20.0


class Login(NamedTuple):
    """A device: what a homeserver gave to somebody who logged in."""

    user_id: str
    device_id: str
    access_token: str


async def logged_in(url: str, user_id: str, password: str) -> Login:
    """A new device of an account."""
    identifier = {"type": "m.id.user", "user": user_id}
    body = {"type": "m.login.password", "identifier": identifier, "password": password}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/_matrix/client/v3/login", json=body) as response,
    ):
        told = await response.json()
        assert response.status == 200, told
        return Login(told["user_id"], told["device_id"], told["access_token"])


class E2EPerson(Person):
    """One device of one account; use it with `async with`, in one event loop.

    Events are as a client shows them, decrypted where this device can; `raw` has them as they
    came. One that it cannot decrypt (yet) is seen as it came, and is in `undecryptable`.
    """

    def __init__(self, url: str, login: Login, folder: Path | None = None) -> None:
        """`folder` keeps the device's keys from one `async with` to the next; without it they end with the first."""
        super().__init__(url, login.user_id, login.access_token)
        self.device_id = login.device_id
        self.raw: dict[str, Event] = {}
        """Every event of a timeline or history that was read, as it came, by its id."""
        self.to_device: list[Event] = []
        """Messages to this device that came in clear text, and that `told` has not taken."""
        self.undecryptable: set[str] = set()
        """Ids of the events among `seen` that this device holds no key for."""
        self._login = login
        self._folder = folder
        self._rotation: dict[str, int | None] = {}
        self._kept_back: dict[str, dict[str, bytes]] = {}
        """Keys that nobody was given yet: by room and session."""
        self._syncing = asyncio.Lock()
        self._turn = asyncio.Lock()
        """Who holds it changes what is known of keys. A sync that waits for news does not hold it."""
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the store, publish the device's keys, and see what is there."""
        await super().__aenter__()
        try:
            folder = self._folder or Path(self._open.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(exist_ok=True)
            self._nio = nio.AsyncClient(self._url, self.user_id, self.device_id, str(folder), CONFIG)
            self._open.push_async_callback(self._nio.close)
            self._nio.restore_login(*self._login)
            self._open.callback(self._nio.store.database.close)
            await self._publish()
            await self.sync(wait_ms=0)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all of it; the device stays logged in."""
        await self._open.aclose()
        await super().__aexit__(kind, error, trace)

    async def log_out(self) -> None:
        """Log this device out: its keys are gone from the homeserver. Nothing more can be said with it."""
        await self.call("POST", "logout", {})

    @property
    def curve25519(self) -> str:
        """The key by which this device's messages to others are known."""
        key: str = self._nio.olm.account.identity_keys["curve25519"]
        return key

    # rooms
    async def encrypt(self, room_id: str, **settings: Any) -> str:
        """Switch encryption on; `settings` are those of its rotation. Returns the event's id."""
        event_id = await switch_on(self, room_id, **settings)
        self._rotation.pop(room_id, None)
        return event_id

    # saying something
    async def send(self, room_id: str, content: str | Mapping[str, Any], *, event_type: str = "m.room.message") -> str:
        """Send a text, or any content, encrypted where the room is; return the event's id."""
        if isinstance(content, str):
            content = {"msgtype": "m.text", "body": content}
        if event_type in CLEAR or not await self._is_encrypted(room_id):
            return await super().send(room_id, content, event_type=event_type)
        await self._knows(room_id)
        return await self.send_raw(room_id, await self.sealed(room_id, content, event_type=event_type))

    async def sealed(
        self, room_id: str, content: Mapping[str, Any], *, event_type: str = "m.room.message"
    ) -> dict[str, Any]:
        """The content of an encrypted event, whose key every device in the room was given that is known of.

        Raises `HomeserverUnavailable`; then it can be tried again, with a new session.
        """
        async with self._turn:
            await self._is_encrypted(room_id)  # the settings of its rotation
            await self._keep_up()
            await self._knows_members(room_id)
            if self._nio.olm.should_share_group_session(room_id):
                try:
                    await self._share(room_id)
                except HomeserverUnavailable:
                    self._nio.olm.outbound_group_sessions.pop(room_id, None)  # perhaps not given to all
                    raise
            _, encrypted = self._nio.encrypt(room_id, event_type, copy.deepcopy(dict(content)))
            self._rotate(room_id)
            said: dict[str, Any] = encrypted
            return said

    async def send_in_clear(self, room_id: str, content: str | Mapping[str, Any]) -> str:
        """Send without encryption, whatever the room says."""
        return await super().send(room_id, content)

    async def send_raw(self, room_id: str, content: Mapping[str, Any]) -> str:
        """Send something as an encrypted event that is one already, or only says that it is."""
        return await super().send(room_id, content, event_type=ENCRYPTED)

    async def send_without_key(self, room_id: str, content: Mapping[str, Any]) -> str:
        """Send something encrypted whose key nobody gets before `give_key`."""
        await self._knows(room_id)
        return await self.send_raw(room_id, await self.sealed_without_key(room_id, content))

    async def sealed_without_key(self, room_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content of an encrypted event whose key nobody gets before `give_key`."""
        async with self._turn:
            await self._knows_members(room_id)
            before = self._nio.olm.outbound_group_sessions.pop(room_id, None)
            self._nio.olm.create_outbound_group_session(room_id)
            session = self._nio.olm.outbound_group_sessions[room_id]
            self._kept_back.setdefault(room_id, {})[session.id] = session.pickle()
            session.shared = True
            _, encrypted = self._nio.encrypt(room_id, "m.room.message", copy.deepcopy(dict(content)))
            self._put_back(room_id, before)
            said: dict[str, Any] = encrypted
            return said

    async def give_key(self, room_id: str, session_id: str | None = None) -> None:
        """Give everybody's devices the key of one session, or all the room's, that nobody was given yet.

        Raises `HomeserverUnavailable`; then it can be tried again.
        """
        kept = self._kept_back[room_id]
        async with self._turn:
            await self._keep_up()
            before = self._nio.olm.outbound_group_sessions.pop(room_id, None)
            try:
                for each in [*kept] if session_id is None else [session_id]:
                    self._nio.olm.outbound_group_sessions[room_id] = OutboundGroupSession.from_pickle(kept[each])
                    await self._share(room_id)
                    del kept[each]
            finally:
                self._put_back(room_id, before)

    def forget_session(self, room_id: str) -> None:
        """Encrypt what comes next with a new session."""
        self._nio.invalidate_outbound_session(room_id)

    # reading
    async def sync(self, *, wait_ms: int = POLL_MS) -> list[tuple[str, Event]]:
        """Fetch what is new (waiting up to `wait_ms` for it) as (room id, event), in order."""
        async with self._syncing:
            query = {"filter": FILTER, "timeout": str(wait_ms)}
            if self._since is None:
                query["timeout"] = "0"
            else:
                query["since"] = self._since
            told = await self.call("GET", "sync", query=query)
            async with self._turn:
                await self._nio.receive_response(_took(_parsed(told), nio.SyncResponse))
                self._since = told["next_batch"]
                new = self._taken(told)
                await self._keep_up()
        return new

    def _taken(self, told: dict[str, Any]) -> list[tuple[str, Event]]:
        """Keep what a sync brought; returns the events of its timelines."""
        self.to_device += [event for event in told.get("to_device", {}).get("events", []) if event["type"] != ENCRYPTED]
        self._read_again()
        joined = told.get("rooms", {}).get("join", {})
        new = [
            (room_id, self._shown(room_id, event))
            for room_id, room in joined.items()
            for event in room["timeline"]["events"]
        ]
        self.undecryptable |= {event["event_id"] for _, event in new if event["type"] == ENCRYPTED}
        self.seen += new
        return new

    async def catch_up(self) -> None:
        """Sync until nothing new is there: no event, and no key."""
        position = ""
        while position != self._since:
            position = self._since or ""
            await self.sync(wait_ms=0)

    async def until(self, room_id: str, wanted: Callable[[Event], bool], *, within_s: float = PATIENCE_S) -> Event:
        """The room's first timeline event that is wanted, of all that this person has seen or comes to see.

        Raises TimeoutError where none comes in time.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + within_s
        while True:
            for where, event in self.seen:  # from the start again: a key that came late changes what was seen
                if where == room_id and wanted(event):
                    return event
            left = deadline - clock.time()
            if left <= 0:
                unread = f"; {len(self.undecryptable)} could not be decrypted" if self.undecryptable else ""
                raise TimeoutError(f"no such event in {room_id} within {within_s} s{unread}")
            await self.sync(wait_ms=min(POLL_MS, int(left * 1000) + 1))

    async def history(self, room_id: str) -> list[Event]:
        """Every event of the room that this person may see, oldest first."""
        return [self._shown(room_id, event) for event in await super().history(room_id)]

    # messages from device to device, in clear text
    async def tell(self, user_id: str, device_id: str, kind: str, content: Mapping[str, Any]) -> None:
        """Send one device a message."""
        messages = {"messages": {user_id: {device_id: dict(content)}}}
        await self.call("PUT", f"sendToDevice/{kind}/{uuid.uuid4().hex}", messages)

    async def told(self, kind: str, *, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The content of the first message of this kind to this device, once it is there; it is then taken."""
        async with asyncio.timeout(within_s):
            while True:
                for index, event in enumerate(self.to_device):
                    if event["type"] == kind:
                        content: dict[str, Any] = self.to_device.pop(index)["content"]
                        return content
                await self.sync(wait_ms=1000)

    @property
    def ed25519(self) -> str:
        """The key with which this device signs."""
        key: str = self._nio.olm.account.identity_keys["ed25519"]
        return key

    # the device's own business
    async def _publish(self) -> None:
        """Upload the device's keys, where some are wanted."""
        if self._nio.should_upload_keys:
            _took(await self._nio.keys_upload(), nio.KeysUploadResponse)

    async def _keep_up(self) -> None:
        """Do what a client does after each sync: own keys, others' keys, sessions, messages to devices."""
        with _reaching():
            await self._publish()
            if self._nio.should_query_keys:
                _took(await self._nio.keys_query(), nio.KeysQueryResponse)
            if self._nio.should_claim_keys:
                await self._nio.keys_claim(self._nio.get_users_for_key_claiming())
            await self._nio.send_to_device_messages()

    async def _knows_members(self, room_id: str) -> None:
        """Know who is in a room, and their devices."""
        if not self._nio.rooms[room_id].members_synced:
            with _reaching():
                _took(await self._nio.joined_members(room_id), nio.JoinedMembersResponse)
            await self._keep_up()

    async def _share(self, room_id: str) -> None:
        """Give the room's session to every device that can be told of it; nio takes one that failed for given."""
        try:
            with _reaching():
                told = await self._nio.share_group_session(room_id, ignore_unverified_devices=True)
        finally:
            self._nio.sharing_session.pop(room_id, None)  # nio would wait for ever for whoever was giving it
        shared = _took(told, nio.ShareGroupSessionResponse)
        devices = {
            (device.user_id, device.id)
            for user_id in self._nio.rooms[room_id].users
            for device in self._nio.device_store.active_user_devices(user_id)
            if self._nio.olm.session_store.get(device.curve25519)
        }
        if lacking := devices - shared.users_shared_with - {(self.user_id, self.device_id)}:
            raise HomeserverUnavailable(f"{lacking} were not given the key")

    def _put_back(self, room_id: str, session: OutboundGroupSession | None) -> None:
        """Go on with the session that was in use before, where there was one."""
        self._nio.olm.outbound_group_sessions.pop(room_id, None)
        if session is not None:
            self._nio.olm.outbound_group_sessions[room_id] = session

    async def _is_encrypted(self, room_id: str) -> bool:
        """Whether the room is encrypted, as the homeserver has it: what is said must not depend on the last sync."""
        if room_id not in self._rotation:
            settings = await settings_of(self, room_id)
            if settings is None:
                return False
            self._rotation[room_id] = settings.get("rotation_period_msgs")
        return True

    async def _knows(self, room_id: str) -> None:
        """Return once nio has seen the room, and that it is encrypted."""
        await self.sync(wait_ms=0)
        async with asyncio.timeout(PATIENCE_S):
            while room_id not in self._nio.rooms or not self._nio.rooms[room_id].encrypted:
                await self.sync(wait_ms=1000)

    def _rotate(self, room_id: str) -> None:
        """Rotate as the room's settings say, which nio does not read."""
        messages = self._rotation[room_id]
        session = self._nio.olm.outbound_group_sessions.get(room_id)
        if messages is not None and session is not None and session.message_count >= messages:
            self.forget_session(room_id)

    def _shown(self, room_id: str, event: Event) -> Event:
        """An event as a client shows it."""
        self.raw[event["event_id"]] = event
        if event["type"] != ENCRYPTED or not event["content"].get("algorithm"):
            return event
        parsed = nio.Event.parse_encrypted_event(copy.deepcopy(event))
        if not isinstance(parsed, nio.MegolmEvent):
            return event
        parsed.room_id = room_id
        try:
            opened = self._nio.decrypt_event(parsed)
        except nio.EncryptionError:
            return event
        inner = opened.source
        content = dict(inner["content"])
        if "m.relates_to" in event["content"]:  # the relation that counts is the one outside
            content["m.relates_to"] = event["content"]["m.relates_to"]
        return event | {"type": inner["type"], "content": content}

    def _read_again(self) -> None:
        """Try what could not be decrypted: its key may have come."""
        if not self.undecryptable:
            return
        for index, (room_id, event) in enumerate(self.seen):
            if event["event_id"] in self.undecryptable:
                shown = self._shown(room_id, event)
                if shown["type"] != ENCRYPTED:
                    self.seen[index] = (room_id, shown)
                    self.undecryptable.discard(event["event_id"])


async def switch_on(person: Person, room_id: str, **settings: Any) -> str:
    """Switch encryption on in a room; `settings` are those of its rotation. Returns the event's id."""
    path = f"rooms/{quote(room_id, safe='')}/state/m.room.encryption"
    told = await person.call("PUT", path, {"algorithm": "m.megolm.v1.aes-sha2", **settings})
    event_id: str = told["event_id"]
    return event_id


async def settings_of(person: Person, room_id: str) -> dict[str, Any] | None:
    """The settings of a room's encryption, None where it has none."""
    try:
        return await person.call("GET", f"rooms/{quote(room_id, safe='')}/state/m.room.encryption")
    except Refused as refused:
        if refused.errcode != "M_NOT_FOUND":
            raise
        return None


async def attachment(url: str, access_token: str, event: Event) -> bytes:
    """The file that an event shows, decrypted where it is encrypted."""
    content = event["content"]
    file = content.get("file")
    media = (file or content)["url"].removeprefix("mxc://")
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {access_token}"}) as session,
        session.get(f"{url}/_matrix/client/v1/media/download/{media}") as response,
    ):
        assert response.status == 200
        raw = await response.read()
    if file is None:
        return raw
    plain: bytes = decrypt_attachment(raw, file["key"]["k"], file["hashes"]["sha256"], file["iv"])
    return plain


def _parsed(told: Mapping[str, Any]) -> Any:
    """A sync response as nio has it, which changes what it reads."""
    return nio.SyncResponse.from_dict(copy.deepcopy(dict(told)))


@contextlib.contextmanager
def _reaching() -> Iterator[None]:
    """What nio raises where it cannot reach the homeserver, as `Person` has it."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise HomeserverUnavailable(repr(error)) from error


def _took(told: Any, kind: type[T]) -> T:
    """What nio brings where all went well. Raises `HomeserverUnavailable` for anything else."""
    if not isinstance(told, kind):
        raise HomeserverUnavailable(str(told))
    return told
