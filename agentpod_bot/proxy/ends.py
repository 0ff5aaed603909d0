"""The end of a call that the daemon did not answer, for the adapter that tells its harness."""

from __future__ import annotations

from agentpod_bot.harness.adapter import End
from agentpod_bot.harness.reasons import unasked


def unanswered(why: str, *, unreached: bool) -> End:
    """Nothing was allowed; `why` is a sentence without its full stop.

    That nobody was asked is said only where no daemon was reached: else somebody may have been.
    """
    if unreached:
        return unasked(why, unavailable=True)
    return End(outcome=None, reason=f"Nothing was allowed: {why}.")
