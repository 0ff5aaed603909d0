from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.config import written_back
from agentpod_bot.config.written_back import write_back

if TYPE_CHECKING:
    from pathlib import Path


def test_a_secret_takes_the_place_of_the_old_one_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "access_token"
    path.write_text("old")
    path.chmod(0o644)
    write_back(path, "new")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "access_token"
    kept.write_text("old")
    link.symlink_to(kept)
    write_back(link, "new")
    assert link.is_symlink()
    assert kept.read_text() == "new\n"


def test_where_the_disk_takes_nothing_the_file_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "access_token"
    path.write_text("old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written_back.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_back(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
