"""The figures: how much was lost, doubled, wrong or unauthorised, and what each of those is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.checker.checks import CHECKS
from chaos.checker.scene import Scene
from chaos.checker.sealed_checks import SEALED_CHECKS
from chaos.checker.sealed_checks import looked_at as sealed

if TYPE_CHECKING:
    from chaos.checker.evidence import Evidence

MOST_LISTED = 40


@dataclass(frozen=True)
class Verdict:
    """What was found. `broken` has an entry for every sort: ids, each with how it breaks a promise."""

    looked_at: dict[str, int]
    broken: dict[str, list[tuple[str, str]]]

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept, of something at least: an empty run proves nothing."""
        return not any(self.broken.values()) and self.looked_at["requests"] > 0

    def text(self) -> str:
        """One line for each figure, and for each fault."""
        lines = [", ".join(f"{what} {count}" for what, count in self.looked_at.items())]
        for sort, found in self.broken.items():
            lines.append(f"{sort} {len(found)}")
            lines += [f"    {what}: {how}" for what, how in found[:MOST_LISTED]]
            lines += [f"    and {len(found) - MOST_LISTED} more"] if len(found) > MOST_LISTED else []
        return "\n".join(lines)


def judged(evidence: Evidence) -> Verdict:
    """Check everything that there is to check."""
    scene = Scene(evidence)
    ends = Counter(view["decision"]["outcome"] for view in scene.listed.values() if view["decision"] is not None)
    looked_at = {
        "requests": len(scene.log),
        "events": sum(len(shown.room.events) for shown in scene.rooms),
        "questions": sum(len(shown.questions) for shown in scene.rooms),
        "tries to answer": sum(said.reading.heard for shown in scene.rooms for said in shown.said),
        "lines of audit": len(evidence.audit),
        **dict(sorted(ends.items())),
    }
    every = CHECKS
    if evidence.sealed is not None:
        every = CHECKS | SEALED_CHECKS
        looked_at |= sealed(scene)
    broken = {
        sort: list(dict.fromkeys(found for check in checks for found in check(scene))) for sort, checks in every.items()
    }
    return Verdict(looked_at, broken)
