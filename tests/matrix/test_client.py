from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.core.room import Powers
from agentpod_bot.errors import HomeserverUnavailable, MatrixError, RateLimited, Refused, TokenRefused
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.response import SYNC_FILTER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentpod_bot.ports import Homeserver
    from tests.matrix.fake_homeserver import FakeHomeserver

MESSAGE = {"msgtype": "m.text", "body": "Permission needed", "dev.agentpod.permission": {"deep": [1, "é"]}}
TXN = TxnId("t1")

CALLS: dict[str, tuple[str, str, Callable[[MatrixClient, RoomId], Awaitable[Any]]]] = {
    "whoami": ("GET", "/whoami", lambda client, _room: client.whoami()),
    "send": ("PUT", "/send/", lambda client, room: client.send(room, "m.room.message", MESSAGE, TXN)),
    "join": ("POST", "/join/", lambda client, room: client.join(room)),
    "room_state": ("GET", "/joined_members", lambda client, room: client.room_state(room)),
    "resolve_alias": ("GET", "/directory/", lambda client, _room: client.resolve_alias("#ops:hs.example")),
    "sync": ("GET", "/sync", lambda client, _room: client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER)),
    "messages": ("GET", "/messages", lambda client, room: client.messages(room, "s1_1", limit=10)),
}
every_call = pytest.mark.parametrize("name", CALLS)


async def failure(client: MatrixClient, room: RoomId, name: str) -> MatrixError:
    with pytest.raises(MatrixError) as caught:
        await CALLS[name][2](client, room)
    return caught.value


def as_port(client: MatrixClient) -> Homeserver:
    """Type-checked: the client fits the broker's port."""
    return client


# What is asked for.


async def test_it_knows_who_it_is(client: MatrixClient, pod: UserId) -> None:
    assert await client.whoami() == (pod, "POD")
    assert as_port(client).user_id == pod


async def test_an_event_is_sent_exactly_as_it_is(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId
) -> None:
    event_id = await client.send(room, "m.room.message", MESSAGE, TXN)
    (sent,) = hs.sent_by(pod)
    assert (sent["event_id"], sent["type"], sent["content"]) == (event_id, "m.room.message", MESSAGE)


async def test_the_same_transaction_id_is_the_same_event(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId
) -> None:
    first = await client.send(room, "m.room.message", MESSAGE, TXN)
    assert await client.send(room, "m.room.message", MESSAGE, TXN) == first
    assert await client.send(room, "m.room.message", MESSAGE, TxnId("t2")) != first
    assert len(hs.sent_by(pod)) == 2


async def test_an_event_whose_answer_was_lost_is_not_sent_twice(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId
) -> None:
    hs.swallow("PUT", "/send/")
    assert isinstance(await failure(client, room, "send"), HomeserverUnavailable)
    event_id = await client.send(room, "m.room.message", MESSAGE, TXN)
    assert [event["event_id"] for event in hs.sent_by(pod)] == [event_id]


async def test_ids_are_passed_on_whatever_characters_they_hold(client: MatrixClient, hs: FakeHomeserver) -> None:
    room = RoomId(hs.room(client.user_id, room_id="!a%b?c#d é"))
    event_id = await client.send(room, "m.room.message", MESSAGE, TxnId("t 1?"))
    assert hs.timeline(room)[-1]["event_id"] == event_id


async def test_the_token_goes_in_the_header_and_nowhere_else(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, token: str
) -> None:
    for _, _, call in CALLS.values():
        await call(client, room)
    authorised = [call for call in hs.calls if "/directory/" not in call.path]
    assert {call.token for call in authorised} == {token}
    assert not [call for call in hs.calls if "access_token" in call.query]


async def test_an_invitation_is_accepted(client: MatrixClient, hs: FakeHomeserver, pod: UserId, owner: UserId) -> None:
    room = RoomId(hs.room(owner))
    with pytest.raises(Refused):
        await client.join(room)
    hs.invite(room, pod, by=owner)
    await client.join(room)
    assert (await client.room_state(room)).bot_joined


async def test_an_alias_is_resolved(client: MatrixClient, room: RoomId) -> None:
    assert await client.resolve_alias("#ops:hs.example") == room
    with pytest.raises(Refused) as caught:
        await client.resolve_alias("#nowhere:hs.example")
    assert (caught.value.errcode, caught.value.status) == ("M_NOT_FOUND", 404)


# The state of a room.


