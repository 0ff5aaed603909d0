from __future__ import annotations

import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from agentpod_bot.callbacks.signing import signed
from agentpod_bot.core.ids import WebhookId

NEW = "whsec_bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldyE="
OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQh"
OTHER = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXIh"
BODY = '{"label":"Weiter \\u2026 é 🙂"}'
ID = WebhookId("msg_2f")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_a_receiver_with_either_secret_verifies_while_they_are_changed(secret: str) -> None:
    headers = signed(ID, BODY, secrets=(NEW, OLD), now_ms=now_ms())
    assert len(headers["webhook-signature"].split(" ")) == 2
    Webhook(secret).verify(BODY.encode(), headers)


def test_another_secret_verifies_nothing() -> None:
    headers = signed(ID, BODY, secrets=(NEW, OLD), now_ms=now_ms())
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY.encode(), headers)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp"])
def test_id_and_time_are_signed_too(header: str) -> None:
    headers = signed(ID, BODY, secrets=(NEW,), now_ms=now_ms())
    changed = {"webhook-id": "msg_other", "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY.encode(), headers | {header: changed[header]})


def test_the_time_is_that_of_the_try_in_whole_seconds_whatever_the_zone_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        headers = signed(ID, BODY, secrets=(NEW,), now_ms=1_793_000_000_999)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert headers["webhook-timestamp"] == "1793000000"
    again = signed(ID, BODY, secrets=(NEW,), now_ms=1_793_000_000_000)
    assert headers == again
