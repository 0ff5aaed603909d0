"""Calls of the client-server API that are made before there is a token, or to get another one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from nio.client.async_client import AsyncClient

from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.client import OK, deadline, nio_config
from agentpod_bot.matrix.failures import decode, failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN: Final = "/_matrix/client/v3/login"
REFRESH: Final = "/_matrix/client/v3/refresh"


async def post(url: str, path: str, body: Mapping[str, Any], *, deadline_s: float) -> dict[str, Any]:
    """The JSON of a 200. Raises the `MatrixError` that any other answer is."""
    client = AsyncClient(url.rstrip("/"), "", config=nio_config(deadline_s))
    try:
        async with deadline(deadline_s):
            transport = await client.send(
                "POST", path, json.dumps(body), headers={"Content-Type": "application/json"}, timeout=deadline_s
            )
            async with transport:
                raw = await transport.read()
    finally:
        await client.close()
    answer = decode(raw)
    if transport.status != OK or answer is None:
        raise failure_of(transport.status, transport.headers, raw)
    return answer


def text(answer: Mapping[str, Any], key: str) -> str:
    """A text that an answer must have; `HomeserverUnavailable` where it has none."""
    value = answer.get(key)
    if not isinstance(value, str) or not value:
        raise HomeserverUnavailable(f"an answer without {key}", status=OK)
    return value
