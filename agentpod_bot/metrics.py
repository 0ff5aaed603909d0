"""Every Prometheus series of the process, in one place; none carries text from outside."""

from __future__ import annotations

import math
import platform
from itertools import product
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

import agentpod_bot
from agentpod_bot.core.model import Outcome, Status, Via

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentpod_bot.core.ids import ClientName, RouteName
    from agentpod_bot.core.kept import Backlog
    from agentpod_bot.core.model import Question

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REFUSALS = (
    "hint",
    "no_reason",
    "late",
    "waits_to_move",
    "moved",
    "not_approver",
    "not_asked_here",
    "requester",
    "no_file_yet",
    "which",
    "not_rejected",
    "structured",
    "not_named",
    "not_known",
    "clear_text",
    "unknown_device",
    "unverified_device",
    "replayed",
    "undecryptable",
    "set_aside",
)
KINDS = (
    "upload",
    "question",
    "file",
    "outcome",
    "again",
    "moved",
    "progress",
    "reminder",
    "after_quiet",
    "hint",
    "room_replaced",
    "followed",
    "keycap",
)
FAILURES = ("rate_limited", "homeserver_unavailable", "token_refused", "refused")
"""Codes of what the homeserver answers instead of what was asked."""
SYNC_FAILURES = (*FAILURES, "matrix_unavailable", "store_unavailable")
"""Codes of why a sync was not answered, or could not be handled."""
UNASKED = (
    "approver_not_in_room",
    "invalid",
    "matrix_unavailable",
    "no_approver",
    "not_in_room",
    "request_closed",
    "request_id_reused",
    "room_encrypted_without_crypto",
    "room_replaced",
    "store_unavailable",
    "too_large",
    "too_many_pending",
    "too_many_requests",
)
"""Codes of why a request did not become a question."""
OPEN = (Status.QUEUED, Status.PENDING)
CALLBACK_FAILURES = (
    "address_refused",
    "unreachable",
    "tls",
    "timed_out",
    "redirected",
    "rate_limited",
    "server_error",
    "refused",
    "not_shown",
)
CALLBACKS_GIVEN_UP = ("gone", "too_old")
_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 14400, 86400)
_SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SYNC_SECONDS = (*_SHORT_SECONDS[5:], 30, 60)


