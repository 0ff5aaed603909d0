"""Every Prometheus series of the process, in one place; none carries text from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agentpod_bot.core.model import Outcome, Via

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.core.ids import RouteName
    from agentpod_bot.core.model import Question

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REFUSALS = (
    "hint",
    "late",
    "not_approver",
    "requester",
    "no_file_yet",
    "which",
    "not_rejected",
    "structured",
    "undecryptable",
    "set_aside",
)
KINDS = ("upload", "question", "file", "outcome", "again", "votes", "hint", "keycap")
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


class Metrics:
    """The registry; fits `ports.Meter`. Every known series stands at 0 from the start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._asked = Counter(
            "agentpod_requests", "Permission requests that became a question.", ("route",), registry=self.registry
        )
        self._closed = Counter(
            "agentpod_requests_closed", "Questions that ended, by outcome.", ("outcome",), registry=self.registry
        )
        self._answers = Counter(
            "agentpod_answers", "Answers that decided, by their form.", ("via",), registry=self.registry
        )
        self._refused = Counter(
            "agentpod_answers_refused", "Tries to answer that decided nothing.", ("why",), registry=self.registry
        )
        self._latency = Histogram(
            "agentpod_answer_seconds",
            "Time from the request to the answer that decided it.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._sent = Counter(
            "agentpod_events_sent", "Events that the homeserver took.", ("kind",), registry=self.registry
        )
        self._failed = Counter(
            "agentpod_event_send_failures", "Tries to send that failed.", ("kind", "why"), registry=self.registry
        )
        self._called_back = Counter("agentpod_callbacks_sent", "Outcomes that a target took.", registry=self.registry)
        self._callbacks_failed = Counter(
            "agentpod_callback_failures", "Tries to post an outcome that failed.", ("why",), registry=self.registry
        )
        self._callbacks_given_up = Counter(
            "agentpod_callbacks_given_up", "Outcomes that no target took.", ("why",), registry=self.registry
        )
        for outcome in Outcome:
            self._closed.labels(outcome.value)
        for via in Via:
            self._answers.labels(via.value)
        for why in REFUSALS:
            self._refused.labels(why)
        for kind in KINDS:
            self._sent.labels(kind)
        for why in CALLBACK_FAILURES:
            self._callbacks_failed.labels(why)
        for why in CALLBACKS_GIVEN_UP:
            self._callbacks_given_up.labels(why)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when it is scraped."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """The exposition as bytes of `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def asked(self, route: RouteName) -> None:
        """A new question was stored."""
        self._asked.labels(route).inc()

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

    def sent(self, kind: str) -> None:
        """The homeserver took an event."""
        self._sent.labels(kind).inc()

    def send_failed(self, kind: str, why: str) -> None:
        """A try to send failed."""
        self._failed.labels(kind, why).inc()

    def callback_sent(self) -> None:
        """A target took an outcome."""
        self._called_back.inc()

    def callback_failed(self, why: str) -> None:
        """A try to post an outcome failed."""
        self._callbacks_failed.labels(why).inc()

    def callbacks_given_up(self, why: str, count: int = 1) -> None:
        """Outcomes that no target was told, and none will be."""
        self._callbacks_given_up.labels(why).inc(count)
