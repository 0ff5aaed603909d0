"""`python -m chaos.checker MANIFEST`: fetch the evidence, check it, print the figures. Exits 1 where any is not 0."""

from __future__ import annotations

import sys
from pathlib import Path

from chaos.checker.evidence import gathered
from chaos.checker.verdict import judged


def main(arguments: list[str]) -> int:
    """Check one run."""
    verdict = judged(gathered(Path(arguments[0])))
    print(verdict.text())
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
