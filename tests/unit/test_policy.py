from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.app.meaning import policy_of
from agentpod_bot.config.model import Settings
from agentpod_bot.core.ids import RouteName


def settings(**route: Any) -> Settings:
    return Settings.model_validate(
        {
            "homeserver": {"url": "https://hs.example", "user_id": "@pod:hs.example", "access_token": "syt_x"},
            "clients": {"laptop": {"token": "0123456789abcdef", "routes": ["ops"]}},
            "routes": {"ops": {"room": "!ops:hs.example", "approvers": ["@owner:hs.example"], **route}},
        }
    )


@pytest.mark.parametrize(
    ("given", "masks"), [({}, True), ({"mask_secrets": True}, True), ({"mask_secrets": False}, False)]
)
def test_secrets_are_masked_unless_a_route_says_otherwise(given: dict[str, bool], *, masks: bool) -> None:
    assert policy_of(settings(**given), {}).routes[RouteName("ops")].mask_secrets is masks
