"""Kill, cut, limit and mislead everything for minutes, then have a stranger check what became of it.

At least 500 requests in 20 rooms of a real Synapse (`--fake`: 5,000 on the fake homeserver
of the tests), through a proxy that makes faults, while the daemon is killed every few
seconds and Synapse twice. `--encrypted`: at least 200 in 10 encrypted rooms, where each
person has a device with keys of its own. Then the weather calms, everything comes to its end, and the
checker (a program of its own, see `chaos/checker`) reads what room, harness, daemon and
audit say. Exits 1 where anything was lost, doubled, wrong or unauthorised, and in encrypted
rooms where anything was in clear or unreadable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp

from agentpod_bot.demo.person import Person
from agentpod_bot.errors import CannotStart
from agentpod_bot.log import configure
from chaos import plan
from chaos.harness import Harness
from chaos.options import Options, given
from chaos.people import People
from chaos.pod import Pod
from chaos.town import Citizen, Town, fake_town, real_town
from chaos.weather import Weather
from tests.e2e_person import E2EPerson, Login, switch_on

if TYPE_CHECKING:
    from collections.abc import Sequence

ROTATION = 5
"""Messages for which a key is used in every third of the encrypted rooms."""
SETTLE_S = 150.0
STALLED_S = 60.0
"""For so long nothing may come to its end in calm weather."""
NAMES = (plan.OWNER, plan.SECOND, plan.MALLORY, plan.AGENT)
TELL_EVERY_S = 10.0
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Result:
    """What a run did, and how it ended. `kept` is whether every promise was."""

    figures: dict[str, Any]
    checked: str
    kept: bool

    def text(self) -> str:
        """The report."""
        lines = [f"{name:<28}{value}" for name, value in self.figures.items()]
        return "\n".join([*lines, "", self.checked])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the arguments say, print the report, return the exit code."""
    options, keep = given(arguments)
    configure("error", "auto", sys.stderr)  # making keys and people's own clients have nothing to say here
    try:
        if keep is not None:
            keep.mkdir(parents=True)
            result = asyncio.run(run(options, keep))
        else:
            with tempfile.TemporaryDirectory(prefix="agentpod-chaos-") as folder:
                result = asyncio.run(run(options, Path(folder)))
    except CannotStart as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    print(result.text())
    return 0 if result.kept else 1


async def run(options: Options, folder: Path) -> Result:
    """Make one run; everything that it leaves is in `folder`, which must be there."""
    say = Teller()
    kind = "encrypted rooms" if options.encrypted else "rooms"
    say(f"seed {options.seed}: {options.requests} requests in {options.rooms} {kind}")
    async with AsyncExitStack() as stack:
        town = await stack.enter_async_context(fake_town() if options.fake else real_town())
        storm = Storm(options, folder, town, stack, say)
        await storm.prepare()
        await storm.blow()
        await storm.settle()
        return await storm.check()


