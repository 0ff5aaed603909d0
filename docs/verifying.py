"""Renews the pictures of `verification.md`: a real client verifies the real bot, on a private homeserver.

`python -m docs.verifying` needs nheko 0.11 and a screen that nobody sees (Debian: `apt-get install nheko
xvfb xdotool dbus imagemagick fonts-noto-color-emoji fonts-dejavu-core`). It clicks where that
version has its buttons in a window as narrow as a phone. Look at the pictures before you keep
them. The emoji are others each time, so it also writes what the terminal shows into the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentpod_bot.demo.daemon import Daemon
from agentpod_bot.demo.homeserver import PrivateSynapse
from agentpod_bot.demo.process import Leashed
from docs.png import with_palette

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from agentpod_bot.demo.homeserver import Account

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER / "verification.md"
PICTURES = ("verify-refused", "verify-profile", "verify-emoji", "verify-done", "verify-allowed")
NEEDED = ("nheko", "Xvfb", "xdotool", "dbus-run-session", "import")
TERMINAL = re.compile(r"(?<=```text\n)@owner:localhost verifies .*?(?=```)", re.DOTALL)
"""What `verify` shows, in the page."""
PROMPT = "[y/N]:"

SCREEN = "1200x800x24"
PHONE = (400, 700)
DIALOG = (420, 200)
WRITE = (160, 681)
"""Where the field for a message is, in a window of that size."""
ROOM = (130, 75)
"""The first room of the list, in the window as it opens."""
SWITCHES = ((563, 184), (563, 462))
"""What the setup of encryption would keep on the homeserver, and this client need not."""
SETUP_OK = (914, 562)
SETTLES_S = 1.0
LONGEST_S = 60.0
SETTINGS = """[General]
run_without_secure_secrets_service=true

[auth]
access_token={account.access_token}
device_id={account.device_id}
home_server={url}
user_id={account.user_id}

[user]
theme=light
typing_notifications=false
"""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of the client, by its id of X11, with its size in pixels."""

    number: str
    width: int
    height: int


