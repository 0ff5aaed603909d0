"""What a question says in a room: composed in one place, whoever has it said, so that it always says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.broker.reminders import approvers_there
from agentpod_bot.render.question import compose

if TYPE_CHECKING:
    from agentpod_bot.broker.change import Means
    from agentpod_bot.core.ids import Code, RoomId
    from agentpod_bot.core.model import NewQuestion, Question
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Tx


def composed(
    tx: Tx,
    asked: NewQuestion,
    room: RoomState,
    means: Means,
    *,
    stored: Question | None = None,
    in_room: tuple[Question, ...] | None = None,
) -> tuple[NewQuestion, dict[str, Any]]:
    """Return a question with what it offers in a room, and the whole content of its message there.

    `asked` names the route and the room in which it is to stand. `stored` is the question as
    a room has it already, None where none does; `in_room` are the room's open ones, if
    known. Raises what `compose` says.
    """
    policy = means.world.policy
    route = policy.routes.get(asked.route)
    guarded = route if route is None or stored is None else policy.on_behalf(route, stored)
    first = asked.route if stored is None else stored.whole.asked.route
    return compose(
        asked,
        mentions=approvers_there(route, room),
        other_codes=_codes_beside(tx, room.room_id, means.clock.now_ms(), in_room=in_room) - {asked.code},
        quorum=1 if guarded is None else guarded.quorum,
        needs_code=policy.is_strict(room),
        copied_from=None if asked.route == first else first,
        again=stored is not None and _comes_from_another_room(tx, asked, stored),
    )


def _comes_from_another_room(tx: Tx, asked: NewQuestion, stored: Question) -> bool:
    """Whether it stood in another room of its route before, or stands there still and is about to leave it."""
    leaves = stored.asked.route == asked.route and stored.asked.room_id != asked.room_id
    return leaves or tx.entered_ms(stored.row, asked.route) is not None


def _codes_beside(tx: Tx, room_id: RoomId, now_ms: int, *, in_room: tuple[Question, ...] | None) -> frozenset[Code]:
    """Codes of all questions that are open in a room, of ours and of other accounts."""
    ours = tx.open_questions(room_id=room_id) if in_room is None else in_room
    alive = [f for f in tx.foreign(room_id, since_ms=now_ms) if f.closed_ts is None and f.expires_at_ms >= now_ms]
    return frozenset(code for code in (*(q.asked.code for q in ours), *(f.code for f in alive)) if code is not None)
