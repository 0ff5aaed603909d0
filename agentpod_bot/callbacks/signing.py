"""The headers that Standard Webhooks prescribes (https://www.standardwebhooks.com)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from standardwebhooks.webhooks import Webhook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.ids import WebhookId


def signed(webhook_id: WebhookId, body: str, *, secrets: Sequence[str], now_ms: int) -> dict[str, str]:
    """Headers for one try: id, time of this try in whole seconds, and one signature for each secret."""
    # The library takes any time for UTC, so it is given nothing else.
    at = datetime.fromtimestamp(now_ms // 1000, UTC)
    signatures = [Webhook(secret).sign(webhook_id, at, body) for secret in secrets]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(now_ms // 1000),
        "webhook-signature": " ".join(signatures),
    }
