from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import CryptoStoreRefused, StoreUnavailable
from agentpod_bot.matrix.e2e.identities import FILE, Identities, Seeds
from agentpod_bot.matrix.e2e.published import identity_in
from agentpod_bot.matrix.e2e.sealed import MAGIC
from agentpod_bot.matrix.e2e.vault import Vault
from tests.unit.matrix.e2e.persons import OWNER, POD, Pair, Person

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERSON = Person()
KEY = PERSON.device.public
SEEDS = Seeds(b"\1" * 32, b"\2" * 32, b"\3" * 32)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(folder=tmp_path, pickle_key="a pickle key", user_id=POD, device_id="POD")


@pytest.fixture
async def identities(vault: Vault) -> Identities:
    return await Identities.open(vault, make=True)


def verified(identities: Identities, device_id: str = "PHONE", ed25519: str = KEY) -> bool:
    return identities.is_verified(OWNER, device_id, ed25519)


# what accounts say of themselves


async def test_nobody_is_verified_by_their_own_word(identities: Identities) -> None:
    await identities.learn(PERSON.answer())
    assert not verified(identities)


async def test_a_verified_identity_vouches_for_its_devices(identities: Identities) -> None:
    await identities.learn(PERSON.answer())
    assert await identities.verify(OWNER, device=None, master=PERSON.master.public)
    assert verified(identities)
    assert not verified(identities, ed25519=Pair(99).public)
    assert not verified(identities, device_id="ANOTHER")
    assert not identities.is_verified("@other:example.org", "PHONE", KEY)


async def test_a_device_that_its_identity_does_not_sign_is_not_verified(identities: Identities) -> None:
    await identities.learn(PERSON.answer(is_signed=False))
    await identities.verify(OWNER, device=None, master=PERSON.master.public)
    assert not verified(identities)
    await identities.learn(PERSON.answer())
    assert verified(identities)
    await identities.learn(PERSON.answer(is_signed=False))
    assert not verified(identities), "what was signed once and is not any more"


def changed(path: list[str], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        *way, last = path
        for key in way:
            answer = answer[key]
        if value is None:
            answer.pop(last)
        else:
            answer[last] = value

    return change


EVIL = Person(number=5)
SSK, MSK = ["self_signing_keys", OWNER], ["master_keys", OWNER]
DEVICE = ["device_keys", OWNER, "PHONE"]


@pytest.mark.parametrize(
    "change",
    [
        changed(SSK, EVIL.answer()["self_signing_keys"][OWNER]),
        changed([*SSK, "signatures"], None),
        changed([*SSK, "signatures", OWNER], {f"ed25519:{PERSON.master.public}": "A" * 86}),
        changed([*SSK, "user_id"], "@other:example.org"),
        changed([*SSK, "usage"], ["user_signing"]),
        changed([*SSK, "usage"], "self_signing"),
        changed([*SSK, "keys"], {"ed25519:x": PERSON.self_signing.public}),
        changed([*SSK, "keys", "ed25519:two"], "two"),
        changed([*SSK, "extra"], "what was not signed"),
        changed(SSK, []),
        changed([*MSK, "usage"], []),
        changed([*MSK, "user_id"], "@other:example.org"),
        changed([*MSK, "keys"], {}),
        changed([*MSK, "keys"], {"ed25519:AAAA": "AAAA"}),
        changed(["master_keys"], None),
        changed(DEVICE, EVIL.device_keys()),
        changed([*DEVICE, "user_id"], "@other:example.org"),
        changed([*DEVICE, "device_id"], "ANOTHER"),
        changed([*DEVICE, "keys", "ed25519:PHONE"], EVIL.device.public),
        changed([*DEVICE, "keys"], None),
        changed([*DEVICE, "signatures", OWNER, "ed25519:PHONE"], None),
        changed([*DEVICE, "signatures", OWNER, f"ed25519:{PERSON.self_signing.public}"], None),
        changed([*DEVICE, "algorithms"], []),
        changed(["device_keys", OWNER], []),
    ],
)
async def test_whatever_is_wrong_on_the_way_from_identity_to_device_verifies_nothing(
    identities: Identities, change: Callable[[dict[str, Any]], None]
) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=None, master=PERSON.master.public)
    answer = PERSON.answer()
    change(answer)
    await identities.learn(answer)
    assert not verified(identities)
    assert not verified(identities, ed25519=EVIL.device.public)


async def test_a_device_that_is_called_like_a_key_is_never_vouched_for() -> None:
    twin = replace(PERSON, device_id=PERSON.master.public)
    identity = identity_in(twin.answer(), OWNER)
    assert identity is not None
    assert identity.devices == {}


async def test_an_account_whose_homeserver_is_down_stays_as_it_was(identities: Identities) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=None, master=PERSON.master.public)
    await identities.learn({"device_keys": {}, "master_keys": {}, "failures": {"example.org": {}}})
    assert verified(identities)


