from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.store.database import open_store
from tests.unit.cli.test_commands import configured
from tests.unit.store.examples import insert_closed, insert_pending

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration with a store in which two questions stand."""
    path = configured(tmp_path)

    async def fill() -> None:
        store = open_store(tmp_path / "agentpod.db")
        await store.run(lambda tx: (insert_pending(tx, 1), insert_closed(tx, 2)))
        await store.close()

    asyncio.run(fill())
    return str(path)


def test_a_backup_says_what_is_in_it(command: Command, config: str, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    result = command("backup", str(target), "--config", config)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{target}: {target.stat().st_size} bytes, 2 questions, 1 of them open.\n"


def test_a_backup_needs_no_secret_of_the_configuration(command: Command, config: str, tmp_path: Path) -> None:
    """A token that is gone is no reason to have no backup; rather one to make it."""
    (tmp_path / "access_token").unlink()
    (tmp_path / "laptop").chmod(0o644)
    assert command("check-config", "--config", config).exit_code == 78
    result = command("backup", str(tmp_path / "backup.db"), "--config", config)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (tmp_path / "backup.db").exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("config.yaml", "exists already"),
        ("no/such/folder.db", "No such file or directory"),
        ("config.yaml/backup.db", "Not a directory"),
    ],
)
def test_where_no_backup_can_be_written_nothing_is_changed(
    command: Command, config: str, tmp_path: Path, target: str, said: str
) -> None:
    before = sorted(tmp_path.iterdir())
    result = command("backup", str(tmp_path / target), "--config", config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert [file for file in sorted(tmp_path.iterdir()) if not file.name.endswith(("-wal", "-shm"))] == before


def test_without_a_store_there_is_no_backup(command: Command, tmp_path: Path) -> None:
    result = command("backup", str(tmp_path / "backup.db"), "--config", str(configured(tmp_path)))
    assert result.exit_code == 78
    assert "there is no store" in result.stderr


def test_doctor_says_each_fault_of_the_configuration_and_exits_1(command: Command, tmp_path: Path) -> None:
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("approvers:", "aprovers:"))
    result = command("doctor", "--config", str(path))
    assert (result.exit_code, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok    version: agentpod-bot ")
    assert any(line.startswith("fail  configuration: routes.ops.aprovers") for line in lines)
    assert "made-up-secret" not in json.dumps(lines)
