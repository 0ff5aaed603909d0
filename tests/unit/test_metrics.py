from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import agentpod_bot
from agentpod_bot.api.problem import PROBLEMS
from agentpod_bot.core.ids import ClientName, RouteName
from agentpod_bot.core.kept import Backlog
from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, TokenRefused
from agentpod_bot.metrics import FAILURES, UNASKED, Metrics
from docs.metrics import FILE, labels_of, name_of, page, series
from tests.examples import LAPTOP, ROUTE, question

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
RULES = CONTRIB / "prometheus" / "agentpod-bot.rules.yml"
DASHBOARD = CONTRIB / "grafana" / "agentpod-bot.json"
FROM_THE_SCRAPE = {"job", "le"}
"""Labels that Prometheus adds, and that of a histogram's buckets."""
OF_PROMETHEUS = {"up"}


def shown(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of the exposition by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return shown(metrics)[name, tuple(sorted(labels.items()))]


def configured() -> Metrics:
    metrics = Metrics()
    metrics.configured(routes=[ROUTE], clients=[LAPTOP])
    return metrics


def test_the_page_of_the_metrics_is_that_of_the_registry() -> None:
    """Renewed by `python -m docs.metrics`."""
    assert FILE.read_text(encoding="utf-8") == page()


def test_names_follow_the_conventions() -> None:
    """https://prometheus.io/docs/practices/naming/: one prefix, base units, `_total` for counters alone."""
    for metric in series():
        name = name_of(metric)
        assert re.fullmatch(r"agentpod(_[a-z]+)+", name)
        assert name.endswith("_total") == (metric.type == "counter")
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kib|mib|percent)(_|$)", name)
        if metric.type == "histogram":
            assert name.endswith("_seconds")
        assert metric.documentation
        assert metric.documentation[-1] == "."


def test_every_counter_and_histogram_stands_at_0_from_the_start_also_those_of_each_route_and_client() -> None:
    metrics = configured()
    for metric in series():
        if metric.type in {"counter", "histogram"}:
            assert metric.samples, f"{metric.name} shows nothing before the first event"
    counted = {key: number for key, number in shown(metrics).items() if key[0].endswith(("_total", "_count"))}
    ours = {key: number for key, number in counted.items() if key[0].startswith("agentpod_")}
    assert len(ours) > 80
    assert set(ours.values()) == {0.0}
    assert value(metrics, "agentpod_requests_total", route=ROUTE) == 0
    assert value(metrics, "agentpod_client_requests_total", client=LAPTOP) == 0
    for why in UNASKED:
        assert value(metrics, "agentpod_client_requests_refused_total", client=LAPTOP, why=why) == 0


def test_a_reload_shows_new_routes_and_clients_and_resets_nothing() -> None:
    metrics = configured()
    metrics.asked(question())
    metrics.configured(routes=[ROUTE, RouteName("night")], clients=[LAPTOP, ClientName("ci")])
    assert value(metrics, "agentpod_requests_total", route=ROUTE) == 1
    assert value(metrics, "agentpod_requests_total", route="night") == 0
    assert value(metrics, "agentpod_client_requests_total", client="ci") == 0


def test_codes_of_failures_are_those_of_the_errors() -> None:
    errors = (RateLimited(1), HomeserverUnavailable("x"), TokenRefused(soft_logout=False), Refused("M_FORBIDDEN"))
    assert {error.code for error in errors} == set(FAILURES)
    assert set(UNASKED) <= set(PROBLEMS)


def test_what_runs_is_said() -> None:
    [labels] = [dict(labels) for name, labels in shown(Metrics()) if name == "agentpod_build_info"]
    assert labels["version"] == agentpod_bot.__version__


