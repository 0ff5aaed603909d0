"""What the tools of `agentpod-bot mcp` do: they put their calls to the daemon, and say what a person decided."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Annotated

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentpod_bot.cli.asking import Asked, Choice, bound, choices, exit_code
from agentpod_bot.cli.following import closed, post
from agentpod_bot.cli.waiting import end_of
from agentpod_bot.core.ids import OptionId, RequestId
from agentpod_bot.proxy.client import Unreached
from agentpod_bot.proxy.mcp_approve import approve, request_id_of
from agentpod_bot.proxy.mcp_server import MOST_CHOICES, Told
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.cli.asking import View
    from agentpod_bot.cli.following import Timer
    from agentpod_bot.harness.adapter import Json
    from agentpod_bot.proxy.client import Daemon

WITHDRAW_S = 5.0
AGENT = "mcp"
WORDS: Mapping[str, str] = {"approve": "Approved", "reject": "Rejected", "choose": "Chosen"}


class AskArguments(BaseModel):
    """The arguments of `ask`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    title: Annotated[str, Field(min_length=1)]
    details: str | None = None
    options: Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)] | None = None


class DaemonDoors:
    """Fits `mcp_server.Doors`, through a running daemon."""

    def __init__(
        self,
        daemon: Daemon,
        timer: Timer,
        *,
        route: str | None,
        timeout_s: int | None,
        note: Callable[[str], None],
    ) -> None:
        self._daemon = daemon
        self._timer = timer
        self._route = route
        self._timeout_s = timeout_s
        self._note = note
        self._session_id = f"mcp_{secrets.token_hex(4)}"

    async def approve(self, arguments: Json) -> Json:
        """Fits `Doors`."""
        query = {} if self._route is None else {"route": self._route}
        query |= {} if self._timeout_s is None else {"timeout": str(self._timeout_s)}
        try:
            return await approve(self._daemon, arguments, query, self._timer)
        except anyio.get_cancelled_exc_class():
            # Where the call has no name of its own, the daemon sees the connection go, and cancels by itself.
            if (request_id := request_id_of(arguments)) is not None:
                await self._withdraw(request_id)
            raise

    async def ask(self, arguments: Json) -> Told:
        """Fits `Doors`."""
        try:
            read = AskArguments.model_validate(arguments)
        except ValidationError as fault:
            found = fault.errors(include_url=False, include_context=False, include_input=False)
            faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
            return Told(f"Nobody was asked: {faults}.")
        asked = self._asked(read)
        try:
            posted = await post(self._daemon, asked, self._timer)
            if not bound(asked, posted):
                await self._withdraw(asked.request_id)
                return Told("Nobody's answer counts: the daemon took this for another question.")
            ended = await closed(self._daemon, asked, posted, self._timer, self._note)
        except Stopped as fault:
            return Told(f"Nobody decided: {fault}.")
        except anyio.get_cancelled_exc_class():
            await self._withdraw(asked.request_id)
            raise
        return told(asked, posted, ended)

    def _asked(self, read: AskArguments) -> Asked:
        request_id = RequestId(f"{self._session_id}:{secrets.token_hex(8)}")
        offered = choices(()) if read.options is None else chosen_from(read.options)
        body: Json = {
            "session_id": self._session_id,
            "request_id": request_id,
            "title": read.title,
            "agent": AGENT,
            "options": [each.as_json() for each in offered],
            "preview": [{"type": "text", "label": "Details", "text": read.details}] if read.details else [],
        }
        body |= {} if self._route is None else {"route": self._route}
        body |= {} if self._timeout_s is None else {"ttl_s": self._timeout_s}
        return Asked(request_id, body, offered)

    async def _withdraw(self, request_id: RequestId) -> None:
        """Cancel a question that nobody waits for any more, even while this call itself is being cancelled."""
        with anyio.move_on_after(WITHDRAW_S, shield=True):
            try:
                await self._daemon.cancel(request_id)
            except Unreached as fault:
                self._note(f"A question could not be cancelled ({fault}); it stays open until it expires.")


def chosen_from(labels: list[str]) -> tuple[Choice, ...]:
    """A choice for each label, and one that rejects them all."""
    offered = (Choice(OptionId(f"option:{number}"), "choose", label) for number, label in enumerate(labels, 1))
    return (*offered, Choice(OptionId("reject_once"), "reject_once", None))


def told(asked: Asked, posted: View, ended: View) -> Told:
    """What an end is in plain words; a decision only where a person selected one of the options of this call."""
    result = exit_code(asked, posted, ended)
    _, sentence = end_of(ended, result)
    match ended.get("decision"):
        case {"meaning": str(meaning), **decision} if result in {ExitCode.OK, ExitCode.NO} and meaning in WORDS:
            kept = {name: decision.get(name) for name in ("option_id", "label", "answered_by", "comment")}
            return Told(f"{WORDS[meaning]}: {sentence}", {"meaning": meaning, **kept})
        case _:
            return Told(f"Nobody decided: {sentence}")