class Client:
    """nheko, logged in, on a screen of its own; see `running`."""

    def __init__(self, display: str, home: Path) -> None:
        self._home = home
        self._env = os.environ | {
            "DISPLAY": display,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "QT_QUICK_BACKEND": "software",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    @contextlib.asynccontextmanager
    async def running(self, account: Account, url: str) -> AsyncIterator[Window]:
        """The client's main window, with encryption set up and the only room open."""
        settings = self._home / ".config" / "nheko" / "nheko.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS.format(account=account, url=url))
        nheko = Leashed(["dbus-run-session", "nheko"], output=self._home / "nheko.log", env=self._env)
        try:
            main = await self.opened(set())
            await self.rests(main, times=3)
            for place in (*SWITCHES, SETUP_OK):
                await self.click(main, *place)
                await self.rests(main)
            await self.confirm(await self.opened({main.number}))
            await self.click(main, *ROOM)
            self.say("windowsize", main.number, *map(str, PHONE))
            await self.rests(main, times=3)
            yield Window(main.number, *PHONE)
        finally:
            await nheko.stop()

    def windows(self) -> list[Window]:
        """Every window of some size, and the dialogs that wait to be given one."""
        found = []
        for number in self.say("search", "--onlyvisible", "--class", "nheko").split():
            with contextlib.suppress(subprocess.CalledProcessError):  # closed meanwhile
                size = dict(line.split("=") for line in self.say("getwindowgeometry", "--shell", number).split())
                found.append(Window(number, int(size["WIDTH"]), int(size["HEIGHT"])))
        return [window for window in found if window.height > 1]

    async def opened(self, known: set[str]) -> Window:
        """The window that opens beside the known ones."""
        found: list[Window] = []

        def is_there() -> bool:
            found[:] = [window for window in self.windows() if window.number not in known]
            return bool(found)

        await until(is_there, "a window")
        return found[0]

    async def profile(self, user_id: str) -> Window:
        """The window with somebody's profile, which opens by a link."""
        known = {window.number for window in self.windows()}
        link = f"matrix:u/{user_id.removeprefix('@')}"
        self._run("dbus-run-session", "nheko", link)
        found = await self.opened(known)
        await self.rests(found)
        return found

    async def dialog(self, known: Sequence[Window]) -> Window:
        """The dialog that opens beside these; it is given a width, which a window manager would do."""
        found = await self.opened({window.number for window in known})
        self.say("windowsize", found.number, *map(str, DIALOG))
        self.say("windowmove", found.number, "450", "100")
        await self.rests(found)
        return found

    async def confirm(self, dialog: Window) -> None:
        """Press the right one of the buttons at the foot of a dialog, which has the height of what it says."""
        now = next(window for window in self.windows() if window.number == dialog.number)
        await self.click(now, now.width - 50, now.height - 22)

    async def click(self, window: Window, x: int, y: int) -> None:
        """Press a place of a window."""
        self.say("windowraise", window.number)
        self.say("mousemove", "--window", window.number, str(x), str(y))
        self.say("click", "1")

    async def write(self, window: Window, text: str) -> None:
        """Send a message in the open room."""
        await self.click(window, *WRITE)
        await self.rests(window)
        self.say("type", "--delay", "30", text)
        self.say("key", "Return")

    async def take(self, window: Window, name: str, *, crop: str | None = None) -> None:
        """Keep a picture of what a window shows once nothing moves in it, or of a part: `400x300+0+50`."""
        await self.rests(window, times=2)
        picture = FOLDER / "pictures" / f"{name}.png"
        picture.write_bytes(with_palette(self._shot(window, crop)))
        print(f"docs/pictures/{picture.name}: {picture.stat().st_size:,} bytes")

    def say(self, *words: str) -> str:
        """Run one xdotool command."""
        return self._run("xdotool", *words, check=words[0] != "search").decode()  # which fails where nothing is found

    async def rests(self, window: Window, *, times: int = 1) -> None:
        """Wait until a window looks the same as a while before, so many times in a row."""
        before, same = b"", 0
        for _ in range(int(LONGEST_S / SETTLES_S)):
            await asyncio.sleep(SETTLES_S)
            now = self._shot(window)
            before, same = now, same + 1 if now == before else 0
            if same >= times:
                return
        raise TimeoutError("the client does not come to rest")

    def _shot(self, window: Window, crop: str | None = None) -> bytes:
        cut = [] if crop is None else ["-crop", crop, "+repage"]
        plain = ["-depth", "8", "-strip", "-define", "png:color-type=2", "png:-"]
        return self._run("import", "-window", window.number, *cut, *plain)

    def _run(self, *command: str, check: bool = True) -> bytes:
        """What a program says that shares screen and home with the client."""
        return subprocess.run(  # noqa: S603 - our own words
            command, env=self._env, check=check, capture_output=True, timeout=LONGEST_S
        ).stdout


class Told:
    """A command of the bot's in a terminal of its own; `text` is what it said."""

    def __init__(self, stack: AsyncExitStack, *words: str) -> None:
        """Run it; it is ended with the stack, if it does not end before."""
        self.text = ""
        self._terminal, theirs = os.openpty()
        stack.callback(os.close, self._terminal)
        os.set_blocking(self._terminal, False)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "agentpod_bot", *words], stdin=theirs, stdout=theirs, stderr=theirs
            )
        finally:
            os.close(theirs)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)

    async def says(self, text: str) -> None:
        """Wait until it said that."""

        def has_said() -> bool:
            self._read()
            return text in self.text

        await until(has_said, repr(text))

    def type(self, text: str) -> None:
        """Write into the terminal."""
        os.write(self._terminal, text.encode())

    async def ends(self) -> None:
        """Wait until it ends. Raises SystemExit where it does not end well."""
        await until(lambda: self._process.poll() is not None, "the end of a command")
        self._read()
        if self._process.returncode:
            raise SystemExit(f"agentpod-bot failed:\n{self.text}")

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # nothing now; or, once it ended, nothing more
            while part := os.read(self._terminal, 65_536):
                self.text += part.decode().replace("\r\n", "\n")


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so. Raises TimeoutError where it does not come."""
    for _ in range(int(LONGEST_S / 0.2)):
        if is_so():
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"{what} did not come")


async def screen(stack: AsyncExitStack, folder: Path) -> str:
    """The name of a screen that nobody sees."""
    output = folder / "display"
    xvfb = Leashed(["Xvfb", "-displayfd", "1", "-screen", "0", SCREEN], output=output)
    stack.push_async_callback(xvfb.stop)
    await until(lambda: output.exists() and output.read_text().strip().isdecimal(), "a screen")
    return f":{output.read_text().strip()}"


async def room(synapse: PrivateSynapse, owner: Account, pod: Account) -> str:
    """An encrypted room of both, of a version that this client reads."""
    encryption = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    body = {"name": "Agents", "preset": "private_chat", "room_version": "10", "initial_state": [encryption]}
    async with synapse.person(owner) as person:
        made: str = (await person.call("POST", "createRoom", body | {"invite": [pod.user_id]}))["room_id"]
    async with synapse.person(pod) as person:
        await person.join(made)
    return made


async def renew(folder: Path) -> None:
    """Let an approver be refused, verify, and answer; take the pictures of it."""
    async with AsyncExitStack() as stack:
        synapse = await stack.enter_async_context(PrivateSynapse())
        owner, pod = await synapse.register("owner"), await synapse.register("pod")
        room_id = await room(synapse, owner, pod)
        daemon = Daemon(folder, homeserver=synapse.url, bot=pod, approver=owner, room_id=room_id)
        await daemon.make_keys()
        config = json.loads(daemon.config.read_text())
        config["e2e"]["trust"] = "approvers-verified"
        daemon.config.write_text(json.dumps(config))
        await stack.enter_async_context(daemon.running())
        client = Client(await screen(stack, folder), folder / "home")
        main = await stack.enter_async_context(client.running(owner, synapse.url))

        def asks(title: str, command: str) -> Told:
            door = ("--url", daemon.url, "--token-file", str(folder / "client_token"))
            return Told(stack, "ask", title, "--command", command, "--agent", "hermes", "--session", "s-1", *door)

        first = asks("Run the test suite", "bun test")
        await first.says("Asked as")
        await client.rests(main, times=2)
        await client.write(main, answer(first))
        await client.take(main, "verify-refused")

        terminal = Told(stack, "verify", "--config", str(daemon.config))
        profile = await client.profile(pod.user_id)
        await client.take(profile, "verify-profile", crop="420x370+0+0")
        await client.click(profile, 210, 251)
        dialog = await client.dialog([main, profile])
        await client.confirm(dialog)
        await terminal.says(PROMPT)
        await client.take(dialog, "verify-emoji")
        await client.confirm(dialog)
        terminal.type("y\n")
        await terminal.ends()
        await client.take(profile, "verify-done", crop="420x335+0+0")
        await client.confirm(dialog)
        await client.confirm(profile)

        await client.write(main, answer(first))
        await first.ends()
        second = asks("Push the branch", "git push")
        await second.says("Asked as")
        await client.write(main, answer(second))
        await second.ends()
        await client.take(main, "verify-allowed", crop="400x255+0+403")
    shown = terminal.text[terminal.text.index("@owner") :]
    PAGE.write_text(TERMINAL.sub(lambda _: shown, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def answer(asked: Told) -> str:
    """The first option, with the code of what was asked."""
    found = re.search(r"Asked as (\w+)", asked.text)
    if found is None:
        raise SystemExit(f"nothing was asked:\n{asked.text}")
    return f"1 {found[1]}"


def main() -> None:
    """Renew the pictures, and the terminal's text in the page."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        sys.exit(f"Not installed: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="verifying-") as scratch:
        folder = Path(scratch)
        (folder / "home").mkdir(mode=0o700)
        asyncio.run(renew(folder))


if __name__ == "__main__":
    main()
