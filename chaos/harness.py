"""The harness's side: asks, loses its connection, asks again, and writes down what it was told.

It never gives up before it has an end. Every line of its log is one JSON object: `asks`,
`cancels`, `told`, `refused`, `cut`, `ended`, `gave_up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from chaos.plan import replaced_body

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from chaos.plan import Request

WAITS_S = (0, 1, 5, 20, 20)
HANGS_UP = 0.15
"""How many waiting calls the harness itself drops."""
OK = (200, 201)
NOT_FOUND = 404
CONFLICT = 409

View = dict[str, Any]


class Harness:
    """Both clients of the daemon."""

    def __init__(
        self,
        url: str,
        tokens: Mapping[str, str],
        log: Path,
        random: Random,
        *,
        most_open: int,
        session: aiohttp.ClientSession,
    ) -> None:
        self.asked = 0
        self.ended = 0
        self._url = url
        self._tokens = tokens
        self._random = random
        self._open = asyncio.Semaphore(most_open)
        self._session = session
        self._log = log.open("a", buffering=1)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    async def play(self, request: Request, *, until: float) -> None:
        """Ask one request until it has an end; not at all where its turn comes after `until` (monotonic)."""
        async with self._open:
            if time.monotonic() > until:
                return
            self.asked += 1
            body = request.body | {"ttl_s": request.ttl_s}
            self._write(request, "asks", version=1, body=body)
            known = asyncio.Event()
            side = [asyncio.create_task(work) for work in self._meanwhile(request, known)]
            try:
                end = await self._until_ended(request, body, 1, known)
                if end["decision"]["outcome"] == "superseded":
                    end = await self._until_ended(
                        request, replaced_body(request) | {"ttl_s": request.ttl_s}, 2, asyncio.Event()
                    )
                self._write(request, "ended", view=end)
                self.ended += 1
            except asyncio.CancelledError:
                self._write(request, "gave_up")
                raise
            finally:
                for task in side:
                    task.cancel()
                await asyncio.gather(*side, return_exceptions=True)
        if self._random.random() < 0.25:  # noqa: PLR2004 - a quarter look again
            await asyncio.sleep(self._random.uniform(0, 5))
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                await self._call(request, "GET", f"/v1/requests/{request.request_id}")

    def _meanwhile(self, request: Request, known: asyncio.Event) -> list[Any]:
        """What the harness does beside waiting, once it was told that its request is known."""
        work = []
        if request.cancel_after_s is not None:
            path = f"/v1/requests/{request.request_id}/cancel"
            work.append(self._insist(request, request.cancel_after_s, path, known))
        if request.replace_after_s is not None:
            body = replaced_body(request) | {"ttl_s": request.ttl_s}
            work.append(self._insist(request, request.replace_after_s, "/v1/requests", known, body))
        return work

    async def _insist(
        self, request: Request, after_s: float, path: str, known: asyncio.Event, body: Any = None
    ) -> None:
        """Post to `path` until it is answered; `body` is what is asked instead, None for a cancellation."""
        version = None if body is None else 2
        await known.wait()
        await asyncio.sleep(after_s)
        if body is None:
            self._write(request, "cancels")
        else:
            self._write(request, "asks", version=version, body=body)
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                status, _ = await self._call(request, "POST", path, body, version=version)
                if status in (*OK, CONFLICT):
                    return
            await asyncio.sleep(self._random.uniform(0.2, 1))

    async def _until_ended(self, request: Request, body: View, version: int, known: asyncio.Event) -> View:
        while True:
            asks = not known.is_set() or self._random.random() < 0.5  # noqa: PLR2004 - half of the calls
            wait_s = self._random.choice(WAITS_S)
            patience_s = self._random.uniform(0.2, 4) if self._random.random() < HANGS_UP else wait_s + 40
            path = "/v1/requests" if asks else f"/v1/requests/{request.request_id}"
            try:
                async with asyncio.timeout(patience_s):
                    status, told = await self._call(
                        request,
                        "POST" if asks else "GET",
                        path,
                        body if asks else None,
                        version=version if asks else None,
                        wait_s=wait_s,
                    )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._write(request, "cut", error=type(error).__name__)
                status, told = 0, {}
            if status in OK:
                known.set()
                if told["decision"] is not None and (asks or told["subject"]["revision"] >= version):
                    return told
            if status not in OK or wait_s == 0:
                await asyncio.sleep(self._random.uniform(0.2, 1.2))

    async def _call(
        self,
        request: Request,
        method: str,
        path: str,
        body: Any = None,
        *,
        version: int | None = None,
        wait_s: float = 0,
    ) -> tuple[int, View]:
        headers = {"Authorization": f"Bearer {self._tokens[request.client]}"}
        query = {"wait": str(wait_s)} if wait_s else {}
        async with self._session.request(
            method, f"{self._url}{path}", json=body, params=query, headers=headers
        ) as response:
            told: View = await response.json(content_type=None)
        if response.status in OK:
            self._write(request, "told", by=f"{method} {response.status}", version=version, view=told)
        else:
            self._write(request, "refused", by=method, status=response.status, code=told.get("code"))
        return response.status, told

    def _write(self, request: Request, did: str, **more: Any) -> None:
        at_ms = time.time_ns() // 1_000_000
        line = {"at_ms": at_ms, "did": did, "client": request.client, "request_id": request.request_id} | more
        self._log.write(json.dumps(line) + "\n")
