"""The identity of the bot at a homeserver, through the real client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.cli.doctor import look
from agentpod_bot.errors import CrossSigningRefused, HomeserverUnavailable, RateLimited, TokenRefused
from agentpod_bot.matrix.e2e.cross_signing import UPLOAD, CrossSigning
from agentpod_bot.matrix.e2e.crypto import Crypto
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.making import NewDevice, make_keys
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import PASSWORD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.matrix.client import MatrixClient
    from tests.matrix.fake_homeserver import FakeHomeserver

PICKLE_KEY = "made-up-pickle-key-0123456789-0123456789"


@pytest.fixture
def vault(tmp_path: Path, pod: UserId) -> Vault:
    return Vault(folder=tmp_path / "crypto", pickle_key=PICKLE_KEY, user_id=pod, device_id="POD")


@pytest.fixture
async def cross_signing(client: MatrixClient, vault: Vault) -> AsyncIterator[CrossSigning]:
    """The bot's device, published."""
    keys = await Keys.open(vault, make=True)
    identities = await Identities.open(vault, make=True)
    crypto = Crypto(keys, client, FakeClock(), verdicts=identities)
    await crypto.publish()
    yield CrossSigning(crypto, client, identities)
    await keys.close()


async def test_the_first_identity_needs_no_password(cross_signing: CrossSigning) -> None:
    await cross_signing.ensure()
    assert await cross_signing.look() is None
    assert cross_signing.master is not None


async def test_a_password_that_is_asked_for_is_given(cross_signing: CrossSigning, hs: FakeHomeserver) -> None:
    hs.signing_needs_password = True
    with pytest.raises(CrossSigningRefused, match=r"homeserver\.password_file"):
        await cross_signing.ensure()
    with pytest.raises(CrossSigningRefused, match="does not take the bot's password"):
        await cross_signing.ensure("another password")
    await cross_signing.ensure(PASSWORD)
    assert await cross_signing.look() is None


async def test_what_is_no_answer_is_told_from_a_refusal(client: MatrixClient, hs: FakeHomeserver) -> None:
    for status, body, error in [
        (502, "<html>", HomeserverUnavailable),
        (500, {"error": "no errcode"}, HomeserverUnavailable),
        (200, "<html>", HomeserverUnavailable),
        (429, {"errcode": "M_LIMIT_EXCEEDED"}, RateLimited),
        (401, {"errcode": "M_UNKNOWN_TOKEN"}, TokenRefused),
    ]:
        hs.answer_with("POST", "/keys/device_signing/upload", status=status, body=body)
        with pytest.raises(error):
            await client.call("POST", UPLOAD, {})
    for status, body in [(401, {"flows": []}), (401, {"errcode": "M_FORBIDDEN"}), (403, {"errcode": "M_FORBIDDEN"})]:
        hs.answer_with("POST", "/keys/device_signing/upload", status=status, body=body)
        assert await client.call("POST", UPLOAD, {}) == (status, body)


async def test_a_device_that_is_made_anew_has_to_be_told_to_replace_the_identity(
    hs: FakeHomeserver, pod: UserId, tmp_path: Path
) -> None:
    """The first identity's keys are in the first device's vault, and nowhere else."""

    def device(device_id: str) -> NewDevice:
        return NewDevice(
            url=hs.url,
            user_id=pod,
            device_id=device_id,
            access_token=hs.token(pod, device_id),
            password=PASSWORD,
        )

    assert await make_keys(device("ONE"), tmp_path / "one", PICKLE_KEY) is None
    assert "--reset-identity" in (await make_keys(device("TWO"), tmp_path / "two", PICKLE_KEY) or "")
    assert await make_keys(device("THREE"), tmp_path / "three", PICKLE_KEY, reset_identity=True) is None


@pytest.fixture
def config(hs: FakeHomeserver, pod: UserId, owner: UserId, *, room: RoomId, vault: Vault, token: str) -> Path:
    """A configuration of the bot, with its keys."""
    folder = vault.folder.parent
    for name, secret in (("access_token", token), ("laptop", "a-token-of-the-laptop"), ("pickle_key", PICKLE_KEY)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(secret)
    document = {
        "homeserver": {"url": hs.url, "user_id": pod, "device_id": "POD", "access_token_file": "access_token"},
        "clients": {"laptop": {"token_file": "laptop", "routes": ["ops"]}},
        "routes": {"ops": {"room": room, "approvers": [owner], "reactions": "accept"}},
        "store": {"path": "store/agentpod.db"},
        "e2e": {"store": "crypto", "pickle_key_file": "pickle_key"},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


async def test_doctor_fails_a_device_that_nobody_vouches_for(config: Path, cross_signing: CrossSigning) -> None:
    async def lines() -> list[str]:
        return [str(found) for found in await asyncio.to_thread(lambda: list(look(config, {})))]

    [bad] = [line for line in await lines() if "cross-signing" in line]
    assert bad.startswith("fail  cross-signing: no identity of ")
    await cross_signing.ensure()
    assert "ok    cross-signing: the account's identity vouches for the device" in await lines()
    assert not any(line.startswith("fail") for line in await lines() if "store" not in line)


@pytest.mark.parametrize("trust", ["all", "approvers-verified", "verified"])
async def test_doctor_names_the_approvers_who_approve_nothing_before_they_are_verified(
    config: Path, cross_signing: CrossSigning, owner: UserId, trust: str
) -> None:
    await cross_signing.ensure()
    environ = {"AGENTPOD_BOT_E2E__TRUST": trust}
    said = [str(found) for found in await asyncio.to_thread(lambda: list(look(config, environ)))]
    told = [line for line in said if line.startswith(f"warn  verified: {owner} is not, and e2e.trust is {trust};")]
    assert len(told) == (0 if trust == "all" else 1), said
