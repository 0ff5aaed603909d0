from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.matrix.e2e.copying import copy_vault
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from tests.unit.matrix.e2e.key_server import PICKLE_KEY, POD, vault_of

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_copy_that_is_made_while_the_keys_are_in_use_opens_as_the_same_device(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    keys = await Keys.open(vault, make=True)
    await Identities.open(vault, make=True)
    copy = tmp_path / "copy"
    copy_vault(vault.folder, copy)
    own = keys.own
    await keys.close()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in copy.iterdir()} == {0o600}
    restored = Vault(folder=copy, pickle_key=PICKLE_KEY, user_id=POD, device_id="POD")
    again = await Keys.open(restored)
    assert again.own == own
    assert (await Identities.open(restored)).known == (await Identities.open(vault)).known
    await again.close()


async def test_nothing_is_overwritten_and_what_fails_leaves_nothing(tmp_path: Path) -> None:
    vault = vault_of(tmp_path, POD, "POD")
    await (await Keys.open(vault, make=True)).close()
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(FileExistsError):
        copy_vault(vault.folder, there)
    with pytest.raises(FileNotFoundError):  # no identities were made
        copy_vault(vault.folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    with pytest.raises(FileNotFoundError):
        copy_vault(tmp_path / "nothing", tmp_path / "copy")
