"""The harness that the demo plays: three questions, asked over the daemon's HTTP endpoint."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from agentpod_bot.errors import CannotStart

if TYPE_CHECKING:
    from types import TracebackType

WAIT_S = 60
"""How long one HTTP call waits for an answer before it asks again; the endpoint allows 600."""
OPEN = frozenset({"queued", "pending"})
AGAIN_S = 0.2
"""Pause before a call that was answered 503 is made again."""
GONE_S = 20.0
"""How long the daemon may be unreachable before the harness gives up."""

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of the demo: its request, and what is said before it is asked."""

    about: str
    body: View

    def options(self) -> tuple[tuple[str, str], ...]:
        """Id and label of each option, in the order in which the room numbers them."""
        return tuple((option["id"], option["label"]) for option in self.body["options"])


def _options(*kinds: str) -> list[dict[str, str]]:
    labels = {
        "allow_once": "Allow once",
        "allow_always": "Always allow",
        "reject_once": "Reject",
        "reject_always": "Never allow",
    }
    return [{"id": kind, "kind": kind, "label": labels[kind]} for kind in kinds]


QUESTIONS = (
    Asked(
        "A plain request: one command, and four ways to answer.",
        {
            "title": "Run the test suite",
            "tool_kind": "execute",
            "options": _options("allow_once", "allow_always", "reject_once", "reject_always"),
            "preview": [{"type": "text", "label": "Command", "text": "bun test"}],
        },
    ),
    Asked(
        "A request with more to see: a command of two lines, and two fields.",
        {
            "title": "Deploy the hub to staging",
            "tool_kind": "execute",
            "options": _options("allow_once", "reject_once"),
            "preview": [
                {
                    "type": "text",
                    "label": "Command",
                    "text": "git push staging main\nmake -C apps/hub deploy ENV=staging",
                },
                {"type": "field", "label": "Location", "value": "apps/hub"},
                {"type": "field", "label": "Branch", "value": "main"},
            ],
        },
    ),
    Asked(
        "A request that nobody answers in time: silence is never a yes, and never a no either.",
        {
            "title": "Delete the old backups",
            "tool_kind": "delete",
            "options": _options("allow_once", "reject_once"),
            "preview": [{"type": "text", "label": "Command", "text": "rm -r /srv/backups/2019"}],
        },
    ),
)


class NotNow(Exception):
    """The daemon cannot ask at this moment (503)."""


class Harness:
    """A client of the endpoint; use it with `async with`."""

    def __init__(self, url: str, token: str) -> None:
        """Nothing is sent before the first call."""
        self._url = url
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"}, timeout=aiohttp.ClientTimeout(total=WAIT_S + 30)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, question: Asked, *, session_id: str, request_id: str, ttl_s: int) -> View:
        """Ask, and wait until the question is closed; return the view of its end.

        A call that is cut is simply made again: a repeat of the same request joins the
        first. So is one that the daemon cannot take just now (503), as while it comes into
        the room. Raises `CannotStart` where the endpoint refuses, or stays away.
        """
        body = question.body | {
            "session_id": session_id,
            "request_id": request_id,
            "agent": "demo",
            "route": "demo",
            "ttl_s": ttl_s,
        }
        patience = time.monotonic() + GONE_S
        while True:
            try:
                view = await self._post(body)
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() > patience:
                    raise CannotStart(f"the daemon's endpoint cannot be reached: {error!r}") from error
                await asyncio.sleep(0.5)
                continue
            except NotNow as error:
                if time.monotonic() > patience:
                    raise CannotStart(str(error)) from error
                await asyncio.sleep(AGAIN_S)
                continue
            if view["status"] not in OPEN:
                return view
            patience = time.monotonic() + GONE_S

    async def _post(self, body: View) -> View:
        if self._session is None:
            raise RuntimeError("a Harness is used inside `async with`")
        async with self._session.post(f"{self._url}/v1/requests", params={"wait": str(WAIT_S)}, json=body) as response:
            told: View = json.loads(await response.read())
            if response.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
                return told
            refusal = f"the daemon refuses the question ({response.status}): {json.dumps(told)}"
            raise NotNow(refusal) if response.status == HTTPStatus.SERVICE_UNAVAILABLE else CannotStart(refusal)
