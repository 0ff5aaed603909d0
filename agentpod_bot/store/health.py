"""Whether the store takes a write, and how much stands in it that is not done."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.kept import Backlog
from agentpod_bot.core.model import Status
from agentpod_bot.store.tables import is_unsent, outbox, questions, write_checks
from agentpod_bot.store.transaction import Transaction

_q = questions.c

_new_check = insert(write_checks)
_TOUCH = _new_check.on_conflict_do_update(
    index_elements=[write_checks.c.slot], set_={"at_ms": _new_check.excluded.at_ms}
)
_OPEN = select(_q.status, func.count(), func.min(_q.created_at_ms)).where(_q.closed_at_ms.is_(None)).group_by(_q.status)
_UNSENT = select(func.count(), func.min(outbox.c.due_ms)).where(is_unsent)


class Health(Transaction):
    """The part of a transaction that says how the store is; promises stand in `ports.Tx`."""

    def touch(self, now_ms: int) -> None:
        """Write a time that was not there before: SQLite writes nothing where nothing changes."""
        self._change(_TOUCH, {"slot": 1, "at_ms": now_ms})

    def backlog(self) -> Backlog:
        """How much is open and unsent, and since when."""
        counts: dict[str, int] = {}
        asked: list[int] = []
        for status, count, oldest_ms in self._rows(_OPEN):
            counts[status] = count
            asked.append(oldest_ms)
        [(unsent, oldest_unsent_ms)] = self._rows(_UNSENT)
        return Backlog(
            queued=counts.get(Status.QUEUED, 0),
            pending=counts.get(Status.PENDING, 0),
            oldest_open_ms=min(asked, default=None),
            unsent=unsent,
            oldest_unsent_ms=oldest_unsent_ms,
        )