async def test_a_rooms_state_is_asked_anew_each_time(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    state = await client.room_state(room)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == ({pod, owner}, True, False, False)
    hs.leave(room, owner)
    hs.encrypt(room, by=pod)
    hs.replace(room, by=pod)
    state = await client.room_state(room)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == ({pod}, True, True, True)


async def test_a_member_with_a_name_that_is_no_text_keeps_no_room_from_being_known(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    """Their profile is their own to write, and while one room's state is not known no answer in any is read."""
    broken: dict[str, Any] = {"joined": {owner: {"display_name": 5, "avatar_url": []}, pod: None}}
    hs.answer_with("GET", "/joined_members", status=200, body=broken)
    assert (await client.room_state(room)).joined == {pod, owner}


@pytest.mark.parametrize("body", [{}, {"joined": []}, {"joined": None}])
async def test_an_answer_that_names_no_members_is_none(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, body: dict[str, Any]
) -> None:
    hs.answer_with("GET", "/joined_members", status=200, body=body)
    with pytest.raises(HomeserverUnavailable):
        await client.room_state(room)


async def test_a_room_that_the_bot_may_not_look_into_is_one_it_is_not_in(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    hs.kick(room, pod, by=owner)
    for kind in ("encryption", "tombstone", "create", "power_levels"):
        hs.answer_with("GET", f"/state/m.room.{kind}", status=403, body={"errcode": "M_FORBIDDEN"})
    state = await client.room_state(room)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == (frozenset(), False, None, False)
    never = RoomId(hs.room(owner))
    state = await client.room_state(never)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == (frozenset(), False, None, False)


async def test_of_a_room_that_the_bot_left_it_knows_what_it_may_still_read(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    hs.encrypt(room, by=owner)
    hs.kick(room, pod, by=owner)
    hs.replace(room, by=owner)
    state = await client.room_state(room)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == (frozenset(), False, True, False)
    hs.join(room, pod)
    hs.kick(room, pod, by=owner)
    state = await client.room_state(room)
    assert (state.joined, state.bot_joined, state.encrypted, state.replaced) == (frozenset(), False, True, True)
    hs.answer_with("GET", "/state/m.room.tombstone", status=502)
    with pytest.raises(HomeserverUnavailable):
        await client.room_state(room)
    hs.join(room, pod)
    hs.answer_with("GET", "/state/m.room.tombstone", status=403, body={"errcode": "M_FORBIDDEN"})
    with pytest.raises(Refused):
        await client.room_state(room)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"errcode": "M_UNKNOWN", "error": ""}),
        (403, {"errcode": "M_FORBIDDEN", "error": ""}),
        (404, "<html>not found</html>"),
        (404, {"errcode": "M_UNRECOGNIZED", "error": ""}),
        (429, {"errcode": "M_LIMIT_EXCEEDED", "error": ""}),
    ],
)
async def test_whether_a_room_is_encrypted_is_unknown_unless_the_homeserver_says_so(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, status: int, body: Any
) -> None:
    hs.answer_with("GET", "/state/m.room.encryption", status=status, body=body)
    assert (await client.room_state(room)).encrypted is None


