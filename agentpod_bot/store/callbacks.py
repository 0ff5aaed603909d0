"""Outcomes that are to be posted, each until it is taken or given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, exists, insert, select, update

from agentpod_bot.core.kept import Callback
from agentpod_bot.store.tables import callbacks
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from agentpod_bot.core.ids import ClientName, WebhookId
    from agentpod_bot.core.model import Question

_c = callbacks.c
_THIS = _c.callback_id == bindparam("this")
_OF_CLIENT = _c.client == bindparam("of_client")

_earlier = callbacks.alias("earlier")
_ITS_TURN = ~exists().where(
    _earlier.c.client == _c.client,
    _earlier.c.request_id == _c.request_id,
    _earlier.c.callback_id < _c.callback_id,
)
_CALL_BACK = insert(callbacks)
_DUE_AT = select(_c.not_before_ms).where(_OF_CLIENT, _ITS_TURN).order_by(_c.not_before_ms).limit(1)
_NEXT = (
    select(_c.callback_id)
    .where(_OF_CLIENT, _c.not_before_ms <= bindparam("due_by_ms"), _ITS_TURN)
    .order_by(_c.not_before_ms, _c.callback_id)
    .limit(bindparam("at_most"))
)
_BEGIN = (
    update(callbacks)
    .where(_c.callback_id.in_(_NEXT.correlate(None).scalar_subquery()))
    .values(attempts=_c.attempts + 1, not_before_ms=bindparam("again_ms"))
    .returning(_c.callback_id, _c.question_row, _c.webhook_id, _c.attempts)
)
_POSTPONE = update(callbacks).where(_THIS).values(not_before_ms=bindparam("until_ms"))
_FINISH = delete(callbacks).where(_THIS)
_HASTEN = (
    update(callbacks)
    .where(_OF_CLIENT, _c.not_before_ms > bindparam("now_ms"))
    .values(not_before_ms=bindparam("now_ms"))
)
_LAPSE = delete(callbacks).where(_c.closed_at_ms < bindparam("bound_ms"))


class Callbacks(Transaction):
    """The part of a transaction that is about callbacks; promises stand in `ports.Tx`."""

    def call_back(self, question: Question, webhook_id: WebhookId, at_ms: int) -> None:
        """Note that an outcome is to be posted. Raises ValueError where that was noted before."""
        self._change(
            _CALL_BACK,
            {
                "question_row": question.row,
                "client": question.key.client,
                "request_id": question.key.request_id,
                "webhook_id": webhook_id,
                "closed_at_ms": at_ms,
                "not_before_ms": at_ms,
                "attempts": 0,
            },
        )

    def callback_due(self, client: ClientName) -> int | None:
        """When a callback to this client can first be made; None where there is none to make."""
        due_ms: int | None = self._value(_DUE_AT, {"of_client": client})
        return due_ms

    def begin_callbacks(
        self, client: ClientName, *, due_by_ms: int, again_ms: int, at_most: int
    ) -> tuple[Callback, ...]:
        """Take what is to be posted now; none of it is due again before `again_ms`."""
        values = {"of_client": client, "due_by_ms": due_by_ms, "again_ms": again_ms, "at_most": at_most}
        return tuple(sorted((Callback(*record) for record in self._rows(_BEGIN, values)), key=_by_age))

    def postpone_callback(self, callback_id: int, not_before_ms: int) -> None:
        """Try again, not before then."""
        self._change(_POSTPONE, {"this": callback_id, "until_ms": not_before_ms})

    def finish_callback(self, callback_id: int) -> None:
        """There is no further try."""
        self._change(_FINISH, {"this": callback_id})

    def hasten_callbacks(self, client: ClientName, now_ms: int) -> None:
        """Have all of a client's callbacks tried now."""
        self._change(_HASTEN, {"of_client": client, "now_ms": now_ms})

    def lapse_callbacks(self, closed_before_ms: int) -> int:
        """Give up callbacks about questions that closed before then; returns how many."""
        return self._change(_LAPSE, {"bound_ms": closed_before_ms})


def _by_age(callback: Callback) -> int:
    return callback.callback_id
