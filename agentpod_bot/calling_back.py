"""What a transaction does for callbacks: a part of `ports.Tx`, with the same promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentpod_bot.core.ids import ClientName, WebhookId
    from agentpod_bot.core.kept import Callback
    from agentpod_bot.core.model import Question


class CallbackTx(Protocol):
    """Outcomes that are to be posted to their clients, until they were taken."""

    def call_back(self, question: Question, webhook_id: WebhookId, at_ms: int) -> None:
        """Note that a question, closed in this transaction at `at_ms`, is to be posted to its client."""
        ...

    def callback_due(self, client: ClientName) -> int | None:
        """When a callback to this client can first be made; None where there is none to make.

        One that waits for an earlier revision of its request does not count.
        """
        ...

    def begin_callbacks(
        self, client: ClientName, *, due_by_ms: int, again_ms: int, at_most: int
    ) -> tuple[Callback, ...]:
        """The client's callbacks to make, by when they are due; each one's attempts are counted up.

        None of them is due again before `again_ms`, in case its end is never heard of. A
        request's later revisions wait until its earlier ones are finished.
        """
        ...

    def postpone_callback(self, callback_id: int, not_before_ms: int) -> None:
        """Try again, not before then."""
        ...

    def finish_callback(self, callback_id: int) -> None:
        """It was taken, or is given up: there is no further try."""
        ...

    def hasten_callbacks(self, client: ClientName, now_ms: int) -> None:
        """Have all of a client's callbacks tried now: its target may take them again."""
        ...

    def lapse_callbacks(self, closed_before_ms: int) -> int:
        """Give up callbacks about questions that closed before then; returns how many."""
        ...
