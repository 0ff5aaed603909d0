"""Questions of other accounts: while a room shows one beside the bot's own, a bare answer is for neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentpod_bot.core.ids import EventId, UserId
from agentpod_bot.core.room import Foreign

if TYPE_CHECKING:
    from agentpod_bot.broker.change import Means
    from agentpod_bot.core.ids import Code
    from agentpod_bot.core.room import RoomState, Seen, Undecryptable
    from agentpod_bot.ports import Tx

DAY_MS = 86_400_000
"""No question of another account counts as open for longer."""
OTHERS_MS = 1_800_000
"""How far back a room is read for questions of other accounts: as long as a card alone counts as open.

One of which nothing was ever read is read back for as long as any of them does.
"""

NOBODY: Final = UserId("*")
"""No account is called so."""


def keep_foreign(
    tx: Tx,
    event: Seen,
    room: RoomState,
    means: Means,
    *,
    code: Code | None,
    expires_at_ms: int,
    stands_as: EventId | None = None,
) -> None:
    """Remember a question that is not in this store. Nobody can make bare answers unclear for ever."""
    shown_ts = min(event.ts, means.clock.now_ms())  # whoever sends an event says when that was
    tx.keep_foreign(
        Foreign(
            event_id=stands_as or event.event_id,
            room_id=room.room_id,
            sender=event.sender,
            code=code,
            shown_ts=shown_ts,
            expires_at_ms=min(expires_at_ms, shown_ts + DAY_MS),
            closed_ts=None,
        )
    )


def keep_unread(tx: Tx, room: RoomState, means: Means) -> None:
    """Remember that a question may stand in what was never read: nobody knows whose, nor that it ended."""
    now_ms = means.clock.now_ms()
    tx.keep_foreign(
        Foreign(
            event_id=EventId(f"unread.{means.chance.hex(128)}"),  # no event is called so: nobody can edit or redact it
            room_id=room.room_id,
            sender=NOBODY,
            code=None,
            shown_ts=now_ms,
            expires_at_ms=now_ms + DAY_MS,
            closed_ts=None,
        )
    )


def may_ask(event: Undecryptable, room: RoomState, means: Means) -> bool:
    """Whether what cannot be read here may be a question, which people there can read: nobody's who answers.

    A question names no other event.
    """
    policy = means.world.policy
    routes = (route for route in policy.routes.values() if route.room_id == room.room_id)
    answers = any(policy.is_approver(event.sender, route, room) for route in routes)
    return not answers and event.names.named is None
