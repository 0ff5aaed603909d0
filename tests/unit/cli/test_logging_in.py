from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.errors import CredentialsRefused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command

TOKEN = "syt_made_up_token"
WORDS = ("login", "--homeserver", "https://example.org", "--user", "pod", "--no-e2e")
WITH_KEYS = (*WORDS[:-1], "--e2e")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A homeserver that lets everybody in, and what it was asked."""
    calls: list[tuple[Any, ...]] = []

    async def login(*args: Any) -> tuple[str, str, str]:
        calls.append(args)
        if args[2] == "wrong":
            raise CredentialsRefused("M_FORBIDDEN: Invalid password")
        return "@pod:example.org", "DEVICE", TOKEN

    monkeypatch.setattr("agentpod_bot.matrix.login.login", login)
    return calls


def test_the_token_goes_into_a_private_file_and_nowhere_else(
    command: Command, asked: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "access_token"
    result = command(*WORDS, "--output", str(path), "--password-file", "-", input="secret word\n")
    assert result.exit_code == 0, result.output
    assert path.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TOKEN not in result.output
    assert "secret word" not in result.output
    assert f'  access_token_file: "{path}"' in result.stdout.splitlines()
    assert '  user_id: "@pod:example.org"' in result.stdout.splitlines()
    assert asked == [("https://example.org", "pod", "secret word", "agentpod-bot")]


def test_a_file_that_exists_is_kept_and_nobody_is_logged_in(command: Command, asked: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "access_token"
    path.write_text("older")
    result = command(*WORDS, "--output", str(path), "--password-file", "-", input="secret")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert path.read_text() == "older"
    assert asked == []


def test_force_replaces_the_file_only_when_the_login_worked(command: Command, asked: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "access_token"
    path.write_text("older")
    path.chmod(0o644)
    words = (*WORDS, "--force", "--output", str(path), "--password-file", "-")
    assert command(*words, input="wrong").exit_code == 77
    assert path.read_text() == "older"
    assert command(*words, input="right").exit_code == 0
    assert path.read_text() == TOKEN + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert len(asked) == 2


def test_a_refused_password_leaves_no_file(command: Command, asked: list[Any], tmp_path: Path) -> None:
    result = command(*WORDS, "--output", str(tmp_path / "t"), "--password-file", "-", input="wrong")
    assert result.exit_code == 77
    assert result.stderr == "agentpod-bot: M_FORBIDDEN: Invalid password\n"
    assert list(tmp_path.iterdir()) == []
    assert len(asked) == 1


def test_a_password_file_loses_one_line_break_and_nothing_else(
    command: Command, asked: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "p").write_text(" secret \n\n")
    command(*WORDS, "--output", str(tmp_path / "t"), "--password-file", str(tmp_path / "p"))
    assert asked[0][2] == " secret \n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--password-file", "-"], "the password is empty"),
        (["--password-file", "/nowhere/p"], "cannot read the password"),
        ([], "no terminal"),
        (["--password-file", "-", "--homeserver", "example.org"], "is no URL"),
    ],
)
def test_without_a_usable_password_or_address_nobody_is_asked(
    command: Command, asked: list[Any], tmp_path: Path, words: list[str], said: str
) -> None:
    result = command(*WORDS, "--output", str(tmp_path / "t"), *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert asked == []


def test_a_folder_that_is_not_there_is_said(command: Command, asked: list[Any], tmp_path: Path) -> None:
    result = command(*WORDS, "--output", str(tmp_path / "no" / "t"), "--password-file", "-", input="x")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert asked == []


@pytest.fixture
def keys_made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What keys were made of; nothing is made."""
    calls: list[tuple[Any, ...]] = []

    async def make_keys(device: Any, folder: Path, pickle_key: str, *, reset_identity: bool) -> str | None:
        calls.append((device.device_id, folder, pickle_key, reset_identity))
        return "somebody else made its identity" if device.password == "not ours" else None

    monkeypatch.setattr("agentpod_bot.matrix.e2e.making.make_keys", make_keys)
    return calls


@pytest.mark.usefixtures("asked")
def test_a_new_device_gets_keys_and_the_settings_that_name_them(
    command: Command, keys_made: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "access_token"
    result = command(*WITH_KEYS, "--output", str(path), "--password-file", "-", input="right")
    assert result.exit_code == 0, result.output
    secret = tmp_path / "pickle_key"
    [(device_id, folder, pickle_key, reset)] = keys_made
    assert (device_id, folder, reset) == ("DEVICE", tmp_path / "crypto", False)
    assert secret.read_text().strip() == pickle_key
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert pickle_key not in result.output
    printed = result.stdout.splitlines()
    assert f'  store: "{folder}"' in printed
    assert f'  pickle_key_file: "{secret}"' in printed
    assert "warn" not in result.output


@pytest.mark.usefixtures("asked")
def test_a_secret_that_is_there_is_used_and_not_replaced(
    command: Command, keys_made: list[Any], tmp_path: Path
) -> None:
    secret = tmp_path / "pickle_key"
    secret.touch(mode=0o600)
    secret.write_text("a secret that was there before\n".replace(" ", "-"))
    words = (*WITH_KEYS, "--output", str(tmp_path / "access_token"), "--password-file", "-")
    assert command(*words, input="right").exit_code == 0
    assert keys_made[0][2] == "a-secret-that-was-there-before"


@pytest.mark.parametrize("there", ["keys", "open secret"])
def test_where_keys_could_not_be_made_nobody_is_logged_in(
    command: Command, asked: list[Any], tmp_path: Path, there: str
) -> None:
    if there == "keys":
        (tmp_path / "crypto").mkdir()
        (tmp_path / "crypto" / "keys.db").touch()
    else:
        (tmp_path / "pickle_key").write_text("a-secret-that-everybody-reads")
        (tmp_path / "pickle_key").chmod(0o644)
    words = (*WITH_KEYS, "--output", str(tmp_path / "access_token"), "--password-file", "-")
    result = command(*words, input="right")
    assert result.exit_code == 2
    assert ("--e2e-store" if there == "keys" else "chmod") in result.stderr
    assert asked == []
    assert not (tmp_path / "access_token").exists()


@pytest.mark.usefixtures("asked", "keys_made")
def test_an_identity_that_is_not_the_bots_is_told_and_the_login_stands(command: Command, tmp_path: Path) -> None:
    words = (*WITH_KEYS, "--output", str(tmp_path / "access_token"), "--password-file", "-")
    result = command(*words, input="not ours")
    assert result.exit_code == 0
    assert "somebody else made its identity" in result.stdout
