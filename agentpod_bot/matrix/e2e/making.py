"""A new device's keys: made, published, and vouched for by the account's identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentpod_bot.errors import CrossSigningRefused, CryptoStoreRefused, MatrixError, StoreUnavailable
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
from agentpod_bot.matrix.e2e.crypto import Crypto
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from agentpod_bot.system import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.ids import UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDevice:
    """A session that was just made."""

    url: str
    user_id: UserId
    device_id: str
    access_token: str = field(repr=False)
    password: str = field(repr=False)


async def make_keys(device: NewDevice, folder: Path, pickle_key: str, *, reset_identity: bool = False) -> str | None:
    """Make the device's keys in a folder, publish them, and have the account's identity vouch for them.

    Returns what a person has to do where the identity is not the bot's to use; the keys
    can be used all the same. Raises `CryptoStoreRefused` where they cannot be kept or published.
    """
    vault = Vault(folder=folder, pickle_key=pickle_key, user_id=device.user_id, device_id=device.device_id)
    keys = await Keys.open(vault, make=True)
    client = MatrixClient(device.url, device.user_id, device.access_token, device_id=device.device_id)
    try:
        identities = await Identities.open(vault, make=True)
        crypto = Crypto(keys, client, SystemClock(), verdicts=identities)
        await crypto.publish()
        await CrossSigning(crypto, client, identities).ensure(device.password, reset=reset_identity)
    except CrossSigningRefused as refused:
        return str(refused)
    except (MatrixError, StoreUnavailable) as error:
        raise CryptoStoreRefused(f"the keys of device {device.device_id} could not be published: {error}") from error
    else:
        return None
    finally:
        await client.close()
        await keys.close()
