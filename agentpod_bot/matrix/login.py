"""Logging in with a password, once, to get the access token that the daemon runs with."""

from __future__ import annotations

import nio
from nio.client.async_client import AsyncClient

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import (
    CredentialsRefused,
    HomeserverUnreachable,
    MatrixError,
    RateLimited,
    Refused,
    TokenRefused,
)
from agentpod_bot.matrix.client import DEADLINE_S, ask, nio_config, unexpected


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
    client = AsyncClient(url.rstrip("/"), user, device_id or "", config=nio_config(deadline_s))
    try:
        match await ask(deadline_s, client.login, password, device_name=device_name):
            case nio.LoginResponse(user_id=user_id, device_id=device, access_token=access_token):
                return UserId(user_id), device, access_token
            case other:
                raise unexpected(other)
    except (Refused, TokenRefused) as refused:
        raise CredentialsRefused(f"the homeserver refuses the login: {refused}") from refused
    except RateLimited as limited:
        raise HomeserverUnreachable(f"too many logins: {limited}") from limited
    except MatrixError as error:
        raise HomeserverUnreachable(str(error)) from error
    finally:
        await client.close()
