"""The proxy between daemon and homeserver, and the faults that it makes of their calls.

It forwards one call at a time, whole. Which fault comes next is drawn from the seed, by
the kind of the call; `calm` lets everything pass.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "te", "upgrade"})
PAGE = "<html><body><h1>{status}</h1><p>the server behind this proxy is not there</p></body></html>"
SHARES = {"send": 0.35, "keys": 0.3, "sync": 0.15, "other": 0.08}
"""How many of each kind of call meet a fault."""
BODY_LIMIT = 16 * 1024 * 1024


class Chance(Protocol):
    """What is drawn from; `random.Random` fits."""

    def random(self) -> float:
        """From 0 up to 1."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Between the two."""
        ...

    def randint(self, a: int, b: int) -> int:
        """One of a to b."""
        ...

    def choice(self, seq: tuple[T, ...]) -> T:
        """One of these."""
        ...

    def choices(self, population: list[Fault], weights: list[int]) -> list[Fault]:
        """One of these, by weight."""
        ...


class Fault(StrEnum):
    """What can happen to a call."""

    CUT_BEFORE = "cut before it was passed on"
    CUT_AMID = "cut amid the response"
    CUT_AFTER = "cut instead of the response"
    DELAYED = "request delayed"
    DELAYED_AFTER = "response delayed"
    DOUBLED = "doubled at once"
    DOUBLED_LATER = "doubled later"
    LIMITED_MS = "429 with retry_after_ms"
    LIMITED_HEADER = "429 with Retry-After"
    LIMITED = "429 with neither"
    BROKEN_JSON = "5xx with JSON"
    BROKEN_HTML = "5xx with HTML"


WEIGHTS = {
    Fault.CUT_BEFORE: 12,
    Fault.CUT_AMID: 12,
    Fault.CUT_AFTER: 16,
    Fault.DELAYED: 8,
    Fault.DELAYED_AFTER: 8,
    Fault.DOUBLED: 10,
    Fault.DOUBLED_LATER: 10,
    Fault.LIMITED_MS: 6,
    Fault.LIMITED_HEADER: 3,
    Fault.LIMITED: 1,
    Fault.BROKEN_JSON: 7,
    Fault.BROKEN_HTML: 7,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """A key of `SHARES`."""
        if self.method == "PUT" and "/send/" in self.target:
            return "send"
        if "/v3/keys/" in self.target or "/v3/sendToDevice/" in self.target:
            return "keys"
        return "sync" if "/sync?" in self.target else "other"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response, whole."""

    status: int
    headers: dict[str, str]
    body: bytes


class Weather:
    """A proxy to one homeserver; `url` is set inside `async with Weather(…).blowing()`."""

    def __init__(self, target: str, chance: Chance) -> None:
        self.url = ""
        self.calm = True
        self.made: Counter[Fault] = Counter()
        self.hit: Counter[str] = Counter()
        """Faults by the kind of call."""
        self.passed = 0
        self.dark = False
        """Nobody answers at all."""
        self._target = target
        self._chance = chance
        self._later: set[asyncio.Task[Any]] = set()
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def blowing(self) -> AsyncIterator[Weather]:
        """Listen on a free port of the loopback interface."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        # A daemon that is gone must not leave its long poll at the homeserver.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            await runner.setup()
            try:
                await web.TCPSite(runner, LOOPBACK, 0).start()
                self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()
                for task in self._later:
                    task.cancel()
                await asyncio.gather(*self._later, return_exceptions=True)

    def _drawn(self, call: Call) -> Fault | None:
        if self.calm or self._chance.random() >= SHARES[call.kind]:
            return None
        fault = self._chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        self.made[fault] += 1
        self.hit[call.kind] += 1
        return fault

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        call = Call(request.method, request.raw_path, headers, await request.read())
        if self.dark:
            return _abort(request)
        self.passed += 1
        match self._drawn(call):
            case Fault.CUT_BEFORE:
                return await self._cut(request)
            case Fault.CUT_AMID:
                return await _cut_amid(request, await self._forward(call))
            case Fault.CUT_AFTER:
                await self._forward(call)
                return await self._cut(request)
            case Fault.DELAYED:
                await asyncio.sleep(self._chance.uniform(0.1, 2.5))
            case Fault.DELAYED_AFTER:
                answer = await self._forward(call)
                await asyncio.sleep(self._chance.uniform(0.1, 2.5))
                return _response(answer)
            case Fault.DOUBLED:
                first, second = await asyncio.gather(self._forward(call), self._forward(call))
                return _response(self._chance.choice((first, second)))
            case Fault.DOUBLED_LATER:
                answer = await self._forward(call)
                self._begin(self._again(call, self._chance.uniform(0.2, 4)))
                return _response(answer)
            case Fault.LIMITED_MS:
                wait_ms = self._chance.randint(50, 1500)
                return _limited({"retry_after_ms": wait_ms}, {})
            case Fault.LIMITED_HEADER:
                return _limited({}, {"Retry-After": str(self._chance.randint(1, 2))})
            case Fault.LIMITED:
                return _limited({}, {})
            case Fault.BROKEN_JSON:
                body = {"errcode": "M_UNKNOWN", "error": "Internal server error"}
                return web.json_response(body, status=self._chance.choice((500, 502, 503)))
            case Fault.BROKEN_HTML:
                return _page(self._chance.choice((500, 502, 503, 504)))
            case None:
                pass
        return _response(await self._forward(call))

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        """Cut with nothing said, which aiohttp's client hides by asking again at once, or with a first byte."""
        if self._chance.choice((True, False)):
            return await _cut_amid(request, Answer(200, {"Content-Type": "application/json"}, b"{"))
        return _abort(request)

    async def _again(self, call: Call, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._forward(call)

    async def _forward(self, call: Call) -> Answer:
        """The homeserver's own answer, or a proxy's page. What is to be written is written, whoever hangs up."""
        task = self._begin(self._asked(call))
        return await (task if call.method == "GET" else asyncio.shield(task))

    def _begin(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task

    async def _asked(self, call: Call) -> Answer:
        if self._session is None:
            raise RuntimeError("the proxy does not run")
        url = URL(f"{self._target}{call.target}", encoded=True)
        try:
            async with self._session.request(call.method, url, data=call.body or None, headers=call.headers) as got:
                kept = {name: value for name, value in got.headers.items() if name.lower() in ("content-type", "date")}
                return Answer(got.status, kept, await got.read())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Answer(502, {"Content-Type": "text/html"}, PAGE.format(status=502).encode())


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def _page(status: int) -> web.Response:
    return web.Response(status=status, text=PAGE.format(status=status), content_type="text/html")


def _limited(body: dict[str, Any], headers: dict[str, str]) -> web.Response:
    said = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests"} | body
    return web.Response(status=429, text=json.dumps(said), content_type="application/json", headers=headers)


def _abort(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # goes nowhere


async def _cut_amid(request: web.Request, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers | {"Content-Length": "1000000"})
    await response.prepare(request)
    await response.write(answer.body[: max(1, len(answer.body) // 2)])
    _abort(request)
    return response
