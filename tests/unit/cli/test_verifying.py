from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from agentpod_bot.cli.verifying import pictures
from tests.unit.cli.test_commands import configured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command

EMOJI = [
    ["🐶", "Dog"],
    ["🐱", "Cat"],
    ["🦁", "Lion"],
    ["🐎", "Horse"],
    ["🦄", "Unicorn"],
    ["🐷", "Pig"],
    ["🐘", "Elephant"],
]
ONE = {"id": "ab12", "user_id": "@owner:example.org", "device_id": "PHONE"}
SHOWN = ONE | {"state": "shown", "emoji": EMOJI, "numbers": [1234, 5678, 9012]}


class Daemon:
    """Lists what it is told to, in order, the last for ever; and keeps what was posted."""

    def __init__(self) -> None:
        self.lists: list[list[dict[str, Any]]] = [[]]
        self.posts: dict[str, tuple[int, dict[str, Any]]] = {}
        self.verified: dict[str, Any] = {}
        self.posted: list[str] = []

    async def serve(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.posted.append(request.path_qs)
            status, body = self.posts.get(request.path, (200, {}))
            return web.json_response(body, status=status)
        if request.path == "/verified":
            return web.json_response(self.verified)
        now = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return web.json_response({"version": 1, "verifications": now})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with keys."""
    path = configured(tmp_path)
    (tmp_path / "pickle_key").write_text("made-up-pickle-key-0123456789-0123456789\n")
    (tmp_path / "pickle_key").chmod(0o600)
    (tmp_path / "crypto").mkdir(mode=0o700)
    text = path.read_text().replace("homeserver:\n", "homeserver:\n  device_id: POD\n")
    path.write_text(text + f"e2e:\n  store: {tmp_path / 'crypto'}\n  pickle_key_file: {tmp_path / 'pickle_key'}\n")
    return path


@pytest.fixture
def daemon(config: Path) -> Iterator[Daemon]:
    """A daemon behind its socket, on a thread of its own: the command brings its own event loop."""
    fake, loop, started = Daemon(), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        served = web.Application()
        served.router.add_route("*", "/{tail:.*}", fake.serve)
        runner = web.AppRunner(served)
        await runner.setup()
        await web.UnixSite(runner, str(config.parent / "crypto" / "control.sock")).start()
        return runner

    def live() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=live)
    thread.start()
    assert started.wait(10)
    yield fake
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


Verify = Callable[..., Any]


@pytest.fixture
def verify(command: Command, config: Path) -> Verify:
    return lambda *words, **options: command("verify", "--config", str(config), *words, **options)


def test_emoji_are_shown_in_two_rows_and_what_is_verified_is_said(daemon: Daemon, verify: Verify) -> None:
    daemon.lists = [[], [ONE | {"state": "waiting"}], [SHOWN], [ONE | {"state": "confirmed"}]]
    daemon.lists.append([ONE | {"state": "verified", "device": True, "identity": True}])
    result = verify(input="y\n")
    assert result.exit_code == 0, result.output
    assert "@owner:example.org verifies the bot with device PHONE." in result.stdout
    assert "  🐶 Dog       🐱 Cat       🦁 Lion      🐎 Horse\n" in result.stdout
    assert "  🦄 Unicorn   🐷 Pig       🐘 Elephant\n" in result.stdout
    assert "1234  5678  9012" in result.stdout
    assert "Verified: device PHONE of @owner:example.org.\n" in result.stdout
    assert "Verified: the identity of @owner:example.org" in result.stdout
    assert daemon.posted == ["/verifications/ab12/confirm"]


def test_the_emoji_stand_below_each_other_whatever_characters_they_are_of() -> None:
    emoji = [("☎️", "Telephone"), ("✏️", "Pencil"), ("🔔", "Bell"), ("🐎", "Horse"), ("🎩", "Hat"), ("☁️", "Cloud")]
    rows = [row.replace("\ufe0f", "") for row in pictures(ONE | {"emoji": emoji})[2:4]]
    assert [row.index(name) for row, name in zip(rows, ("Telephone", "Hat"), strict=True)] == [4, 4]
    assert [row.index(name) for row, name in zip(rows, ("Pencil", "Cloud"), strict=True)] == [17, 17]


@pytest.mark.parametrize("said", ["n\n", "\n"])
def test_without_a_yes_nothing_is_verified(daemon: Daemon, verify: Verify, said: str) -> None:
    daemon.lists = [[SHOWN]]
    result = verify(input=said)
    assert result.exit_code == 1
    assert "Nothing was verified." in result.stderr
    assert daemon.posted == ["/verifications/ab12/cancel?mismatch=true"]


@pytest.mark.parametrize("said", ["", "maybe\n"])
def test_where_nobody_answers_nothing_is_said_to_the_daemon(daemon: Daemon, verify: Verify, said: str) -> None:
    daemon.lists = [[SHOWN]]
    assert verify(input=said).exit_code == 1
    assert daemon.posted == []


def test_who_compared_already_can_confirm_by_the_id(daemon: Daemon, verify: Verify) -> None:
    daemon.lists = [[ONE | {"state": "verified", "device": True, "identity": False}]]
    result = verify("--yes-they-match", "ab12")
    assert result.exit_code == 0
    assert "identity" not in result.stdout
    assert daemon.posted == ["/verifications/ab12/confirm"]
    assert verify("--yes-they-match", "../verified/forget").exit_code == 2


def test_a_confirmation_that_is_too_late_is_said(daemon: Daemon, verify: Verify) -> None:
    daemon.posts["/verifications/ab12/confirm"] = (409, {"detail": "there is nothing to confirm"})
    result = verify("--yes-they-match", "ab12")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is nothing to confirm" in result.stderr


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ([ONE | {"state": "cancelled", "code": "m.mismatched_sas"}], "the emoji did not match"),
        ([ONE | {"state": "cancelled", "code": "other"}], "the other side cancelled"),
        ([], "it took too long"),
    ],
)
def test_a_verification_that_comes_to_nothing_is_said(
    daemon: Daemon, verify: Verify, end: list[dict[str, Any]], said: str
) -> None:
    daemon.lists = [end]
    result = verify("--yes-they-match", "ab12")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Nothing was verified: {said}." in result.stderr


def test_what_is_verified_is_listed(daemon: Daemon, verify: Verify) -> None:
    own = {"user_id": "@pod:example.org", "device_id": "POD", "ed25519": "K1", "master": "M1", "trouble": None}
    daemon.verified = {
        "own": own,
        "identities": [{"user_id": "@owner:example.org", "master": "M2"}],
        "devices": [{"user_id": "@owner:example.org", "device_id": "PHONE", "ed25519": "K2"}],
        "changed": ["@other:example.org"],
    }
    result = verify("--list")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "The bot: @pod:example.org, device POD, key K1",
        "Cross-signed by its identity M1",
        "identity  @owner:example.org  M2",
        "device    @owner:example.org  PHONE  K2",
        "CHANGED   @other:example.org has another identity now: compare emoji again, or --forget them",
    ]
    daemon.verified = {"own": own | {"trouble": "do this"}, "identities": [], "devices": [], "changed": []}
    assert verify("--list").stdout.splitlines()[1:] == ["Not cross-signed: do this", "Nobody is verified."]


def test_who_is_to_be_forgotten_is_forgotten(daemon: Daemon, verify: Verify) -> None:
    result = verify("--forget", "@owner:example.org")
    assert (result.exit_code, result.stdout) == (0, "Nothing of @owner:example.org is verified any more.\n")
    assert daemon.posted == ["/verified/forget?user_id=@owner:example.org"]
    daemon.posts["/verified/forget"] = (404, {"detail": "nothing of that account is verified"})
    assert verify("--forget", "@owner:example.org").exit_code == 1


@pytest.mark.parametrize("words", [(), ("--list",), ("--forget", "@a:b"), ("--yes-they-match", "ab12")])
def test_without_a_daemon_that_is_said(verify: Verify, words: tuple[str, ...]) -> None:
    result = verify(*words)
    assert (result.exit_code, result.stdout) == (69, "")
    assert "the daemon does not run" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_keys_there_is_nothing_to_verify(command: Command, tmp_path: Path) -> None:
    result = command("verify", "--config", str(configured(tmp_path)))
    assert result.exit_code == 78
    assert "e2e.pickle_key_file" in result.stderr


def test_two_things_at_once_are_refused(verify: Verify) -> None:
    assert verify("--list", "--forget", "@a:b").exit_code == 2


def test_what_is_no_answer_of_the_daemon_s_breaks_nothing(daemon: Daemon, verify: Verify) -> None:
    daemon.posts["/verifications/ab12/confirm"] = (500, json.loads("[]"))
    result = verify("--yes-they-match", "ab12")
    assert result.exit_code == 1
    assert "the daemon answered 500" in result.stderr
