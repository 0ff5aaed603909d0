"""`python -m chaos.checker FILE`: check one run, print the figures. Exits 1 where any is not 0.

The file is a run's manifest, while homeserver and daemon still run; what is fetched then is
kept beside it as `evidence.json`, which can be checked again at any time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chaos.checker.evidence import KEPT, gathered, keep, kept
from chaos.checker.verdict import judged


def main(arguments: list[str]) -> int:
    """Check one run."""
    path = Path(arguments[0])
    if path.name == KEPT:
        evidence = kept(path)
    else:
        evidence = gathered(path)
        keep(evidence, path.with_name(KEPT))
    verdict = judged(evidence)
    print(verdict.text())
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
