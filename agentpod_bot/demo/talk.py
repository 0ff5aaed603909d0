"""`agentpod-bot demo`: a question goes the whole way, from a harness to a person and back.

A private homeserver, the real daemon as a process of its own, a harness that asks over
HTTP, and a person who answers in the room. Nothing of it outlives the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentpod_bot.demo.daemon import Daemon
from agentpod_bot.demo.harness import QUESTIONS, Asked, Harness, View
from agentpod_bot.demo.homeserver import Account, PrivateSynapse
from agentpod_bot.demo.keyboard import UNANSWERED, Keyboard, answers_of
from agentpod_bot.demo.screen import Screen
from agentpod_bot.demo.sealed import SealedPerson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from agentpod_bot.demo.person import Event, Person

ROOM_NAME = "Agents"
ALIAS = "agents"
QUESTION_TYPE = "dev.agentpod.permission.v2"
EXPIRING = 3
"""The question, counted from 1, that a person at the keyboard is asked to leave alone."""

TTL_S = 900
TTL_UNATTENDED_S = 15
TTL_EXPIRING_S = 15
TTL_UNANSWERED_S = 5
JOIN_S = 30.0
SHOWN_S = 10.0
"""How long the question, and later its outcome, may take to be seen in the room."""
HINT_S = 1.5
"""How long after a line was sent the room is shown again, where no answer came of it."""

OK, FAILED, USAGE = 0, 1, 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo is run.

    `answers` (comma-separated) or `script` (a file with one answer a line, `#` comments)
    answers without a keyboard: as many questions are asked as there are answers, at most
    three, and the answer `-` leaves its question to expire. `keep` keeps the folder with
    the homeserver, the daemon's configuration, its store and its log. `encrypted` has the
    room encrypted.
    """

    answers: str | None = None
    script: Path | None = None
    keep: bool = False
    encrypted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that is running while questions are asked."""

    screen: Screen
    you: Person
    pod: Account
    room_id: str
    harness: Harness


async def run_demo(options: DemoOptions, screen: Screen | None = None) -> int:
    """Play the demo; return its exit code.

    0: every answer came back as it was given · 1: one did not, or the input ended before
    it was given · 2: answers that cannot be used · 128 + n: ended by signal n. Raises
    `HomeserverUnreachable` where no homeserver can be started and `CannotStart` where the
    daemon does not run. Whatever happens, nothing keeps running.
    """
    screen = screen or Screen()
    answers = None
    try:
        answers = answers_of(options.answers, options.script)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        screen.say(f"The script {options.script} cannot be read: {reason}", style="red")
        return USAGE
    if fault := unusable(options, answers):
        screen.say(fault, style="red")
        return USAGE
    with ended_by_signals() as ended:
        try:
            return await _play(screen, answers, options)
        except asyncio.CancelledError:
            if not ended:
                raise
            screen.say("\nStopped; nothing is left running.")
            return 128 + ended[0]


def unusable(options: DemoOptions, answers: tuple[str, ...] | None) -> str | None:
    """Why these answers cannot be played, as a sentence; None where they can."""
    if options.answers is not None and options.script is not None:
        return "Give --answers or --script, not both."
    if answers is not None and not 1 <= len(answers) <= len(QUESTIONS):
        return f"There are {len(QUESTIONS)} questions, and {len(answers)} answers were given."
    return None


@contextlib.contextmanager
def ended_by_signals() -> Iterator[list[int]]:
    """Cancel the current task at the first signal to end, and tell which one that was.

    Later ones are ignored: the clean-up has deadlines of its own.
    """
    loop, task, ended = asyncio.get_running_loop(), asyncio.current_task(), list[int]()

    def end(number: int) -> None:
        if not ended and task is not None:
            ended.append(number)
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield ended
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        if ended and task is not None:
            task.uncancel()


async def _play(screen: Screen, answers: tuple[str, ...] | None, options: DemoOptions) -> int:
    async with _scene(screen, options) as scene:
        if answers is not None:
            return await _unattended(scene, answers)
        return await _attended(scene, Keyboard(sys.stdin.fileno()))


@contextlib.asynccontextmanager
async def _scene(screen: Screen, options: DemoOptions) -> AsyncIterator[Scene]:
    """Start everything, in order; on leaving end it in the opposite order."""
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(_folder(screen, keep=options.keep))
        with screen.steps() as steps:
            with steps.step("Starting a private homeserver (Synapse)"):
                home = folder / "homeserver"
                home.mkdir()
                synapse = await stack.enter_async_context(PrivateSynapse(folder=home))
            with steps.step("Registering the bot (pod) and you"):
                pod, owner = await synapse.register("pod"), await synapse.register("you")
                if options.encrypted:
                    you: Person = SealedPerson(synapse.url, owner, folder / "your_keys")
                else:
                    you = synapse.person(owner)
                await stack.enter_async_context(you)
            kind = "an encrypted room" if options.encrypted else "the room"
            with steps.step(f"Making {kind} and inviting the bot"):
                room_id = await you.create_room(ROOM_NAME, invite=[pod.user_id], alias=ALIAS)
            with steps.step("Starting the daemon"):
                daemon = Daemon(folder, homeserver=synapse.url, bot=pod, approver=owner, room_id=room_id)
                if options.encrypted:
                    await daemon.make_keys()
                await stack.enter_async_context(daemon.running())
            with steps.step("Waiting for the bot to join"):
                await you.until(room_id, lambda event: joins(event, pod.user_id), within_s=JOIN_S)
        screen.facts(
            "Meanwhile, log in with any Matrix client on this machine",
            {
                "Homeserver": synapse.url,
                "User": f"you  ({owner.user_id})",
                "Password": owner.password,
                "Room": f"{ROOM_NAME}  (#{ALIAS}:localhost)",
                "HTTP endpoint": daemon.url,
                "Daemon's files": str(folder),
            },
        )
        harness = await stack.enter_async_context(Harness(daemon.url, daemon.token))
        yield Scene(screen=screen, you=you, pod=pod, room_id=room_id, harness=harness)


@contextlib.contextmanager
def _folder(screen: Screen, *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="agentpod-demo-"))
    try:
        yield folder
    finally:
        if keep:
            screen.say(f"Kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _unattended(scene: Scene, answers: tuple[str, ...]) -> int:
    """Ask as many questions as there are answers, and give each its answer."""
    code = OK
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=False), start=1):
        scene.screen.chapter(number, len(answers), question.about)
        ttl_s = TTL_UNANSWERED_S if answer == UNANSWERED else TTL_UNATTENDED_S
        async with _asked(scene, question, number, ttl_s) as (call, event_id):
            if answer == UNANSWERED:
                scene.screen.say("(left unanswered)")
            else:
                scene.screen.say(f"you> {answer}", style="bold green")
                await scene.you.reply(scene.room_id, event_id, answer)
            view = await call
        await _closed(scene, view, event_id)
        if not came_back(answer, question, view, scene.you.user_id):
            scene.screen.say(f"The answer {answer!r} did not come back as it was given.", style="red")
            code = FAILED
    return code


async def _attended(scene: Scene, keyboard: Keyboard) -> int:
    """Ask every question, and let a person type what is sent to the room."""
    for number, question in enumerate(QUESTIONS, start=1):
        scene.screen.chapter(number, len(QUESTIONS), question.about)
        leave = number == EXPIRING
        async with _asked(scene, question, number, TTL_EXPIRING_S if leave else TTL_S) as (call, event_id):
            if leave:
                scene.screen.say(f"Do not answer this one: it expires in {TTL_EXPIRING_S} seconds.")
            else:
                scene.screen.say("Type your answer; it is sent to the room as your reply to the question.")
            if not await _typed(scene, keyboard, call, event_id):
                scene.screen.say("\nThe input ended before the answer; the question was left open.", style="red")
                return FAILED
            view = await call
        await _closed(scene, view, event_id)
    scene.screen.prompt("\nThat was all. Press Enter to end; the room stays open until then. ")
    await keyboard.line()
    return OK


async def _typed(scene: Scene, keyboard: Keyboard, call: asyncio.Task[View], event_id: str) -> bool:
    """Send what is typed, line by line, until the harness has its answer; False where the input ends first.

    The answer may as well come from another client that is logged in.
    """
    while not call.done():
        scene.screen.prompt("you> ")
        typing = asyncio.create_task(keyboard.line())
        try:
            await asyncio.wait({typing, call}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not typing.done():
                typing.cancel()
        if call.done():
            scene.screen.say("")
            return True
        line = typing.result()
        if line is None:
            return False
        if line.strip():
            await scene.you.reply(scene.room_id, event_id, line.strip())
            await asyncio.wait({call}, timeout=HINT_S)
            if not call.done():
                scene.screen.room(ROOM_NAME, await scene.you.read(scene.room_id), event_id)
    return True


@contextlib.asynccontextmanager
async def _asked(
    scene: Scene, question: Asked, number: int, ttl_s: int
) -> AsyncIterator[tuple[asyncio.Task[View], str]]:
    """The harness's waiting call, and the question's event once the room shows it."""
    request_id = f"demo:{number}"
    async with contextlib.AsyncExitStack() as stack:
        call = asyncio.create_task(scene.harness.ask(question, session_id="demo", request_id=request_id, ttl_s=ttl_s))
        stack.push_async_callback(_ended, call)
        seen = asyncio.create_task(
            scene.you.until(scene.room_id, lambda event: asks(event, request_id), within_s=SHOWN_S)
        )
        stack.push_async_callback(_ended, seen)
        await asyncio.wait({call, seen}, return_when=asyncio.FIRST_COMPLETED)
        if call.done() and not seen.done():
            call.result()  # says why, where the endpoint refused
        event_id = (await seen)["event_id"]
        scene.screen.room(ROOM_NAME, await scene.you.read(scene.room_id), event_id)
        yield call, event_id


async def _ended(task: asyncio.Task[View] | asyncio.Task[Event]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _closed(scene: Scene, view: View, event_id: str) -> None:
    """Show the room with the question's outcome, and what the harness was told."""
    with contextlib.suppress(TimeoutError):  # the room is shown as it is, then
        await scene.you.until(scene.room_id, lambda event: edits(event, event_id, scene.pod.user_id), within_s=SHOWN_S)
    scene.screen.room(ROOM_NAME, await scene.you.read(scene.room_id), event_id)
    scene.screen.answer(view)
    scene.screen.say(told(view), style="bold")


