from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.errors import CryptoStoreRefused
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from tests.unit.matrix.e2e.key_server import OWNER, POD, vault_of

if TYPE_CHECKING:
    from pathlib import Path


async def made(vault: Vault) -> None:
    await (await Keys.open(vault, make=True)).close()


async def refusal(vault: Vault) -> str:
    with pytest.raises(CryptoStoreRefused) as refused:
        await Keys.open(vault)
    assert refused.value.exit_code == 77
    return str(refused.value)


async def test_keys_that_were_made_are_the_same_when_they_are_opened_again(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    first = await Keys.open(vault, make=True)
    own = first.own
    await first.close()
    again = await Keys.open(vault)
    assert again.own == own
    await again.close()


async def test_a_vault_is_for_its_owner_alone(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    assert vault.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in vault.folder.iterdir()} == {0o600}


async def test_keys_are_never_made_over_others(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    before = vault.keys.read_bytes()
    with pytest.raises(CryptoStoreRefused, match="holds the keys of a device already"):
        await Keys.open(vault, make=True)
    assert vault.keys.read_bytes() == before


async def test_lost_keys_stop_the_start_and_none_are_made(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    assert "are not in" in await refusal(vault)
    assert "agentpod-bot login" in await refusal(vault)
    assert not vault.keys.exists()


async def test_an_empty_file_is_no_keys(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    vault.folder.mkdir(mode=0o700)
    vault.keys.touch()
    assert "are not in" in await refusal(vault)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    vault.folder.mkdir(mode=0o700)
    vault.keys.write_bytes(b"something else" * 100)
    assert "cannot be read" in await refusal(vault)


async def test_the_keys_of_another_device_are_refused_with_both_names(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    other = Vault(folder=vault.folder, pickle_key=vault.pickle_key, user_id=POD, device_id="NEW")
    said = await refusal(other)
    assert "device POD of @pod:example.org" in said
    assert "NEW" in said
    assert "those of device" in await refusal(
        Vault(folder=vault.folder, pickle_key=vault.pickle_key, user_id=OWNER, device_id="POD")
    )


async def test_another_secret_does_not_open_the_keys(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    other = Vault(folder=vault.folder, pickle_key="x" * 40, user_id=POD, device_id="POD")
    said = await refusal(other)
    assert "e2e.pickle_key_file does not open" in said
    assert "x" * 40 not in said


async def test_a_folder_that_others_can_use_is_refused_with_what_to_run(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    vault.folder.chmod(0o755)
    assert "chmod 700" in await refusal(vault)


async def test_a_newer_programs_keys_are_refused(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await made(vault)
    connection = sqlite3.connect(vault.keys)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    assert "not written by this version" in await refusal(vault)


def test_the_secret_is_not_in_what_a_vault_says_of_itself(tmp_path: Path) -> None:
    assert "pickle key" not in repr(vault_of(tmp_path, POD, "POD"))
