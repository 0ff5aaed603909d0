"""How long it takes from ask to answer, and how much of that is the daemon's own.

One run on one private Synapse: through the real daemon, through raw calls, and through
bare nio, each with pairs of accounts and rooms of its own (two pairs that do the same
thing differ by a few per cent), all rounds in random order so that noise meets all alike.
A round ends when the person has seen its edit. `--encrypted` has the daemon and bare nio
in encrypted rooms besides. Exits 1 where a bound is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from agentpod_bot.demo.homeserver import PrivateSynapse
from agentpod_bot.errors import CannotStart
from agentpod_bot.log import configure
from benchmarks.report import ARMS, FEWEST_PAIRS, FEWEST_ROUNDS, SEALED_ARMS, report
from benchmarks.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures import Round
    from benchmarks.report import Results
    from benchmarks.stage import Pair

LIMIT_S = 330.0
"""No round is begun after so long; what was measured until then is reported."""
TELL_EVERY_S = 5.0
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured. `rounds` and `pairs` are for each arm."""

    rounds: int
    pairs: int
    seed: int
    warm_up: int = 3
    """Rounds of each pair that do not count."""
    encrypted: bool = False
    """Whether there are two more arms, in encrypted rooms."""

    @property
    def arms(self) -> tuple[str, ...]:
        """What is compared."""
        return (*ARMS, *(SEALED_ARMS if self.encrypted else ()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the arguments say, print the report, return the exit code."""
    options = _options(arguments)
    configure("error", "auto", sys.stderr)  # making keys has nothing to say here
    try:
        results = asyncio.run(_run(options))
    except CannotStart as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    text, kept = report(results, random.Random(options.seed))  # noqa: S311 - resamples, no secrets
    print(text)
    return 0 if kept else 1


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description="Measure ask to answer on a private homeserver.")
    parser.add_argument(
        "--rounds", type=_positive, default=FEWEST_ROUNDS, help=f"for each of the arms ({FEWEST_ROUNDS})"
    )
    parser.add_argument(
        "--pairs", type=_positive, default=FEWEST_PAIRS, help=f"of accounts, for each arm ({FEWEST_PAIRS})"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the order of the rounds; random where none is given")
    parser.add_argument("--encrypted", action="store_true", help="with two more arms, in encrypted rooms")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    return Options(rounds=given.rounds, pairs=given.pairs, seed=seed, encrypted=given.encrypted)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


async def _run(options: Options) -> Results:
    clock = Clock()
    load, cores = os.getloadavg()[0], os.cpu_count()
    clock.tell(f"starting a private Synapse (load {load:.1f} on {cores} cores; what else runs here is measured too)")
    async with PrivateSynapse() as synapse:
        return await measure(synapse, options, clock)


async def measure(synapse: PrivateSynapse, options: Options, clock: Clock) -> Results:
    """Set all pairs up on a homeserver, and play their rounds; nothing of it is left but the accounts."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentpod-bench-")))
        pairs = await _pairs(Stage(stack, synapse, folder), options, clock)
        for pair in pairs:
            for _ in range(options.warm_up):
                await pair.play()
        return await _play(pairs, options, clock)


async def _pairs(stage: Stage, options: Options, clock: Clock) -> list[Pair]:
    """Set all pairs up, and have the daemon show what the others are to send."""
    number = options.pairs
    sealed = range(number if options.encrypted else 0)
    clock.tell(f"starting {number + len(sealed)} daemons")
    through = [await stage.daemon(n) for n in range(number)]
    through += [await stage.daemon(n, sealed=True) for n in sealed]
    await through[0].play()
    sample = through[0].sample()
    clock.tell("setting up the rooms of the other arms")
    raw = [await stage.raw(n, sample) for n in range(number)]
    bare = [await stage.nio(n, sample) for n in range(number)]
    return [*through, *raw, *bare, *[await stage.nio(n, sample, sealed=True) for n in sealed]]


async def _play(pairs: Sequence[Pair], options: Options, clock: Clock) -> Results:
    each = -(-options.rounds // options.pairs)
    order = [pair for pair in pairs for _ in range(each)]
    random.Random(options.seed).shuffle(order)  # noqa: S311 - an order, no secret
    clock.tell(f"measuring {len(order)} rounds in random order (seed {options.seed})")
    found: dict[Pair, list[Round]] = {pair: [] for pair in pairs}
    for done, pair in enumerate(order):
        if clock.seconds() > LIMIT_S:
            clock.tell(f"stopped after {done} of {len(order)} rounds: {LIMIT_S:.0f} s are over")
            break
        clock.tell_sometimes(f"{done} of {len(order)} rounds")
        found[pair].append(await pair.play())
    return {arm: [found[pair] for pair in pairs if pair.arm == arm] for arm in options.arms}


class Clock:
    """Says on standard error what goes on, and when."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._told = 0.0

    def seconds(self) -> float:
        """Since it was made."""
        return perf_counter() - self._began

    def tell(self, text: str) -> None:
        """Say it."""
        self._told = self.seconds()
        print(f"{self._told:4.0f} s  {text}", file=sys.stderr, flush=True)

    def tell_sometimes(self, text: str) -> None:
        """Say it unless something was said just now."""
        if self.seconds() - self._told > TELL_EVERY_S:
            self.tell(text)


if __name__ == "__main__":
    sys.exit(main())