def joins(event: Event, user_id: str) -> bool:
    """Whether this is that account's joining."""
    kind = (event["type"], event.get("state_key"), event["content"].get("membership"))
    return kind == ("m.room.member", user_id, "join")


def asks(event: Event, request_id: str) -> bool:
    """Whether this is the question of that request (and no edit of it)."""
    content = event["content"]
    kind = (content.get("suite_event_type"), content.get("request_id"))
    return kind == (QUESTION_TYPE, request_id) and content.get("m.relates_to", {}).get("rel_type") != "m.replace"


def edits(event: Event, event_id: str, sender: str) -> bool:
    """Whether this is that account's edit of that event."""
    relation = event["content"].get("m.relates_to", {})
    kind = (event["sender"], relation.get("rel_type"), relation.get("event_id"))
    return kind == (sender, "m.replace", event_id)


def told(view: View) -> str:
    """The end of a question in one sentence."""
    decision = view["decision"] or {}
    if view["status"] != "decided":
        return f"Not decided: {view['status']}. Nothing was allowed."
    return (
        f"Decided: {decision['label']} ({decision['option_id']}), by {decision['answered_by']}, via {decision['via']}."
    )


def came_back(answer: str, question: Asked, view: View, user_id: str) -> bool:
    """Whether the harness was told what the person answered, and nothing else.

    Which option an answer means is worked out here without the daemon's own matcher: a
    position, a label or an id, before a colon. Any other answer is right if it was taken.
    """
    if answer == UNANSWERED:
        return bool(view["status"] == "expired")
    decision = view["decision"]
    if view["status"] != "decided" or decision["answered_by"] != user_id:
        return False
    named = answer.partition(":")[0].strip()
    options = question.options()
    if named.isdecimal():
        return 1 <= int(named) <= len(options) and bool(decision["option_id"] == options[int(named) - 1][0])
    wanted = {option_id for option_id, label in options if named.casefold() in {label.casefold(), option_id.casefold()}}
    return not wanted or decision["option_id"] in wanted