class Storm:
    """One run: who takes part, and what is done to them."""

    def __init__(self, options: Options, folder: Path, town: Town, stack: AsyncExitStack[Any], say: Teller) -> None:
        self._options = options
        self._folder = folder
        self._town = town
        self._stack = stack
        self._say = say
        self._began = time.monotonic()
        self._random = Random(f"{options.seed} kills")
        self._citizens: dict[str, Citizen] = {}
        self._rooms: list[str] = []
        self._falls = 0
        self._problems: list[str] = []

    async def prepare(self) -> None:
        """Make accounts, rooms and the daemon, in calm weather."""
        options, town, stack = self._options, self._town, self._stack
        bot = await town.account("pod")
        self._citizens = {name: await town.account(name) for name in NAMES}
        others = [citizen for name, citizen in self._citizens.items() if name != plan.OWNER]
        for _ in range(options.rooms):
            self._rooms.append(await town.room(self._citizens[plan.OWNER], bot, *others))
        self._bot = bot.user_id
        self._requests = plan.made(
            Random(f"{options.seed} plan"),
            requests=options.requests,
            rooms=options.rooms,
            asking_s=options.asking_s,
            encrypted=options.encrypted,
        )
        self._weather = await stack.enter_async_context(Weather(town.url, Random(f"{options.seed} weather")).blowing())
        self._pod = Pod(
            self._folder / "daemon",
            homeserver=self._weather.url,
            bot=bot,
            agents=[self._citizens[plan.AGENT].user_id],
            rooms={f"room{n}": (room, plan.client_of(n), self._approvers(n)) for n, room in enumerate(self._rooms)},
        )
        stack.push_async_callback(self._pod.stop)
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        self._harness = Harness(
            self._pod.url,
            self._pod.tokens,
            self._folder / "harness.jsonl",
            Random(f"{options.seed} harness"),
            most_open=options.most_open,
            session=session,
        )
        stack.callback(self._harness.close)
        persons = {
            name: await stack.enter_async_context(self._person(citizen)) for name, citizen in self._citizens.items()
        }
        if options.encrypted:
            await self._pod.give_keys(town.url, bot)
            for n, room_id in enumerate(self._rooms):
                await switch_on(persons[plan.OWNER], room_id, **({} if n % 3 else {"rotation_period_msgs": ROTATION}))
        planned = {(self._rooms[request.room], request.request_id): request for request in self._requests}
        self._people = People(persons, self._bot, planned)
        self._watching = asyncio.create_task(self._people.watch())
        stack.push_async_callback(_cancelled, self._watching)
        stack.push_async_callback(self._people.stop)
        self._pod.start()
        await self._pod.ready()
        if not self._pod.runs:
            raise RuntimeError(f"the daemon does not start:\n{self._pod.tail()}")

    async def blow(self) -> None:
        """Ask, and meanwhile kill, until all is asked or the time is over."""
        self._say("the storm begins")
        self._storm_began = time.monotonic()
        self._storm_ends = self._storm_began + self._options.storm_s
        self._weather.calm = False
        self._playing = {asyncio.create_task(self._play(request)) for request in self._requests}
        self._stack.push_async_callback(_cancelled, *self._playing)
        killing = asyncio.create_task(self._kill())
        falling = asyncio.create_task(self._fall())
        try:
            while not all(task.done() for task in self._playing):
                await asyncio.sleep(0.5)
                for task in (self._watching, killing, falling):
                    if task.done():
                        task.result()
                self._say.sometimes(self._so_far())
                if time.monotonic() > self._storm_ends:
                    break
        finally:
            await _cancelled(killing)
            await falling  # a homeserver that is down is brought up again
        self._stormed_s = time.monotonic() - self._storm_began
        self._weather.calm = True

    async def settle(self) -> None:
        """In calm weather, wait until everything that began has an end and was said."""
        self._say(f"calm; {self._so_far()}")
        if not self._pod.runs:
            await self._pod.kill()
            self._pod.start()
        await self._pod.ready()
        began = moved = time.monotonic()
        left: tuple[int, int] | None = None
        while (now := time.monotonic()) - began < max(SETTLE_S, self._options.storm_s) and now - moved < STALLED_S:
            before, left = left, (sum(not task.done() for task in self._playing), self._unsaid())
            if left == (0, 0) and not self._people.busy:
                break
            moved = moved if left == before else now
            self._say.sometimes(self._so_far())
            await asyncio.sleep(0.3)
        else:
            self._problems.append(f"not all came to an end in time (requests, effects: {left})")
        for task in self._playing:
            if task.done():
                task.result()
        await _cancelled(*self._playing)
        await self._people.stop()

    async def check(self) -> Result:
        """Have the checker look at it, as somebody who was never there."""
        auditor = await self._town.account("auditor")
        for room_id in self._rooms:
            await self._town.enter(room_id, self._citizens[plan.OWNER], auditor)
        manifest = {
            "homeserver": self._town.url,
            "reader_token": auditor.token,
            "bot": self._bot,
            "agents": [self._citizens[plan.AGENT].user_id],
            "daemon": self._pod.url,
            "tokens": self._pod.tokens,
            "store": str(self._pod.store),
            "harness_log": str(self._folder / "harness.jsonl"),
            "rooms": [
                {"room_id": room, "route": f"room{n}", "client": plan.client_of(n), "approvers": self._approvers(n)}
                for n, room in enumerate(self._rooms)
            ],
        }
        if self._options.encrypted:
            self._say("reading with everybody's devices")
            testimony = _private(self._folder / "testimony.json", await self._people.testimony(self._rooms))
            manifest["testimony"] = str(testimony)
        path = _private(self._folder / "manifest.json", manifest)
        self._say("checking")
        checking = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chaos.checker",
            str(path),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
        out, _ = await checking.communicate()
        return self._result(out.decode(), checked_well=checking.returncode == 0)

    def _result(self, checked: str, *, checked_well: bool) -> Result:
        pod, weather = self._pod, self._weather
        logged = pod.logged()
        faults = sum(weather.made.values())
        problems = list(self._problems)
        if self._people.failures:
            problems.append(f"not everything could be said: {self._people.failures[:3]}")
        if pod.deaths:
            problems.append(f"the daemon ended by itself with {pod.deaths}")
        odd = {
            name: logged[name] for name in ("event_failed", "event_set_aside", "http_request_failed") if logged[name]
        }
        if odd:
            problems.append(f"the daemon's log says {odd}")
        if self._harness.asked < self._options.requests:
            problems.append(f"only {self._harness.asked} of {self._options.requests} requests could be asked in time")
        kind = "encrypted rooms" if self._options.encrypted else "rooms"
        figures = {
            "seed": self._options.seed,
            "homeserver": "fake" if self._options.fake else "Synapse",
            "requests": f"{self._harness.asked} in {self._options.rooms} {kind}",
            "seconds": f"{time.monotonic() - self._began:.0f}, of them stormy {self._stormed_s:.0f}",
            "daemon killed": f"{pod.kills} (ready again {logged['ready']} times)",
            "homeserver gone": self._falls,
            "calls through the proxy": weather.passed,
            "faults": faults,
            **({"  of calls about keys": weather.hit["keys"]} if self._options.encrypted else {}),
            **{f"  {fault.value}": count for fault, count in sorted(weather.made.items())},
            "said by people": sum(self._people.said.values()),
            **{f"  {form}": count for form, count in sorted(self._people.said.items())},
            "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        }
        extra = "".join(f"problem: {problem}\n" for problem in problems)
        return Result(figures, extra + checked.strip(), kept=checked_well and not problems)

    async def _play(self, request: plan.Request) -> None:
        await asyncio.sleep(max(0.0, self._storm_began + request.at_s - time.monotonic()))
        await self._harness.play(request, until=self._storm_ends)

    async def _kill(self) -> None:
        """Kill it a few seconds after it was ready, and one time in three however far it has come."""
        while True:
            if self._random.random() < 0.67:  # noqa: PLR2004 - two of three
                with contextlib.suppress(TimeoutError):
                    await self._pod.ready()
            await asyncio.sleep(self._random.uniform(0.2, 6))
            await self._pod.kill()
            await asyncio.sleep(self._random.choice((0, 0, 0, self._random.uniform(0, 3))))
            self._pod.start()

    async def _fall(self) -> None:
        for share in (0.3, 0.65):
            at_s = self._options.asking_s * share
            await asyncio.sleep(max(0.0, self._storm_began + at_s - time.monotonic()))
            self._say("the homeserver is gone")
            await self._town.fall(self._weather)
            self._falls += 1
            self._say("the homeserver is back")

    def _person(self, citizen: Citizen) -> Person:
        if not self._options.encrypted:
            return Person(self._town.url, citizen.user_id, citizen.token)
        login = Login(citizen.user_id, citizen.device_id, citizen.token)
        return E2EPerson(self._town.url, login, self._folder / citizen.device_id)

    def _approvers(self, room: int) -> list[str]:
        return [self._citizens[name].user_id for name in plan.approvers_of(room)]

    def _unsaid(self) -> int:
        """How many effects the store still means to send."""
        store = sqlite3.connect(f"file:{self._pod.store}?mode=ro", uri=True)
        try:
            (count,) = store.execute("SELECT count(*) FROM outbox WHERE state = 'unsent'").fetchone()
        finally:
            store.close()
        return int(count)

    def _so_far(self) -> str:
        return (
            f"{self._harness.asked} asked, {self._harness.ended} ended, {self._pod.kills} kills, "
            f"{sum(self._weather.made.values())} faults in {self._weather.passed} calls"
        )


class Teller:
    """Says on standard error what goes on, and when."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say it."""
        self._told = time.monotonic()
        print(f"{self._told - self._began:4.0f} s  {text}", file=sys.stderr, flush=True)

    def sometimes(self, text: str) -> None:
        """Say it unless something was said just now."""
        if time.monotonic() - self._told > TELL_EVERY_S:
            self(text)


def _private(path: Path, content: Any) -> Path:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1))
    return path


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())
