"""`GET /v1/events`: every change of status of the caller's requests, as Server-Sent Events.

The format is that of the HTML standard, section "Server-sent events".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from agentpod_bot.api.bodies import Query, place_of
from agentpod_bot.api.calls import BROKER, CALLER, LIMITS, SENT, caller_of
from agentpod_bot.api.view import changed
from agentpod_bot.core.journal import UNKNOWN
from agentpod_bot.errors import ShuttingDown, StoreUnavailable, Unauthorized

if TYPE_CHECKING:
    from agentpod_bot.api.ports import Stream
    from agentpod_bot.core.journal import Link, Place
    from agentpod_bot.core.kept import Change

CONTENT_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
HEARTBEAT = b": nothing new\n\n"
RETRY_MS = 2_000
"""So long a reader waits before it comes back."""
HASH_DIGITS = 16
MISSED = '{"reason":"the given id is not known any more; changes may have been missed"}'

log = structlog.get_logger(__name__)


async def events(request: web.Request) -> web.StreamResponse:
    """Stream every change of status of the caller's requests, until one side ends it.

    What an event says is so at that event: the request as it was right after the change. A
    reader that does not read in time is cut off, and goes on later after its last id.
    """
    place = _place(request)
    async with request.app[BROKER].follow(request[CALLER], place) as stream:
        response = request[SENT] = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        await _write(request, response, _beginning(stream))
        try:
            while True:
                changes = await stream.next(up_to_s=request.app[LIMITS].heartbeat_s)
                if not _is_known(request):
                    log.info("event_stream_ended", why="its token is none any more")
                    break
                await _write(request, response, b"".join(map(_event, changes)) or HEARTBEAT)
        except (ShuttingDown, StoreUnavailable) as fault:  # nothing is lost: the reader knows where to go on
            log.debug("event_stream_ended", why=fault.code)
    return response


def _place(request: web.Request) -> Place | None:
    """After which event the stream begins. An id that is none of ours is not known; it is no error."""
    since = Query(request.query.items()).since()
    match request.headers.getall(LAST_EVENT_ID, []):
        case []:
            return since
        case [event_id]:
            return place_of(event_id) or UNKNOWN
        case _:
            return UNKNOWN


def _is_known(request: web.Request) -> bool:
    """Whether the call's token still is its client's: a stream may outlive its token."""
    try:
        return caller_of(request).client == request[CALLER].client
    except Unauthorized:
        return False


def _beginning(stream: Stream) -> bytes:
    """Say at once where it begins, so that a reader can go on from there though nothing happened yet."""
    reset = f"event: reset\ndata: {MISSED}\n" if stream.reset else ""
    return f"retry: {RETRY_MS}\n{reset}id: {_id(stream.begins)}\n\n".encode()


def _event(change: Change) -> bytes:
    shown = changed(change).model_dump_json()
    return f"event: {change.status.value}\nid: {_id(change.link)}\ndata: {shown}\n\n".encode()


def _id(link: Link) -> str:
    """The line's number, and enough of its hash to tell it from that of another store."""
    return f"{link.seq}-{link.hash[:HASH_DIGITS]}"


async def _write(request: web.Request, response: web.StreamResponse, part: bytes) -> None:
    """Write, and wait until the reader has taken most of it. Raises `ConnectionError` where it does not."""
    try:
        async with asyncio.timeout(request.app[LIMITS].write_s):
            await response.write(part)
            await request.writer.drain()
    except TimeoutError as fault:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read its events") from fault
