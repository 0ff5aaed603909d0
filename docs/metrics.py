"""Writes `metrics.md` from the registry: `python -m docs.metrics` after a change of `agentpod_bot/metrics.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentpod_bot.core.ids import ClientName, RouteName
from agentpod_bot.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client import Metric

FILE = Path(__file__).with_name("metrics.md")
HEAD = """# Metrics

`GET /metrics`, with any configured token, in Prometheus's text format. Each series stands there from the start:
counters at 0, also those of each configured route and client. No label holds a text from outside. What is read from the
store is `NaN` while the store takes no write.

Beside these there are the usual `process_…` of a Linux process, and for each counter and histogram its `…_created`.
Alert rules: [`contrib/prometheus/agentpod-bot.rules.yml`](../contrib/prometheus/agentpod-bot.rules.yml); a dashboard:
[`contrib/grafana/agentpod-bot.json`](../contrib/grafana/agentpod-bot.json).

| series | type | labels | what it says |
| --- | --- | --- | --- |
"""
OF_LIBRARY = "process_"
SHOWN_VALUES = 16
"""A label with more values than these is not spelt out."""


def series() -> list[Metric]:
    """Every series of ours, by name, as a daemon with one route and one client shows them."""
    metrics = Metrics()
    metrics.configured(routes=[RouteName("ROUTE")], clients=[ClientName("CLIENT")])
    found = [metric for metric in metrics.registry.collect() if not metric.name.startswith(OF_LIBRARY)]
    return sorted(found, key=lambda metric: metric.name)


def name_of(metric: Metric) -> str:
    """The name under which a series is asked for."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels_of(metric: Metric) -> dict[str, list[str]]:
    """The labels of a series (a histogram's buckets apart) and their values."""
    values: dict[str, set[str]] = {}
    for sample in metric.samples:
        for label, value in sample.labels.items():
            if label != "le":
                values.setdefault(label, set()).add(value)
    return {label: sorted(of_label) for label, of_label in values.items()}


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"{line(metric)}\n" for metric in series())


def line(metric: Metric) -> str:
    """One row of the table."""
    labels = ", ".join(said(label, values) for label, values in labels_of(metric).items())
    return f"| `{name_of(metric)}` | {metric.type} | {labels} | {metric.documentation} |"


def said(label: str, values: list[str]) -> str:
    """A label, and what it may be."""
    if label in {"route", "client", "version", "python"}:
        return f"`{label}`"
    shown = " ".join(values) if len(values) <= SHOWN_VALUES else f"{' '.join(values[:3])} …"
    return f"`{label}` ({shown})"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
    print(FILE)