class Metrics:
    """The registry; fits `ports.Meter`. Every known series stands at 0 from the start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._asked = self._counter("agentpod_requests", "Permission requests that became a question.", "route")
        self._of_client = self._counter(
            "agentpod_client_requests", "Permission requests that became a question, by client.", "client"
        )
        self._unasked = self._counter(
            "agentpod_client_requests_refused", "Permission requests that became no question.", "client", "why"
        )
        self._closed = self._counter("agentpod_requests_closed", "Questions that ended, by outcome.", "outcome")
        self._answers = self._counter("agentpod_answers", "Answers that decided, by their form.", "via")
        self._refused = self._counter("agentpod_answers_refused", "Tries to answer that decided nothing.", "why")
        self._unread = self._counter(
            "agentpod_undecryptable_events", "Events that could not be decrypted when they came."
        )
        self._latency = self._histogram(
            "agentpod_answer_seconds", "Time from the request to the answer that decided it.", _SECONDS
        )
        self._sent = self._counter("agentpod_events_sent", "Events that the homeserver took.", "kind")
        self._failed = self._counter("agentpod_event_send_failures", "Tries to send that failed.", "kind", "why")
        self._sync_wait = self._histogram(
            "agentpod_sync_response_seconds",
            "Time until the homeserver answered a sync; it may wait for news meanwhile.",
            _SYNC_SECONDS,
        )
        self._sync_work = self._histogram(
            "agentpod_sync_handling_seconds", "Time to handle one sync response, its commit included.", _SHORT_SECONDS
        )
        self._sync_failed = self._counter("agentpod_sync_failures", "Syncs that failed.", "why")
        self._stored = self._histogram(
            "agentpod_store_transaction_seconds",
            "Time from handing a transaction to the store to its end, waiting included.",
            _SHORT_SECONDS,
        )
        self._not_stored = self._counter(
            "agentpod_store_failures", "Transactions that the database could not keep (disk full, file locked)."
        )
        self._waiting = self._gauge("agentpod_waiting_calls", "Calls that wait for an answer.")
        self._matrix_ready = self._gauge(
            "agentpod_matrix_ready", "1 while questions can be asked: synced within the last minute, token good."
        )
        self._last_good_sync = self._gauge(
            "agentpod_last_good_sync_timestamp_seconds",
            "When a sync response was last handled, in seconds since 1970; 0 if none was yet.",
        )
        self._writable = self._gauge("agentpod_store_writable", "1 if the store took a write just now.")
        self._open = self._gauge("agentpod_open_requests", "Questions that are open now, by status.", "status")
        self._oldest_open = self._gauge(
            "agentpod_oldest_open_request_age_seconds", "Age of the question that is open longest; 0 if none is."
        )
        self._unsent = self._gauge("agentpod_outbox_effects", "What the bot still has to say.")
        self._oldest_unsent = self._gauge(
            "agentpod_outbox_oldest_age_seconds",
            "How long ago the oldest of what the bot still has to say was to be sent; 0 if nothing is overdue.",
        )
        build = self._gauge("agentpod_build_info", "1; the labels say what runs.", "version", "python")
        build.labels(agentpod_bot.__version__, platform.python_version()).set(1)
        self._called_back = self._counter("agentpod_callbacks_sent", "Outcomes that a target took.")
        self._callbacks_failed = self._counter(
            "agentpod_callback_failures", "Tries to post an outcome that failed.", "why"
        )
        self._callbacks_given_up = self._counter("agentpod_callbacks_given_up", "Outcomes that no target took.", "why")
        self._circuits = self._gauge(
            "agentpod_callback_circuits_open", "Targets of callbacks that are only probed, after failures."
        )
        for outcome in Outcome:
            self._closed.labels(outcome.value)
        for via in Via:
            self._answers.labels(via.value)
        for why in REFUSALS:
            self._refused.labels(why)
        for kind in KINDS:
            self._sent.labels(kind)
        for kind, why in product(KINDS, FAILURES):
            self._failed.labels(kind, why)
        for why in SYNC_FAILURES:
            self._sync_failed.labels(why)
        for status in OPEN:
            self._open.labels(status.value)
        for why in CALLBACK_FAILURES:
            self._callbacks_failed.labels(why)
        for why in CALLBACKS_GIVEN_UP:
            self._callbacks_given_up.labels(why)

    def configured(self, *, routes: Iterable[RouteName], clients: Iterable[ClientName]) -> None:
        """Show the series of these routes and clients, from 0 on where they are new."""
        for route in routes:
            self._asked.labels(route)
        for client in clients:
            self._of_client.labels(client)
            for why in UNASKED:
                self._unasked.labels(client, why)

    def watch(
        self,
        *,
        waiting_calls: Callable[[], float],
        matrix_ready: Callable[[], bool],
        last_good_sync: Callable[[], float],
        open_circuits: Callable[[], float],
    ) -> None:
        """Read these whenever the series are scraped."""
        self._waiting.set_function(waiting_calls)
        self._matrix_ready.set_function(lambda: float(matrix_ready()))
        self._last_good_sync.set_function(last_good_sync)
        self._circuits.set_function(open_circuits)

    def backlog(self, found: Backlog | None, now_ms: int) -> None:
        """Take what stands in the store now; None where it takes no write, and nothing is known then."""
        self._writable.set(found is not None)
        counts = (math.nan, math.nan) if found is None else (found.queued, found.pending)
        for status, count in zip(OPEN, counts, strict=True):
            self._open.labels(status.value).set(count)
        self._unsent.set(math.nan if found is None else found.unsent)
        self._oldest_open.set(math.nan if found is None else _age_s(found.oldest_open_ms, now_ms))
        self._oldest_unsent.set(math.nan if found is None else _age_s(found.oldest_unsent_ms, now_ms))

    def render(self) -> bytes:
        """The exposition as bytes of `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def asked(self, question: Question) -> None:
        """A new question was stored."""
        self._asked.labels(question.asked.route).inc()
        self._of_client.labels(question.key.client).inc()

    def not_asked(self, client: ClientName, why: str) -> None:
        """A request became no question."""
        self._unasked.labels(client, why).inc()

    def closed(self, question: Question) -> None:
        """A question ended."""
        closing = question.closing
        if closing is None:
            return
        self._closed.labels(closing.outcome.value).inc()
        if closing.via is not None:
            self._answers.labels(closing.via.value).inc()
            self._latency.observe((closing.at_ms - question.asked.created_at_ms) / 1000)

    def answer_refused(self, why: str) -> None:
        """A try to answer decided nothing."""
        self._refused.labels(why).inc()

    def unread(self, count: int) -> None:
        """So many events could not be decrypted."""
        self._unread.inc(count)

    def sent(self, kind: str) -> None:
        """The homeserver took an event."""
        self._sent.labels(kind).inc()

    def send_failed(self, kind: str, why: str) -> None:
        """A try to send failed."""
        self._failed.labels(kind, why).inc()

    def synced(self, seconds: float) -> None:
        """The homeserver answered a sync after so long."""
        self._sync_wait.observe(seconds)

    def sync_failed(self, why: str) -> None:
        """A sync was not answered, or could not be handled; `why` is an error's code."""
        self._sync_failed.labels(why).inc()

    def sync_handled(self, seconds: float) -> None:
        """A sync response was handled within so long."""
        self._sync_work.observe(seconds)

    def stored(self, seconds: float, *, kept: bool) -> None:
        """A transaction ended after so long; not `kept` where the database itself failed."""
        self._stored.observe(seconds)
        if not kept:
            self._not_stored.inc()

    def callback_sent(self) -> None:
        """A target took an outcome."""
        self._called_back.inc()

    def callback_failed(self, why: str) -> None:
        """A try to post an outcome failed."""
        self._callbacks_failed.labels(why).inc()

    def callbacks_given_up(self, why: str, count: int = 1) -> None:
        """Outcomes that no target was told, and none will be."""
        self._callbacks_given_up.labels(why).inc(count)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)


def _age_s(since_ms: int | None, now_ms: int) -> float:
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)
