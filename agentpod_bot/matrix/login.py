"""Logging in with a password, once, to get the access token that the daemon runs with."""

from __future__ import annotations

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import (
    CredentialsRefused,
    HomeserverUnreachable,
    MatrixError,
    RateLimited,
    Refused,
    TokenRefused,
)
from agentpod_bot.matrix.client import DEADLINE_S
from agentpod_bot.matrix.tokenless import LOGIN, post, text


async def login(
    url: str,
    user: str,
    password: str,
    device_name: str,
    *,
    device_id: str | None = None,
    deadline_s: float = DEADLINE_S,
) -> tuple[UserId, str, str]:
    """Account, device and access token of a new login; with `device_id`, on that device.

    `CredentialsRefused` where the homeserver says no, `HomeserverUnreachable` where it
    says nothing usable or asks to wait.
    """
    wanted = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": user},
        "password": password,
        "initial_device_display_name": device_name,
    }
    if device_id is not None:
        wanted["device_id"] = device_id
    try:
        answer = await post(url, LOGIN, wanted, deadline_s=deadline_s)
        return UserId(text(answer, "user_id")), text(answer, "device_id"), text(answer, "access_token")
    except (Refused, TokenRefused) as refused:
        raise CredentialsRefused(f"the homeserver refuses the login: {refused}") from refused
    except RateLimited as limited:
        raise HomeserverUnreachable(f"too many logins: {limited}") from limited
    except MatrixError as error:
        raise HomeserverUnreachable(str(error)) from error
