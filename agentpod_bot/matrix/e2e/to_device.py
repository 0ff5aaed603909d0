"""Messages to devices as they go out: as often as it takes, and to the homeserver the same ones each time.

https://spec.matrix.org/v1.14/client-server-api/#send-to-device-messaging
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agentpod_bot.core.ids import TxnId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.matrix.e2e.ports import Requests

SEND_TO_DEVICE: Final = "/_matrix/client/v3/sendToDevice"


def new_txn_id() -> TxnId:
    """A transaction id that was never used before."""
    return TxnId(secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages of one type, by user and device. Whoever tries again sends this very object, so that they come once."""

    kind: str
    messages: Mapping[str, Mapping[str, Any]]
    txn_id: TxnId = field(default_factory=new_txn_id)


async def send(requests: Requests, outgoing: Outgoing) -> None:
    """Send it. Raises a `MatrixError`; after `Refused` nothing of it will ever arrive."""
    path = f"{SEND_TO_DEVICE}/{quote(outgoing.kind, safe='')}/{outgoing.txn_id}"
    await requests.ask_for("PUT", path, {"messages": outgoing.messages})
