"""When people are reminded of a question that is still open, and when they are left in peace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentpod_bot.core.policy import Route


def remind_at(route: Route, *, asked_ms: int, expires_at_ms: int) -> int | None:
    """When a route wants a question of its own remembered; None where it wants none, or the question is too short."""
    if route.remind_before_ms is None or expires_at_ms - asked_ms <= route.remind_before_ms:
        return None
    return expires_at_ms - route.remind_before_ms


def is_quiet(route: Route, now_ms: int) -> bool:
    """Whether nobody is to be notified on a route now."""
    return route.quiet is not None and route.quiet.holds(now_ms)


def quiet_until(route: Route, *, now_ms: int, expires_at_ms: int) -> int | None:
    """When the quiet hours that hold on a route now are over; None where none do, or a question ends before."""
    if route.quiet is None or not route.quiet.holds(now_ms):
        return None
    ends_ms = route.quiet.end_of(now_ms)
    return ends_ms if ends_ms < expires_at_ms else None