def test_a_backlog_is_shown_with_ages_and_as_unknown_while_the_store_takes_no_write() -> None:
    metrics = Metrics()
    found = Backlog(queued=1, pending=2, oldest_open_ms=10_000, unsent=3, oldest_unsent_ms=15_000)
    metrics.backlog(found, 20_500)
    ages = ("agentpod_oldest_open_request_age_seconds", "agentpod_outbox_oldest_age_seconds")
    assert [value(metrics, name) for name in ages] == [10.5, 5.5]
    assert value(metrics, "agentpod_open_requests", status="queued") == 1
    assert value(metrics, "agentpod_open_requests", status="pending") == 2
    assert value(metrics, "agentpod_outbox_effects") == 3
    assert value(metrics, "agentpod_store_writable") == 1
    metrics.backlog(None, 20_500)
    assert all(math.isnan(value(metrics, name)) for name in (*ages, "agentpod_outbox_effects"))
    assert math.isnan(value(metrics, "agentpod_open_requests", status="pending"))
    assert value(metrics, "agentpod_store_writable") == 0


@pytest.mark.parametrize("since_ms", [None, 30_000])
def test_what_is_not_there_or_not_due_yet_has_no_age(since_ms: int | None) -> None:
    metrics = Metrics()
    metrics.backlog(Backlog(queued=0, pending=0, oldest_open_ms=since_ms, unsent=0, oldest_unsent_ms=since_ms), 20_000)
    assert value(metrics, "agentpod_oldest_open_request_age_seconds") == 0
    assert value(metrics, "agentpod_outbox_oldest_age_seconds") == 0


def test_events_that_could_not_be_decrypted_are_counted() -> None:
    metrics = Metrics()
    assert value(metrics, "agentpod_undecryptable_events_total") == 0
    metrics.unread(2)
    metrics.unread(1)
    assert value(metrics, "agentpod_undecryptable_events_total") == 3


def test_what_is_watched_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    now = [1.0]
    metrics.watch(
        waiting_calls=lambda: now[0],
        matrix_ready=lambda: now[0] > 1,
        last_good_sync=lambda: now[0] * 2,
        open_circuits=lambda: now[0] * 3,
    )
    names = (
        "agentpod_waiting_calls",
        "agentpod_matrix_ready",
        "agentpod_last_good_sync_timestamp_seconds",
        "agentpod_callback_circuits_open",
    )
    assert [value(metrics, name) for name in names] == [1, 0, 2, 3]
    now[0] = 5.0
    assert [value(metrics, name) for name in names] == [5, 1, 10, 15]


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the alert rules and of the dashboard, and whose it is."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]


@pytest.mark.parametrize(("whose", "expression"), list(expressions()), ids=[whose for whose, _ in expressions()])
def test_every_series_and_label_that_contrib_asks_for_exists(whose: str, expression: str) -> None:
    there = {sample.name: set(labels_of(metric)) for metric in series() for sample in metric.samples}
    used = re.findall(r"\b(agentpod_\w+|up)\b(?:\{([^}]*)\})?", re.sub(r'"agentpod-bot"', "", expression))
    assert used, whose
    labels: set[str] = set()
    for name, matchers in used:
        assert name in OF_PROMETHEUS or name in there, f"{whose} asks for {name}"
        labels |= there.get(name, set())
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            assert label in there.get(name, set()) | FROM_THE_SCRAPE, f"{whose} asks for {name} by {label}"
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(grouped.split(", ")) <= labels | FROM_THE_SCRAPE


def test_the_values_that_alert_rules_ask_for_exist() -> None:
    values = {
        (sample.name, label, value)
        for metric in series()
        for sample in metric.samples
        for label, value in sample.labels.items()
    }
    for rule in rules():
        for name, matchers in re.findall(r"(agentpod_\w+)\{([^}]*)\}", rule["expr"]):
            for label, alternatives in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                for wanted in alternatives.split("|"):
                    assert (name, label, wanted) in values, f"{rule['alert']} asks for {label}={wanted}"


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert {"summary", "description"} <= set(rule["annotations"])


def test_no_panel_of_the_dashboard_lies_on_another() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