async def test_an_identity_that_is_gone_vouches_for_nothing(identities: Identities) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=None, master=PERSON.master.public)
    answer = PERSON.answer()
    await identities.learn({"device_keys": answer["device_keys"]})
    assert not verified(identities)
    assert identities.identity(OWNER) is None


async def test_another_identity_of_a_verified_account_verifies_nothing_of_it(
    identities: Identities, vault: Vault
) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    await identities.learn(EVIL.answer())
    for opened in (identities, await Identities.open(vault)):
        assert dict(opened.known.changed) == {OWNER: PERSON.master.public}
        await opened.learn(PERSON.answer())
        assert not verified(opened), "also once the first one is back"
    await identities.verify(OWNER, device=None, master=PERSON.master.public)
    assert dict(identities.known.changed) == {}
    assert verified(identities)


async def test_an_identity_that_changed_before_it_was_kept_is_not_verified(identities: Identities) -> None:
    await identities.learn(EVIL.answer())
    assert not await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    assert not verified(identities)
    assert not await identities.verify(UserId("@x:example.org"), device=None, master="never shown")


# what is kept


async def test_what_was_verified_is_kept(identities: Identities, vault: Vault) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=("PHONE", KEY), master=None)
    await identities.adopt(SEEDS)
    again = await Identities.open(vault)
    assert verified(again)
    assert not verified(again, ed25519=EVIL.device.public)
    assert again.known.seeds == SEEDS


async def test_what_was_forgotten_is_forgotten(identities: Identities, vault: Vault) -> None:
    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    assert await identities.forget(OWNER)
    assert not await identities.forget(OWNER)
    for opened in (identities, await Identities.open(vault)):
        assert not verified(opened)
        assert opened.known.masters == {}


async def test_the_file_is_for_its_owner_and_shows_nothing(identities: Identities, vault: Vault) -> None:
    await identities.verify(OWNER, device=("PHONE", KEY), master=None)
    await identities.plan(SEEDS)
    file = vault.folder / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    raw = file.read_bytes()
    assert b"owner" not in raw
    assert KEY.encode() not in raw
    assert b"\2" * 32 not in raw
    assert [each.name for each in vault.folder.iterdir()] == [FILE]


async def test_every_byte_of_the_file_is_vouched_for(identities: Identities, vault: Vault) -> None:
    await identities.verify(OWNER, device=("PHONE", KEY), master=None)
    file = vault.folder / FILE
    raw = file.read_bytes()
    places = [*range(0, len(raw), 7), len(raw) - 1]
    for place in places:
        file.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(CryptoStoreRefused):
            await Identities.open(vault)
    for cut in (b"", MAGIC, raw[:-1], raw[: len(MAGIC) + 20], raw + b"\0"):
        file.write_bytes(cut)
        with pytest.raises(CryptoStoreRefused):
            await Identities.open(vault)
    file.write_bytes(raw)
    assert verified(await Identities.open(vault))


async def test_another_key_or_device_does_not_open_the_file(identities: Identities, vault: Vault) -> None:
    await identities.verify(OWNER, device=("PHONE", KEY), master=None)
    for other in (
        replace(vault, pickle_key="another key"),
        replace(vault, device_id="POD2"),
        replace(vault, user_id=OWNER),
    ):
        with pytest.raises(CryptoStoreRefused, match="cannot be opened"):
            await Identities.open(other)


async def test_a_lost_file_is_never_silently_a_new_one(vault: Vault) -> None:
    with pytest.raises(CryptoStoreRefused, match="agentpod-bot login"):
        await Identities.open(vault)
    assert list(vault.folder.iterdir()) == []


async def test_a_new_device_takes_no_file_that_is_there(identities: Identities, vault: Vault) -> None:
    assert identities.known.masters == {}
    with pytest.raises(CryptoStoreRefused, match="not new"):
        await Identities.open(vault, make=True)


async def test_what_cannot_be_kept_verifies_nobody(
    identities: Identities, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    await identities.learn(PERSON.answer())
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    assert not verified(identities)
    assert not verified(await Identities.open(vault))
    assert await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    assert verified(await Identities.open(vault))


async def test_another_identity_counts_at_once_even_where_that_cannot_be_kept(
    identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    await identities.learn(PERSON.answer())
    await identities.verify(OWNER, device=("PHONE", KEY), master=PERSON.master.public)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable):
        await identities.learn(EVIL.answer())
    assert not verified(identities)


async def test_writes_do_not_overtake_each_other(identities: Identities, vault: Vault) -> None:
    users = [UserId(f"@user{number}:example.org") for number in range(20)]
    await asyncio.gather(*(identities.verify(user, device=("D", KEY), master=None) for user in users))
    again = await Identities.open(vault)
    assert all(again.is_verified(user, "D", KEY) for user in users)
