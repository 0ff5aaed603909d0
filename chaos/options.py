"""How large a run is, from its command line."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST_REAL = 500
FEWEST_FAKE = 5_000
FEWEST_ENCRYPTED = 200
ROOMS = 20
ROOMS_ENCRYPTED = 10
USUAL_REAL = 5.0
USUAL_FAKE = 20.0
"""Minutes that so many requests take at most on two cores that do nothing else."""


@dataclass(frozen=True, slots=True)
class Options:
    """How large a run is. The same seed makes the same plan and draws the same faults; when they meet is chance."""

    seed: int
    requests: int
    rooms: int = ROOMS
    minutes: float = 5.0
    """How long all of it takes at most, about: a storm that goes on for longer is ended."""
    asking_s: float = 150.0
    """For how long new requests come."""
    fake: bool = False
    encrypted: bool = False
    most_open: int = 200
    """Requests that are open at the same time, over all rooms."""

    @property
    def storm_s(self) -> float:
        """After so long no new request is asked, even where some are left."""
        return self.minutes * 60 * 0.6


def given(arguments: Sequence[str] | None) -> tuple[Options, Path | None]:
    """The options that the arguments say, and the folder that is to be kept."""
    parser = argparse.ArgumentParser(description="Make faults of every kind, and check that nothing was lost by them.")
    parser.add_argument(
        "--minutes", type=float, help=f"how long it takes at most, about ({USUAL_REAL:g}, with --fake {USUAL_FAKE:g})"
    )
    parser.add_argument(
        "--requests",
        type=int,
        help=f"how many ({FEWEST_REAL}, with --fake {FEWEST_FAKE}, with --encrypted {FEWEST_ENCRYPTED}, or more)",
    )
    parser.add_argument("--rooms", type=int, help=f"an even number ({ROOMS}, with --encrypted {ROOMS_ENCRYPTED})")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fake", action="store_true", help="on the fake homeserver of the tests")
    which.add_argument("--encrypted", action="store_true", help="in encrypted rooms")
    parser.add_argument("--seed", type=int, help="of the plan and the faults; random where none is given")
    parser.add_argument("--keep", type=Path, help="a new folder for logs, store and manifest, which is not removed")
    told = parser.parse_args(arguments)
    fewest = FEWEST_FAKE if told.fake else FEWEST_ENCRYPTED if told.encrypted else FEWEST_REAL
    usual = USUAL_FAKE if told.fake else USUAL_REAL
    minutes = told.minutes or usual
    requests = told.requests or max(fewest, int(fewest * minutes / usual))
    seed = secrets.randbelow(1_000_000) if told.seed is None else told.seed
    rooms = (ROOMS_ENCRYPTED if told.encrypted else ROOMS) if told.rooms is None else told.rooms
    if rooms < 2 or rooms % 2:  # noqa: PLR2004 - each client needs a room
        parser.error("--rooms must be an even number")
    return Options(seed, requests, rooms, minutes, minutes * 30, told.fake, told.encrypted), told.keep
