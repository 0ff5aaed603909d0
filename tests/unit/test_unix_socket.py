"""Unix sockets that are for their owner alone, and what stands where one is to be."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from agentpod_bot.errors import ConfigurationError
from agentpod_bot.unix_socket import Bound, bind, is_short


def bound(path: Path) -> Bound:
    return bind(path, setting="http.socket")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bot.sock"


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_a_socket_is_for_its_owner_alone_whatever_the_umask_which_stays_as_it_was(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(bound(path).socket):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigurationError):
            bound(path.parent / "missing" / "bot.sock")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


def test_nobody_can_connect_before_the_mode_is_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    monkeypatch.setattr(Path, "chmod", lambda self, _mode: modes.append(stat.S_IMODE(self.stat().st_mode)))
    with closing(bound(path).socket):
        assert modes == [0o600]


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    bound(path).socket.close()
    assert path.exists()
    with closing(bound(path).socket) as again:
        again.listen()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))


def test_a_socket_on_which_somebody_listens_is_left_to_them(path: Path) -> None:
    with closing(bound(path).socket) as theirs:
        theirs.listen()
        with pytest.raises(ConfigurationError, match=r"http\.socket: another process listens on .*bot\.sock"):
            bound(path)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))


def test_a_socket_of_another_kind_is_in_use(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(str(path))
        with pytest.raises(ConfigurationError, match="is in use"):
            bound(path)
        assert path.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(path: Path, kind: str) -> None:
    notes = path.parent / "notes"
    notes.write_text("mine")
    match kind:
        case "file":
            notes.rename(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(notes)
    with pytest.raises(ConfigurationError, match="exists and is no socket"):
        bound(path)
    assert path.is_dir() if kind == "folder" else path.read_text() == "mine"


def test_a_folder_that_is_not_there_is_a_fault_of_the_setting(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"http\.socket: cannot listen on"):
        bound(path.parent / "missing" / "bot.sock")


def test_a_path_below_a_file_is_a_fault_of_the_setting(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(ConfigurationError, match=r"http\.socket: cannot look at"):
        bound(path / "bot.sock")


def test_a_path_that_a_socket_cannot_have_is_known_as_such(path: Path) -> None:
    assert is_short(Path("/" + "a" * 106))
    assert not is_short(Path("/" + "a" * 107))
    assert not is_short(Path("/" + "ä" * 54))
    with pytest.raises(ConfigurationError, match=r"http\.socket: .* is longer than the 107 bytes"):
        bound(path.parent / ("x" * 107))


def test_its_file_is_removed_unless_another_stands_in_its_place(path: Path) -> None:
    mine = bound(path)
    with closing(mine.socket):
        mine.remove()
        assert not path.exists()
        mine.remove()
    first = bound(path)
    with closing(first.socket):
        path.rename(path.parent / "old.sock")
        with closing(bound(path).socket):
            first.remove()
            assert path.exists()
