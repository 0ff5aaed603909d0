"""Invitations that came before the position from which the sync loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentpod_bot.matrix.response import invites_of

if TYPE_CHECKING:
    from agentpod_bot.core.room import Invite
    from agentpod_bot.matrix.sync import SyncSource

NOTHING_ELSE: Final = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "timeline": {"types": []},
        "state": {"types": []},
        "ephemeral": {"types": []},
        "account_data": {"types": []},
    },
}


async def pending_invites(source: SyncSource) -> tuple[Invite, ...]:
    """Every invitation that stands now. A sync that goes on from a position shows only newer ones."""
    response = await source.sync(None, timeout_ms=0, sync_filter=NOTHING_ELSE)
    return invites_of(response, source.user_id)
