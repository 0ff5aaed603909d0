"""The strict client as a child process, and the bot's keys without a daemon around them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any, Self

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
from agentpod_bot.matrix.e2e.crypto import Crypto
from agentpod_bot.matrix.e2e.delivery import Delivery
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from agentpod_bot.matrix.e2e.verification import Verification
from agentpod_bot.matrix.homeserver import MatrixHomeserver
from agentpod_bot.system import SystemClock
from tests.harness.programs import JS_SDK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.matrix.e2e.ongoing import Open

SCRIPT = __file__.replace("strict.py", "strict_client.mjs")
PATIENCE_S = 60.0
LINE_BYTES = 2**20


class StrictClient:
    """A person's client, inside `async with`."""

    def __init__(self, url: str, account: Account) -> None:
        self.account = account
        self._words = (url, account.user_id, account.device_id, account.access_token, account.password)
        self._told: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self._calls = 0

    async def __aenter__(self) -> Self:
        """Start it; it has an identity of its own then."""
        node = shutil.which("node")
        assert node is not None, "node is not installed"
        self._process = await asyncio.create_subprocess_exec(
            node,
            SCRIPT,
            str(JS_SDK.folder / "node_modules"),
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read())
        await self.call("start")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def call(self, what: str, **words: Any) -> Any:
        """Have it do something; returns what came of it."""
        self._calls += 1
        number = self._calls
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": what} | words).encode() + b"\n")
        await self._process.stdin.drain()
        answer = await self._until(lambda told: told.get("id") == number)
        assert "error" not in answer, answer
        return answer["ok"]

    async def know(self, bot: Account, room_id: str) -> None:
        """Say something in an encrypted room, for which the client looks up who is there."""
        await self.call("say", room_id=room_id, body="hello")
        await self.call("trust", user_id=bot.user_id, device_id=bot.device_id)

    async def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """The first event of this name and with these fields, that was not given yet."""
        wanted = {"event": name} | fields
        found = await self._until(lambda told: wanted.items() <= told.items())
        self._told.remove(found)
        return found

    async def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S), self._news:
            while True:
                found = next((told for told in self._told if wanted(told)), None)
                if found is not None:
                    return found
                assert not self._reading.done(), "the client ended"
                await self._news.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._news:
                self._told.append(json.loads(line))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


class Bot:
    """The bot's keys, what they are used for and its verifications, at a real homeserver; inside `async with`."""

    def __init__(self, url: str, account: Account, folder: Path, *, approver: str) -> None:
        self.account = account
        self._url = url
        self._folder = folder
        self.approver = approver
        self.verifies_in_clear = False

    async def __aenter__(self) -> Self:
        """Make the keys and publish them, but no identity yet."""
        account = self.account
        user_id = UserId(account.user_id)
        vault = Vault(folder=self._folder, pickle_key="a pickle key", user_id=user_id, device_id=account.device_id)
        self._keys = await Keys.open(vault, make=True)
        self.client = MatrixClient(self._url, user_id, account.access_token, device_id=account.device_id)
        self.identities = await Identities.open(vault, make=True)
        clock = SystemClock()
        self.crypto = Crypto(self._keys, self.client, clock, verdicts=self.identities)
        await self.crypto.publish()
        self.cross_signing = CrossSigning(self.crypto, self.client, self.identities)
        self.homeserver = MatrixHomeserver(self.client, self.crypto)
        self.verification = Verification(
            self.crypto,
            Delivery(self.crypto, self, clock),
            self.identities,
            self.cross_signing,
            clock,
            is_approver=lambda user: user == self.approver,
        )
        self.crypto.on_to_device = self.verification.hear
        self.crypto.on_verification = lambda room_id, event, _: self.verification.hear_in_room(room_id, event)
        self._tasks = [asyncio.create_task(task) for task in (self._sync(), self.verification.run())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and close what is open."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended
        await self.client.close()
        await self._keys.close()

    async def say(self, room_id: RoomId, kind: str, content: Mapping[str, Any], txn_id: TxnId) -> None:
        """Fits `Speaker`."""
        if self.verifies_in_clear and kind != "m.room.message":
            await self.client.send(room_id, kind, content, txn_id)
            return
        await self.homeserver.send(await self.client.room_state(room_id), kind, content, txn_id)

    async def text(self, room_id: str, body: str) -> None:
        """Say something in a room."""
        txn_id = TxnId(f"t-{body}".replace(" ", "-"))
        await self.say(RoomId(room_id), "m.room.message", {"msgtype": "m.text", "body": body}, txn_id)

    async def shown(self) -> Open:
        """The verification that shows emoji."""
        return await self._until(lambda one: type(one.state).__name__ == "Shown")

    async def over(self) -> Open:
        """The verification that ended last."""
        return await self._until(lambda one: one.is_over)

    async def _until(self, wanted: Callable[[Open], bool]) -> Open:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                version = self.verification.version
                found = next((one for one in reversed(self.verification.all()) if wanted(one)), None)
                if found is not None:
                    return found
                await self.verification.changes(version)

    async def _sync(self) -> None:
        since = None
        while True:
            response = await self.client.sync(since, timeout_ms=10_000, sync_filter={})
            await self.crypto.take(response)
            for room_id, room in response.get("rooms", {}).get("join", {}).items():
                for event in room["timeline"]["events"]:
                    await self.crypto.read(RoomId(room_id), event)
            since = response["next_batch"]
