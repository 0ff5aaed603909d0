"""One verification as the bot has it, while it goes on and for a while after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.matrix.e2e.exchange import Cancelled, Code, Finished, Shown

if TYPE_CHECKING:
    from agentpod_bot.matrix.e2e.exchange import State, Trust
    from agentpod_bot.matrix.e2e.incoming import Place
    from agentpod_bot.matrix.e2e.sas import Side

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Open:
    """One verification."""

    verification_id: str
    """How the person at this machine names it; never that of another one."""
    place: Place
    other: Side
    ends_at: float
    """By the monotonic clock."""
    state: State
    trusted: Trust | None = None
    """What was kept of it, once it was."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return isinstance(self.state, Finished | Cancelled)


def told(one: Open, before: State) -> None:
    """Log what became of a verification with its last step. The emoji are no secret: they are there to be compared."""
    match one.state:
        case Shown(short=short) if not isinstance(before, Shown):
            log.info(
                "verification_emoji",
                user_id=one.other.user_id,
                device_id=one.other.device_id,
                verification_id=one.verification_id,
                emoji=" · ".join(f"{emoji} {name}" for emoji, name in short.emoji),
                numbers=" ".join(map(str, short.decimals)),
            )
        case Cancelled(code=code, by_us=by_us) if not isinstance(before, Cancelled):
            known = code if code in set(Code) else "other"
            log.info("verification_cancelled", verification_id=one.verification_id, why=known, by_us=by_us)
        case _:
            pass
