"""The homeserver as the broker sees it: one nio client, with our own deadlines and our own errors."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import nio
from nio.api import Api
from nio.client.async_client import AsyncClient, AsyncClientConfig

from agentpod_bot.core.ids import EventId, RoomId, TxnId, UserId
from agentpod_bot.core.room import Encryption, Powers, RoomState
from agentpod_bot.errors import HomeserverUnavailable, MatrixError, RateLimited, Refused, TokenRefused
from agentpod_bot.matrix.events import CREATE, ENCRYPTION, POWER_LEVELS, TOMBSTONE, encryption_of
from agentpod_bot.matrix.failures import decode, failure_of, unanswered
from agentpod_bot.matrix.powers import creators_of, first_powers, powers_of
from agentpod_bot.matrix.upgrades import join_request, origin_in, successor_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from agentpod_bot.core.upgrades import Origin, Successor

OK: Final = 200
NOT_FOUND: Final = 404
SERVER_ERROR: Final = 500

DEADLINE_S = 30.0
"""How long any call may take as a whole; a sync may take this much longer than it asked to wait."""

ANEW_MS: Final = 1000

NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError)
"""What nio and aiohttp raise where nothing usable came: not reached, cut (also amid the body), late, not text."""


class MatrixClient:
    """Every method ends within its deadline and raises only `MatrixError`s.

    Nothing is repeated here (nio's own repeating is off): the outbox and the sync loop
    decide when. Only aiohttp repeats a GET or PUT once that was cut before any answer,
    which the transaction id makes safe. nio keeps no rooms, no position and no keys for us.
    """

    def __init__(
        self,
        url: str,
        user_id: UserId,
        access_token: str,
        *,
        device_id: str | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._user_id = user_id
        self._token = access_token
        self._deadline_s = deadline_s
        self._nio = AsyncClient(url.rstrip("/"), user_id, device_id or "", config=nio_config(deadline_s))
        self._closed = False
        self._anew = itertools.count(secrets.randbelow(ANEW_MS))

    @property
    def user_id(self) -> UserId:
        """The bot's own account, as configured."""
        return self._user_id

    def use(self, access_token: str) -> None:
        """Make every later call with this token."""
        self._token = access_token

    async def whoami(self) -> tuple[UserId, str | None]:
        """The account and the device that the access token belongs to."""
        match await self._ask(self._nio.whoami):
            case nio.WhoamiResponse(user_id=user_id, device_id=device_id):
                return UserId(user_id), device_id
            case other:
                raise unexpected(other)

    async def send(self, room_id: RoomId, event_type: str, content: Mapping[str, Any], txn_id: TxnId) -> EventId:
        """Send one event as it is; the same transaction id is the same event however often it is tried."""
        match await self._ask(self._nio.room_send, room_id, event_type, dict(content), tx_id=txn_id):
            case nio.RoomSendResponse(event_id=event_id):
                return EventId(event_id)
            case other:
                raise unexpected(other)

    async def upload(self, filename: str, content_type: str, content: bytes) -> str:
        """Upload a file to the homeserver's media; returns its `mxc://` URI."""
        body = await self._read(
            Api.upload("", filename), deadline_s=self._deadline_s, content=content, content_type=content_type
        )
        uri = body.get("content_uri")
        if not isinstance(uri, str) or not uri.startswith("mxc://"):
            raise unexpected(body)
        return uri

    async def join(self, room_id: RoomId, servers: Sequence[str] = ()) -> None:
        """Accept an invitation, or join over one of these servers; a room that it is in already changes nothing."""
        request = join_request(room_id, servers)
        body = await self._read(request, deadline_s=self._deadline_s, content=b"{}", content_type="application/json")
        if not isinstance(body.get("room_id"), str):
            raise unexpected(body)

    async def successor(self, room_id: RoomId) -> Successor | None:
        """The room that a joined room's tombstone names; None where it names none."""
        return successor_in(await self._state(room_id, TOMBSTONE, whole=True))

    async def origin(self, room_id: RoomId) -> Origin:
        """What a joined room says of its beginning, and whether the bot may send messages there."""
        created = await self._state(room_id, CREATE, whole=True)
        return origin_in(created, await self.power_levels(room_id), own=self._user_id)

    async def resolve_alias(self, alias: str) -> RoomId:
        """The room that an alias means now; `Refused` where it means none."""
        match await self._ask(self._nio.room_resolve_alias, alias):
            case nio.RoomResolveAliasResponse(room_id=room_id):
                return RoomId(room_id)
            case other:
                raise unexpected(other)

    async def room_state(self, room_id: RoomId) -> RoomState:
        """Who is joined with which power, and whether the room is encrypted or replaced, asked anew.

        A room that the bot may not look into is one that it is not joined to; of one that
        it has left, the state is that which it may still read. Whether it is encrypted is
        None where the homeserver did not say: then nothing may be sent; the powers
        likewise: then nobody has any.
        """
        try:
            # Read by ourselves: nio takes nothing of an answer in which anybody's name is no text.
            body = await self._read(Api.joined_members("", room_id), deadline_s=self._deadline_s)
        except Refused as refused:
            if refused.status not in (403, NOT_FOUND):
                raise
            joined = frozenset[UserId]()
        else:
            members = body.get("joined")
            if not isinstance(members, dict):
                raise unexpected(body)
            joined = frozenset(map(UserId, members))
        encrypted, encryption = await self._encryption(room_id)
        replaced = await self._is_replaced(room_id, is_joined=self._user_id in joined)
        powers, creators = await self._powers(room_id)
        return RoomState(
            room_id=room_id,
            joined=joined,
            bot_joined=self._user_id in joined,
            encrypted=encrypted,
            encryption=encryption,
            replaced=replaced,
            powers=powers,
            creators=creators,
        )

    async def power_levels(self, room_id: RoomId) -> dict[str, Any] | None:
        """The content of a room's power levels, as it came; None where the room has none."""
        return await self._state(room_id, POWER_LEVELS)

    async def server_time_ms(self) -> int | None:
        """The homeserver's clock by its `Date` header: UTC milliseconds, whole seconds; None where it says none."""
        self._must_be_open()
        async with deadline(self._deadline_s):
            transport = await self._nio.send("GET", "/_matrix/client/versions", timeout=self._deadline_s)
            async with transport:
                await transport.read()
        try:
            said = parsedate_to_datetime(transport.headers["Date"])
        except (KeyError, ValueError):
            return None
        return int(said.timestamp() * 1000) if said.tzinfo is not None else None

    async def sync(self, since: str | None, *, timeout_ms: int, sync_filter: Mapping[str, Any]) -> dict[str, Any]:
        """One sync response, as it came. `timeout_ms` is how long the homeserver may wait for news.

        A sync from the start is answered at once, and anew: Synapse keeps answers for two
        minutes and gives them to equal requests, so such a request never equals the last.
        """
        if since is None:
            timeout_ms = next(self._anew) % ANEW_MS + 1
        request = Api.sync("", since=since, timeout=timeout_ms, filter=dict(sync_filter))
        return await self._read(request, deadline_s=timeout_ms / 1000 + self._deadline_s)

    async def messages(
        self,
        room_id: RoomId,
        from_token: str,
        *,
        limit: int,
        to_token: str | None = None,
        event_filter: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One page of a room's past before `from_token`, newest first, as it came."""
        request = Api.room_messages(
            "",
            room_id,
            start=from_token,
            end=to_token,
            limit=limit,
            message_filter=None if event_filter is None else dict(event_filter),
        )
        return await self._read(request, deadline_s=self._deadline_s)

    async def close(self) -> None:
        """Close the connections; no call works after it."""
        self._closed = True
        await self._nio.close()

    async def call(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Any other request of the client-server API, with a JSON body; the status and the JSON that came back.

        A 401 that is a step on the way, or says that a password is wrong, is an answer.
        Raises `HomeserverUnavailable` where nothing usable came, `RateLimited` and `TokenRefused`.
        """
        raw, transport = await self._exchange(
            (method, path), deadline_s=self._deadline_s, content=json.dumps(body), content_type="application/json"
        )
        answer = decode(raw)
        failure = None if transport.status == OK else failure_of(transport.status, transport.headers, raw)
        if answer is None:
            raise failure or unexpected(answer)
        if isinstance(failure, RateLimited | TokenRefused) or transport.status >= SERVER_ERROR:
            raise failure or unexpected(answer)
        return transport.status, answer

    async def ask_for(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `call`, where only 200 will do: `Refused` for an answer that never will be another one."""
        raw, transport = await self._exchange(
            (method, path), deadline_s=self._deadline_s, content=json.dumps(body), content_type="application/json"
        )
        answer = decode(raw)
        if transport.status != OK or answer is None:
            raise failure_of(transport.status, transport.headers, raw)
        return answer

    async def _is_replaced(self, room_id: RoomId, *, is_joined: bool) -> bool:
        try:
            return await self._state(room_id, TOMBSTONE) is not None
        except Refused:
            if is_joined:
                raise
            return False  # a room that it never was in, or whose state it may read no longer

    async def _encryption(self, room_id: RoomId) -> tuple[bool | None, Encryption]:
        """Whether a room is encrypted, and how; None where the homeserver did not say."""
        try:
            content = await self._state(room_id, ENCRYPTION)
        except TokenRefused:
            raise
        except MatrixError:
            return None, Encryption()
        return (False, Encryption()) if content is None else (True, encryption_of(content))

    async def _powers(self, room_id: RoomId) -> tuple[Powers | None, frozenset[UserId]]:
        """The room's power levels, None where the homeserver did not say all of it, and who outranks them."""
        try:
            created = await self._state(room_id, CREATE, whole=True) or {}
            levels = await self._state(room_id, POWER_LEVELS)
        except TokenRefused:
            raise
        except MatrixError:
            return None, frozenset()
        content, sender = created.get("content"), created.get("sender")
        if not isinstance(content, dict):  # a homeserver that does not know the parameter sends the content alone
            content, sender = created, None
        creator = sender if isinstance(sender, str) else None
        powers = first_powers(content, creator) if levels is None else powers_of(levels)
        return powers, creators_of(content, creator)

    async def _state(self, room_id: RoomId, event_type: str, *, whole: bool = False) -> dict[str, Any] | None:
        """The content of a state event, or with `whole` the event; None where the room has none."""
        method, path = Api.room_get_state_event("", room_id, event_type)
        request = (method, f"{path}&format={'event' if whole else 'content'}")
        try:
            return await self._read(request, deadline_s=self._deadline_s)
        except Refused as refused:
            if refused.status == NOT_FOUND and refused.errcode == "M_NOT_FOUND":
                return None
            raise

    async def _ask(self, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """`ask`, with our token: nio forgets its own at any error that says soft_logout, whatever it is about."""
        self._must_be_open()
        self._nio.access_token = self._token
        try:
            return await ask(self._deadline_s, call, *args, **kwargs)
        finally:
            self._nio.access_token = self._token

    async def _read(
        self, request: tuple[str, str], *, deadline_s: float, content: bytes | None = None, content_type: str = ""
    ) -> dict[str, Any]:
        """Make a request of nio's over nio's connection, but read the JSON ourselves.

        `AsyncClient.sync` and `room_messages` would check each event against JSON schemas
        (some 0.4 ms an event, fifty times what reading the JSON costs), keep rooms and a
        position that we do not use and that a sync from the start would go on from, and
        raise, with the whole response lost, where an event is no object: then the loop
        would stand still for good.
        """
        raw, transport = await self._exchange(
            request, deadline_s=deadline_s, content=content, content_type=content_type
        )
        body = decode(raw)
        if transport.status != OK or body is None:
            raise failure_of(transport.status, transport.headers, raw)
        return body

    async def _exchange(
        self, request: tuple[str, str], *, deadline_s: float, content: bytes | str | None = None, content_type: str = ""
    ) -> tuple[bytes, aiohttp.ClientResponse]:
        self._must_be_open()
        method, path = request
        # the token goes in the header only
        path = path.replace("?access_token=&", "?", 1).removesuffix("?access_token=")
        headers = {"Authorization": f"Bearer {self._token}"}
        if content is not None:
            headers["Content-Type"] = content_type
        async with deadline(deadline_s):
            transport = await self._nio.send(method, path, content, headers=headers, timeout=deadline_s)
            async with transport:
                raw = await transport.read()
        return raw, transport

    def _must_be_open(self) -> None:
        # nio would silently open new connections that nobody closes.
        if self._closed:
            raise HomeserverUnavailable("the client is closed")


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Whatever nio waits for, it ends here; what is no answer is `HomeserverUnavailable`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except NO_ANSWER as error:
        raise unanswered(error) from error


async def ask(deadline_s: float, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    """Make one of nio's own calls; return nio's response where the homeserver granted it.

    Looks at the HTTP status itself, because nio takes some refusals for what was asked.
    """
    async with deadline(deadline_s):
        answer = await call(*args, **kwargs)
        transport: aiohttp.ClientResponse = answer.transport_response
        raw = await transport.read()  # nio has read it: this takes what it kept
    if transport.status != OK:
        raise failure_of(transport.status, transport.headers, raw)
    return answer


def nio_config(deadline_s: float) -> AsyncClientConfig:
    """A nio client without memory, encryption and repeating of its own."""
    return AsyncClientConfig(
        max_limit_exceeded=0,
        max_timeouts=0,
        request_timeout=deadline_s,
        store=None,
        store_sync_tokens=False,
        encryption_enabled=False,
    )


def unexpected(answer: Any) -> HomeserverUnavailable:
    """A 200 that does not say what was asked: unusable, but a repeat is safe."""
    return HomeserverUnavailable(f"an answer that cannot be read ({type(answer).__name__})", status=OK)
