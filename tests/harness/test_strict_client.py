from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from agentpod_bot.core.ids import UserId
from agentpod_bot.matrix.e2e.exchange import Cancelled, Shown
from tests.harness.programs import JS_SDK
from tests.harness.strict import Bot, StrictClient
from tests.integration.daemons import Daemon, ran

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentpod_bot.demo.homeserver import Account, PrivateSynapse

pytestmark = [pytest.mark.harness, pytest.mark.timeout(300)]

NEED = (JS_SDK,)
PROGRAM = (sys.executable, "-m", "agentpod_bot")
MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2"}


class Two(NamedTuple):
    """The bot's account and its approver's, in an encrypted room of their own."""

    pod: Account
    owner: Account
    room_id: str


@pytest.fixture
async def two(synapse: PrivateSynapse) -> Two:
    pod, owner = [await synapse.register(f"{name}{secrets.token_hex(4)}") for name in ("pod", "owner")]
    room_id = await synapse.room(owner, pod)
    async with synapse.person(owner) as person:
        await person.call("PUT", f"rooms/{room_id}/state/m.room.encryption", MEGOLM)
    return Two(pod, owner, room_id)


@pytest.fixture
async def bot(synapse: PrivateSynapse, two: Two, tmp_path: Path) -> AsyncIterator[Bot]:
    async with Bot(synapse.url, two.pod, tmp_path / "crypto", approver=two.owner.user_id) as running:
        yield running


@pytest.fixture
async def client(synapse: PrivateSynapse, two: Two) -> AsyncIterator[StrictClient]:
    async with StrictClient(synapse.url, two.owner) as running:
        yield running


async def test_a_strict_client_reads_the_bot_once_it_is_cross_signed(bot: Bot, client: StrictClient, two: Two) -> None:
    await bot.text(two.room_id, "before")
    unread = await client.event("message", sender=bot.account.user_id)
    assert unread["body"] != "before"
    assert unread["failure"] is not None
    await bot.cross_signing.ensure()
    await bot.text(two.room_id, "after")
    assert (await client.event("message", body="after"))["failure"] is None
    trust = await client.call("trust", user_id=bot.account.user_id, device_id=bot.account.device_id)
    assert trust == {"user": False, "signed": True, "device": False}


@pytest.mark.parametrize("where", ["device", "room", "room, answered in clear"])
async def test_emoji_compared_on_both_sides_verify_both_sides(
    bot: Bot, client: StrictClient, two: Two, where: str
) -> None:
    await bot.cross_signing.ensure()
    account, owner = bot.account, client.account
    await client.know(bot.account, two.room_id)
    bot.verifies_in_clear = where.endswith("clear")
    if where == "device":
        await client.call("verify_device", user_id=account.user_id, device_id=account.device_id)
    else:
        await client.call("verify_in_room", user_id=account.user_id, room_id=two.room_id)
    theirs = await client.event("emoji")
    ours = await bot.shown()
    assert isinstance(ours.state, Shown)
    assert [symbol for symbol, _ in ours.state.short.emoji] == [symbol for symbol, _ in theirs["emoji"]]
    assert [name.lower() for _, name in ours.state.short.emoji] == [name.lower() for _, name in theirs["emoji"]]
    assert list(ours.state.short.decimals) == theirs["numbers"]
    [keys] = await bot.crypto.devices_of(UserId(owner.user_id))
    assert not bot.crypto.is_verified(keys)
    assert await bot.verification.confirm(ours.verification_id)
    assert not bot.crypto.is_verified(keys)
    await client.call("match")
    await client.event("verified")
    over = await bot.over()
    assert over.trusted is not None
    assert over.trusted.ed25519 == keys.ed25519
    assert over.trusted.master == bot.identities.known.masters[owner.user_id]
    assert bot.crypto.is_verified(keys)
    await client.event("trust", user_id=account.user_id, verified=True)
    trust = await client.call("trust", user_id=account.user_id, device_id=account.device_id)
    assert trust == {"user": True, "signed": True, "device": True}


async def test_emoji_that_differ_verify_nobody(bot: Bot, client: StrictClient, two: Two) -> None:
    await bot.cross_signing.ensure()
    account = bot.account
    await client.know(bot.account, two.room_id)
    await client.call("verify_device", user_id=account.user_id, device_id=account.device_id)
    await client.event("emoji")
    ours = await bot.shown()
    assert await bot.verification.confirm(ours.verification_id)
    await client.call("mismatch")
    over = await bot.over()
    assert over.state == Cancelled("m.mismatched_sas", by_us=False)
    assert bot.identities.known.devices == bot.identities.known.masters == {}


async def test_who_is_no_approver_is_turned_away(
    bot: Bot, client: StrictClient, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot, "approver", "@somebody.else:localhost")
    account = bot.account
    await client.know(bot.account, two.room_id)
    await client.call("verify_device", user_id=account.user_id, device_id=account.device_id)
    await client.event("phase", code="m.user")
    assert bot.verification.all() == ()


@pytest.mark.parametrize(
    ("trust", "where"), [("all", "direct chat"), ("verified", "direct chat"), ("verified", "room")]
)
async def test_the_commands_make_a_device_that_a_strict_client_verifies_and_reads(
    synapse: PrivateSynapse, two: Two, client: StrictClient, tmp_path: Path, *, trust: str, where: str
) -> None:
    """`login`, then the daemon, then `verify`: as whoever sets the bot up goes through it."""
    (tmp_path / "password").write_text(two.pod.password)
    token, folder, pickle_key = (str(tmp_path / name) for name in ("token", "crypto", "pickle_key"))
    login = ["login", "--homeserver", synapse.url, "--user", two.pod.user_id, "--output", token]
    printed = await ran([*PROGRAM, *login, "--password-file", str(tmp_path / "password"), "--e2e"])
    assert printed.code == 0, printed
    device_id = yaml.safe_load(printed.out[printed.out.index("homeserver:") :])["homeserver"]["device_id"]
    daemon = Daemon(
        tmp_path / "daemon",
        homeserver=synapse.url,
        bot=(two.pod.user_id, await asyncio.to_thread(lambda: Path(token).read_text().strip())),
        rooms={"ops": two.room_id},
    ).approve(two.owner.user_id)
    daemon.config["homeserver"]["device_id"] = device_id
    daemon.config["e2e"] = {"store": folder, "pickle_key_file": pickle_key, "trust": trust}
    try:
        await daemon.start()
        await client.know(two.pod, two.room_id)
        if where == "room":
            await client.call("verify_in_room", user_id=two.pod.user_id, room_id=two.room_id)
        else:
            await client.call("verify_in_direct_chat", user_id=two.pod.user_id)
        theirs = await client.event("emoji")
        shown = await daemon.until_logged("verification_emoji")
        assert [each.partition(" ")[0] for each in shown["emoji"].split(" · ")] == [each for each, _ in theirs["emoji"]]
        verify = asyncio.create_task(ran(daemon.command("verify", "--yes-they-match", shown["verification_id"])))
        await client.call("match")
        await client.event("verified")
        said = await verify
        assert said.code == 0, said
        assert f"Verified: the identity of {two.owner.user_id}" in said.out
        listed = await ran(daemon.command("verify", "--list"))
        assert f"identity  {two.owner.user_id}" in listed.out
        assert "Cross-signed" in listed.out
        await client.call("say", room_id=two.room_id, body="!open")
        assert (await client.event("message", sender=two.pod.user_id, body="No question is open here."))[
            "failure"
        ] is None
    finally:
        await daemon.stop()
