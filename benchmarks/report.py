"""What a run found, as text, and whether the bounds are kept. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.figures import Round, percentile, pooled, ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

DAEMON, RAW, NIO = "daemon", "raw", "nio"
ARMS: Mapping[str, str] = {
    DAEMON: "through the daemon",
    RAW: "raw aiohttp calls",
    NIO: "bare nio",
}
SEALED_DAEMON, SEALED_NIO = "sealed-daemon", "sealed-nio"
SEALED_ARMS: Mapping[str, str] = {
    SEALED_DAEMON: "the daemon, encrypted",
    SEALED_NIO: "bare nio, encrypted",
}
"""In encrypted rooms: measured where it is asked for, and held to no bound."""
PHASES: Sequence[tuple[str, Callable[[Round], float]]] = (
    ("  own: the ask, until the question is on the wire", lambda r: r.before),
    ("  homeserver and person, until the answer is on the wire", lambda r: r.away),
    ("  own: an answer that no sync was waiting for", lambda r: r.late),
    ("  own: the answer, until the ask returns", lambda r: r.after),
    ("own path", lambda r: r.own),
)
ENCRYPTED_RATIOS = (
    (SEALED_DAEMON, SEALED_NIO, "encrypted daemon to nio"),
    (SEALED_DAEMON, DAEMON, "daemon encrypted to plain"),
    (SEALED_NIO, NIO, "nio encrypted to plain"),
)
MOST_OF_RAW = 1.15
MOST_OWN_S = 0.015
FEWEST_PAIRS = 5
FEWEST_ROUNDS = 200
"""For each arm; a shorter run is good for a look, not for a verdict."""

Results = Mapping[str, Sequence[Sequence[Round]]]
"""By arm: for each of its pairs, the rounds."""


def report(results: Results, chance: Random) -> tuple[str, bool]:
    """Return the report, and whether every bound is kept. Raises ValueError where a pair has no round."""
    if not all(rounds for pairs in results.values() for rounds in pairs):
        raise ValueError("a pair without a round")
    totals = {arm: [[r.total for r in rounds] for rounds in pairs] for arm, pairs in results.items()}
    lines = ["Ask to answer               rounds  pairs    median       p95"]
    arms = {arm: name for arm, name in (ARMS | SEALED_ARMS).items() if arm in results}
    for arm, name in arms.items():
        values = pooled(totals[arm])
        lines.append(f"{name:<28}{len(values):6}{len(totals[arm]):7}{_times(values)}")
    lines += ["", "Ratio of the medians             value   95 % interval"]
    to_raw = {arm: ratio(totals[arm], totals[RAW], chance) for arm in (DAEMON, NIO)}
    lines += [f"{ARMS[arm]:<18} to raw{r.value:13.3f}   {r.low:.3f} to {r.high:.3f}" for arm, r in to_raw.items()]
    for of, to, said in ENCRYPTED_RATIOS:
        if of in results and to in results:
            r = ratio(totals[of], totals[to], chance)
            lines.append(f"{said:<25}{r.value:13.3f}   {r.low:.3f} to {r.high:.3f}")
    lines += ["", f"{'Where a round through the daemon goes':<58}  median       p95"]
    ours = pooled(results[DAEMON])
    lines += [f"{name:<55}{_times([of(r) for r in ours])}" for name, of in PHASES]
    own = {arm: [r.own for r in pooled(results[arm])] for arm in arms}
    lines += [f"{f'the same of {name}':<55}{_times(own[arm])}" for arm, name in arms.items() if arm != DAEMON]
    bounds = [
        (to_raw[DAEMON].value <= MOST_OF_RAW, f"{to_raw[DAEMON].value:.3f} times raw, at most {MOST_OF_RAW}"),
        (median(own[DAEMON]) <= MOST_OWN_S, f"{_ms(median(own[DAEMON]))} own path, at most {_ms(MOST_OWN_S)}"),
    ]
    lines += ["", *(f"{'PASS' if kept else 'FAIL'}  {said}" for kept, said in bounds)]
    if any(len(pairs) < FEWEST_PAIRS or len(pooled(pairs)) < FEWEST_ROUNDS for pairs in results.values()):
        lines.append(f"A verdict needs {FEWEST_ROUNDS} rounds over {FEWEST_PAIRS} pairs for each arm; this was a look.")
    return "\n".join(lines), all(kept for kept, _ in bounds)


def _times(values: Sequence[float]) -> str:
    return f"{_ms(median(values)):>10}{_ms(percentile(values, 0.95)):>10}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
