"""Asking and waiting so that a lost connection or a restart of the daemon loses no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from agentpod_bot.cli.asking import open_for_s, same_subject
from agentpod_bot.proxy.client import Reply, Unreached, refused, unreachable
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.cli.asking import Asked, View
    from agentpod_bot.proxy.client import Daemon

WAIT_S = 60
"""How long the daemon holds one waiting call; a shorter one than its maximum lives through proxies."""
RETRY_S = 2.0
UNSURE_S = 60.0
"""How long a call that may or may not have been taken is repeated before this gives up."""
GRACE_S = 60.0
"""How long after its expiry an unreachable daemon is still asked how a request ended."""
CLOSED = frozenset({"decided", "expired", "cancelled", "superseded", "answered_elsewhere", "undeliverable"})
PASSING = frozenset({500, 502, 504})


class Timer(Protocol):
    """Monotonic time; the part of `ports.Clock` that this needs."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


async def post(daemon: Daemon, asked: Asked, timer: Timer) -> View:
    """Ask, once. A call that may have been taken is repeated with the same request id, which joins it.

    Raises `Stopped` where nobody could be asked.
    """
    give_up = timer.monotonic() + UNSURE_S
    while True:
        try:
            reply = await daemon.submit(asked.body)
        except Unreached as fault:
            if not fault.sent or timer.monotonic() >= give_up:
                raise unreachable(fault, daemon.endpoint) from fault
            await timer.sleep(RETRY_S)
            continue
        if reply.status in {200, 201} and reply.content:
            return reply.content
        if not passing(reply) or timer.monotonic() >= give_up:
            raise no_answer(reply, daemon)
        await timer.sleep(pause_s(reply, give_up - timer.monotonic()))


async def closed(daemon: Daemon, asked: Asked, view: View, timer: Timer, say: Callable[[str], None]) -> View:
    """Wait until the request of `view` is closed, over lost connections and restarts of the daemon.

    Returns the closed view, or the first one of another revision. Raises `Stopped` where
    the daemon no longer knows the request, or stays away until after its expiry.
    """
    posted = view
    give_up = timer.monotonic() + open_for_s(view) + GRACE_S
    away = False
    while view.get("status") not in CLOSED and same_subject(posted, view):
        try:
            reply = await daemon.wait(asked.request_id, WAIT_S)
        except Unreached as fault:
            if timer.monotonic() >= give_up:
                raise unreachable(fault, daemon.endpoint) from fault
            if not away:
                say(f"The daemon does not answer ({fault}); the question stays, trying again.")
            away = True
            await timer.sleep(RETRY_S)
            continue
        if reply.status == 200 and reply.content:  # noqa: PLR2004 - HTTP's number
            view, away = reply.content, False
        elif timer.monotonic() >= give_up or not (passing(reply) or reply.status in {429, 503}):
            raise no_answer(reply, daemon)
        else:
            await timer.sleep(pause_s(reply, give_up - timer.monotonic()))
    return view


def pause_s(reply: Reply, left_s: float) -> float:
    """How long to wait before the same call again: as asked for, but not past what is `left_s`."""
    return min(reply.retry_after_s or RETRY_S, max(left_s, RETRY_S))


def passing(reply: Reply) -> bool:
    """Whether the same call may well succeed soon, and repeating it does no harm."""
    return reply.status in PASSING or reply.code in {"shutting_down", "too_many_waits"}


def no_answer(reply: Reply, daemon: Daemon) -> Stopped:
    """Why nobody answers; never the exit code of a rejection, which only a person gives."""
    stopped = refused(reply, daemon.endpoint)
    return Stopped(ExitCode.NO_ANSWER, str(stopped)) if stopped.exit_code is ExitCode.NO else stopped