async def test_a_page_instead_of_a_state_event_never_means_that_a_room_is_in_clear_text(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    hs.answer_with("GET", "/state/m.room.encryption", status=200, body="<html>welcome to the hotel</html>")
    assert (await client.room_state(room)).encrypted is not False


async def test_a_dead_token_is_not_an_unknown_encryption(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    hs.answer_with("GET", "/state/m.room.encryption", status=401, body={"errcode": "M_UNKNOWN_TOKEN", "error": ""})
    with pytest.raises(TokenRefused):
        await client.room_state(room)


async def test_a_room_is_not_taken_for_current_while_nobody_says_so(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    hs.answer_with("GET", "/state/m.room.tombstone", status=502, body="<html>")
    with pytest.raises(HomeserverUnavailable):
        await client.room_state(room)


async def test_a_rooms_powers_are_read_with_its_state(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    assert (await client.room_state(room)).powers == Powers(users={})
    hs.create(room, by=owner, version="11")
    assert (await client.room_state(room)).powers == Powers(users={owner: 100})
    hs.power(room, by=owner, users={pod: 50, owner: "100"}, users_default=1)
    state = await client.room_state(room)
    assert (state.powers, state.creators) == (Powers(users={pod: 50, owner: 0}, default=1), frozenset())
    hs.create(room, by=owner, version="12", additional_creators=[pod])
    assert (await client.room_state(room)).creators == {owner, pod}


@pytest.mark.parametrize("kind", ["power_levels", "create"])
@pytest.mark.parametrize("answer", [(500, "<html>"), (403, {"errcode": "M_FORBIDDEN"}), (200, "<html>")])
async def test_powers_that_cannot_be_read_are_unknown_and_nobody_has_any(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, kind: str, answer: tuple[int, Any]
) -> None:
    hs.create(room, by=hs.user("owner"))
    hs.answer_with("GET", rf"/state/m\.room\.{kind}", status=answer[0], body=answer[1])
    state = await client.room_state(room)
    assert (state.powers, state.creators, state.bot_joined) == (None, frozenset(), True)


async def test_a_homeserver_that_gives_the_content_alone_names_no_creator(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId
) -> None:
    body = {"room_version": "12", "additional_creators": [pod]}
    hs.answer_with("GET", r"/state/m\.room\.create", status=200, body=body)
    assert (await client.room_state(room)).creators == {pod}


# Faults, the same for every call.


@every_call
async def test_a_429_is_not_waited_for_here(client: MatrixClient, hs: FakeHomeserver, room: RoomId, name: str) -> None:
    method, path, _ = CALLS[name]
    hs.answer_with(method, path, status=429, body={"errcode": "M_LIMIT_EXCEEDED", "error": "", "retry_after_ms": 1234})
    error = await failure(client, room, name)
    assert isinstance(error, RateLimited)
    assert error.retry_after_ms == 1234
    hs.answer_with(method, path, status=429, body="<html>", headers={"Retry-After": "7"})
    error = await failure(client, room, name)
    assert isinstance(error, RateLimited)
    assert error.retry_after_ms == 7000
    assert hs.count(method, path) == 2


@every_call
@pytest.mark.parametrize(
    "answer", [(502, "<html>bad gateway</html>"), (500, {"errcode": "M_UNKNOWN", "error": ""}), (503, "")]
)
async def test_a_broken_homeserver_may_be_asked_again(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, name: str, answer: tuple[int, Any]
) -> None:
    method, path, call = CALLS[name]
    status, body = answer
    hs.answer_with(method, path, status=status, body=body)
    error = await failure(client, room, name)
    assert isinstance(error, HomeserverUnavailable)
    assert error.status == status
    await call(client, room)
    assert hs.count(method, path) == 2


@every_call
async def test_a_connection_that_is_cut_may_be_asked_again(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, name: str
) -> None:
    method, path, call = CALLS[name]
    for cut in (hs.cut, hs.cut_body):
        cut(method, path)
        assert isinstance(await failure(client, room, name), HomeserverUnavailable)
    await call(client, room)


@every_call
@pytest.mark.parametrize("body", ["<html>welcome to the hotel</html>", "", b"\xff\xfe\x00", b"[1]"])
async def test_a_page_instead_of_an_answer_is_no_answer(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, name: str, body: Any
) -> None:
    method, path, _ = CALLS[name]
    hs.answer_with(method, path, status=200, body=body)
    assert isinstance(await failure(client, room, name), HomeserverUnavailable)


@every_call
async def test_a_refusal_keeps_its_errcode(client: MatrixClient, hs: FakeHomeserver, room: RoomId, name: str) -> None:
    method, path, _ = CALLS[name]
    hs.answer_with(method, path, status=400, body={"errcode": "M_BAD_JSON", "error": "no"})
    error = await failure(client, room, name)
    assert isinstance(error, Refused)
    assert (error.errcode, error.status) == ("M_BAD_JSON", 400)


@every_call
async def test_a_homeserver_that_says_nothing_is_not_waited_for_longer_than_the_deadline(
    hs: FakeHomeserver, room: RoomId, pod: UserId, token: str, name: str
) -> None:
    method, path, _ = CALLS[name]
    client, never = MatrixClient(hs.url, pod, token, deadline_s=0.05), asyncio.Event()
    hs.hold(method, path, never)
    try:
        assert isinstance(await failure(client, room, name), HomeserverUnavailable)
    finally:
        never.set()
        await client.close()


@pytest.mark.parametrize("name", [name for name in CALLS if name != "resolve_alias"])  # an alias needs no token
async def test_a_refused_token_is_told_apart_and_kept(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, token: str, name: str
) -> None:
    hs.revoke(token, soft_logout=True)
    error = await failure(client, room, name)
    assert isinstance(error, TokenRefused)
    assert error.soft_logout
    hs.restore(token)
    await CALLS[name][2](client, room)


async def test_an_error_that_makes_nio_forget_its_token_does_not(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    hs.answer_with("PUT", "/send/", status=500, body={"errcode": "M_UNKNOWN", "error": "", "soft_logout": True})
    assert isinstance(await failure(client, room, "send"), HomeserverUnavailable)
    await client.send(room, "m.room.message", MESSAGE, TXN)


async def test_a_refused_send_says_why(client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId) -> None:
    with pytest.raises(Refused) as caught:
        await client.send(room, "m.room.message", {"msgtype": "m.text", "body": "x" * 70_000}, TXN)
    assert (caught.value.errcode, caught.value.status) == ("M_TOO_LARGE", 413)
    hs.kick(room, pod, by=pod)
    with pytest.raises(Refused) as caught:
        await client.send(room, "m.room.message", MESSAGE, TXN)
    assert (caught.value.errcode, caught.value.status) == ("M_FORBIDDEN", 403)


async def test_nobody_there_is_unavailable(pod: UserId, room: RoomId) -> None:
    client = MatrixClient("http://127.0.0.1:9", pod, "x")
    assert isinstance(await failure(client, room, "send"), HomeserverUnavailable)
    assert isinstance(await failure(client, room, "sync"), HomeserverUnavailable)
    await client.close()


@every_call
async def test_a_closed_client_opens_nothing_anew(client: MatrixClient, room: RoomId, name: str) -> None:
    await client.close()
    assert isinstance(await failure(client, room, name), HomeserverUnavailable)


async def test_cancelling_a_call_cancels_it(client: MatrixClient, hs: FakeHomeserver) -> None:
    never = asyncio.Event()
    fault = hs.hold("GET", "/whoami", never)
    task = asyncio.create_task(client.whoami())
    await fault.hit.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_hanging_call_does_not_hold_up_the_others(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    gate = asyncio.Event()
    fault = hs.hold("PUT", "/send/m.room.message/held", gate)
    held = asyncio.create_task(client.send(room, "m.room.message", MESSAGE, TxnId("held")))
    await fault.hit.wait()
    await client.send(room, "m.room.message", MESSAGE, TxnId("next"))
    assert not held.done()
    gate.set()
    await held


# Reading.


async def test_events_that_nio_judges_malformed_come_through(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    broken = [{"type": "m.room.message", "content": None}, {"type": 7}, {}, {"event_id": "$x", "type": "m.reaction"}]
    for event in broken:
        hs.inject(room, event)
    response = await client.sync(None, timeout_ms=0, sync_filter={})
    assert response["rooms"]["join"][room]["timeline"]["events"][-len(broken) :] == broken
    page = await client.messages(room, response["next_batch"], limit=len(broken))
    assert page["chunk"] == broken[::-1]


async def test_a_sync_from_the_start_is_one_whatever_was_synced_before(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId
) -> None:
    hs.say(room, owner, "1")
    first = await client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER)
    assert await client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER) == first
    assert [call.query.get("since") for call in hs.calls] == [None, None]


async def test_a_sync_from_the_start_is_never_answered_from_a_homeservers_cache(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId
) -> None:
    for _ in range(3):
        assert room in (await client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER))["rooms"]["join"]
    assert len({tuple(sorted(call.query.items())) for call in hs.calls}) == 3


async def test_a_long_poll_ends_with_the_news(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId
) -> None:
    since = (await client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER))["next_batch"]
    poll = asyncio.create_task(client.sync(since, timeout_ms=30_000, sync_filter=SYNC_FILTER))
    await hs.until(lambda: hs.count("GET", "/sync") == 2)
    hs.say(room, owner, "1")
    events = (await poll)["rooms"]["join"][room]["timeline"]["events"]
    assert [event["content"]["body"] for event in events] == ["1"]


async def test_the_sending_device_sees_its_transaction_id_and_no_other_does(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, pod: UserId
) -> None:
    await client.send(room, "m.room.message", MESSAGE, TXN)
    other = MatrixClient(hs.url, pod, hs.token(pod))
    seen = []
    for reader in (client, other):
        response = await reader.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER)
        seen.append(response["rooms"]["join"][room]["timeline"]["events"][-1]["unsigned"])
    await other.close()
    assert seen == [{"transaction_id": TXN}, {}]
