"""What is asked in a run, when, and what people do about it: all of it follows from the seed.

A plan has no clock and no sockets. It says what everybody means to do; what they come to
do depends on the weather, and the checker does not know the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

CLIENTS = ("laptop", "desktop")
LONG_S = 3_600
"""Time to live of what somebody will answer: longer than any run waits for an end."""
OWNER, SECOND, MALLORY, AGENT = "owner", "second", "mallory", "agent"
"""`owner` approves everywhere, `second` in every other room and is a mere member of the rest."""
KINDS = ("allow_once", "allow_always", "reject_once", "reject_always")
LABELS = ("Allow once", "Always allow", "Reject", "Never allow")
SETS = ((0, 2), (0, 1, 2), (0, 1, 2, 3), (2, 0))
"""Options of a request, as places in `KINDS`."""


class Form(StrEnum):
    """How somebody answers. What stands from `NONSENSE` on is no answer that counts at once."""

    NUMBER = "number"
    NAME = "name"
    REASON = "reason"
    REACTION = "reaction"
    STRUCTURED = "structured"
    CODE_NUMBER = "code_number"
    CODE_NAME = "code_name"
    THREAD = "thread"
    BARE = "bare"
    NONSENSE = "nonsense"
    EDITED = "edited"
    NOTICE = "notice"
    WRONG_DIGEST = "wrong_digest"
    WRONG_KEY = "wrong_key"
    IN_CLEAR = "in_clear"
    """Without encryption: it decides nothing."""
    KEYLESS = "keyless"
    """Encrypted with a key that nobody is ever given."""
    LATE_KEY = "late_key"
    """Encrypted with a key that all are given some seconds later."""


SURE = (
    Form.NUMBER,
    Form.NAME,
    Form.REACTION,
    Form.STRUCTURED,
    Form.CODE_NUMBER,
    Form.CODE_NAME,
    Form.THREAD,
    Form.REASON,
)
WRONG = (Form.NONSENSE, Form.EDITED, Form.NOTICE, Form.WRONG_DIGEST, Form.WRONG_KEY)
SEALED = (Form.IN_CLEAR, Form.KEYLESS, Form.LATE_KEY)
"""What there is in encrypted rooms only."""
STORIES = {
    "plain": 38,
    "contested": 10,
    "wrong": 12,
    "stranger": 10,
    "bare": 8,
    "late": 7,
    "stranger_only": 3,
    "nobody": 3,
    "cancelled": 5,
    "replaced": 4,
}
"""How often each happens, by weight."""
SEALED_STORIES = {"in_clear": 5, "keyless": 6, "late_key": 5}
"""What happens besides in encrypted rooms."""


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that somebody does about a question. `option` is a position of its list, from 1."""

    after_s: float
    """After the question was seen, or after its deadline where `late`."""
    who: str
    form: Form
    option: int
    late: bool = False
    again: Form | None = None
    """How they answer again where they are told that nobody could read it."""
    key_after_s: float = 0.0
    """When a late key comes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a harness, and what becomes of it."""

    at_s: float
    client: str
    request_id: str
    room: int
    ttl_s: int
    body: dict[str, Any] = field(repr=False)
    acts: tuple[Act, ...] = ()
    cancel_after_s: float | None = None
    replace_after_s: float | None = None
    """After so long the harness asks something else under the same id."""
    acts_on_new: tuple[Act, ...] = ()


def made(random: Random, *, requests: int, rooms: int, asking_s: float, encrypted: bool = False) -> tuple[Request, ...]:
    """Plan so many requests, spread evenly over `asking_s`. Both clients use the same request ids."""
    stories = STORIES | (SEALED_STORIES if encrypted else {})
    gap_s = asking_s / requests
    planned = []
    for number in range(requests):
        client = number % len(CLIENTS)
        room = random.randrange(rooms // 2) * 2 + client
        at_s = (number + random.random()) * gap_s
        planned.append(
            _request(random, stories, at_s=at_s, client=CLIENTS[client], number=number // len(CLIENTS), room=room)
        )
    return tuple(planned)


def client_of(room: int) -> str:
    """The client whose room it is."""
    return CLIENTS[room % len(CLIENTS)]


def approvers_of(room: int) -> tuple[str, ...]:
    """Who may answer in a room."""
    return (OWNER, SECOND) if room % 4 < len(CLIENTS) else (OWNER,)


def _request(
    random: Random, stories: Mapping[str, int], *, at_s: float, client: str, number: int, room: int
) -> Request:
    chosen = random.choice(SETS)
    options = [{"id": f"{KINDS[place]}", "kind": KINDS[place], "label": LABELS[place]} for place in chosen]
    body = {
        "session_id": f"{client}-{room}-{number % 3}",
        "request_id": f"r{number:05}",
        "route": f"room{room}",
        "title": f"Run step {number} of the build",
        "tool_kind": "execute",
        "agent": "chaos",
        "options": options,
        "preview": [{"type": "text", "label": "Command", "text": f"make step-{number} ROOM={room}"}],
    }
    plain = Request(at_s, client, f"r{number:05}", room, LONG_S, body)
    rejects = [place >= 2 for place in chosen]  # noqa: PLR2004 - the rejecting kinds
    return _with_story(random, plain, stories, len(chosen), rejects)


def _with_story(random: Random, plain: Request, stories: Mapping[str, int], count: int, rejects: list[bool]) -> Request:
    def option() -> int:
        return random.randint(1, count)

    def soon(low: float = 0.0, high: float = 4.0) -> float:
        return random.uniform(low, high)

    def sure(after_s: float, who: str | None = None) -> Act:
        form, position = random.choice(SURE), option()
        if form is Form.REASON:  # only who refuses says why
            position = random.choice([place for place, refuses in enumerate(rejects, 1) if refuses])
        return Act(after_s, who or random.choice(approvers_of(plain.room)), form, position)

    def stranger(after_s: float, *, late: bool = False) -> Act:
        known = [who for who in (SECOND, MALLORY, AGENT) if who not in approvers_of(plain.room)]
        allowing = next(place for place, refuses in enumerate(rejects, 1) if not refuses)
        return Act(after_s, random.choice(known), random.choice(SURE[:-1]), allowing, late)

    short = random.randint(6, 14)
    match random.choices([*stories], [*stories.values()])[0]:
        case "plain":
            return replace(plain, acts=(sure(soon()),))
        case "contested":
            at_s = soon()
            return replace(plain, acts=(sure(at_s), sure(at_s + soon(0, 0.2)), sure(at_s + soon(0, 1))))
        case "wrong":
            at_s = soon()
            wrong = Act(at_s, random.choice(approvers_of(plain.room)), random.choice(WRONG), option())
            return replace(plain, acts=(wrong, sure(at_s + soon(0.2, 3))))
        case "stranger":
            at_s = soon()
            return replace(plain, acts=(stranger(at_s), sure(at_s + soon(0, 3))))
        case "bare":
            at_s = soon()
            return replace(plain, acts=(Act(at_s, OWNER, Form.BARE, option()), sure(at_s + soon(2, 5), OWNER)))
        case "late":
            acts = (replace(sure(soon(-0.5, 3)), late=True), replace(sure(soon(0, 3)), late=True))
            return replace(plain, ttl_s=short, acts=acts)
        case "stranger_only":
            return replace(plain, ttl_s=short, acts=(stranger(soon()), stranger(soon()), stranger(soon(), late=True)))
        case "nobody":
            return replace(plain, ttl_s=short)
        case "in_clear":
            at_s = soon()
            return replace(plain, acts=(replace(sure(at_s), form=Form.IN_CLEAR), sure(at_s + soon(0.2, 3))))
        case "keyless":
            again = random.choice((Form.NUMBER, Form.REACTION, Form.STRUCTURED))
            return replace(plain, acts=(replace(sure(soon()), form=Form.KEYLESS, again=again),))
        case "late_key":
            return replace(plain, acts=(replace(sure(soon()), form=Form.LATE_KEY, key_after_s=soon(0.2, 8)),))
        case "cancelled":
            at_s = soon(0, 5)
            return replace(plain, acts=(sure(soon(0, 5)),), cancel_after_s=at_s)
        case _:
            at_s = soon(0.5, 3)
            return replace(
                plain, acts=(sure(at_s + soon(0, 4)),), replace_after_s=at_s, acts_on_new=(sure(soon(1, 4)),)
            )


def replaced_body(request: Request) -> dict[str, Any]:
    """What the harness asks instead, under the same id."""
    other = {"title": f"{request.body['title']}, differently", "supersede": True}
    return request.body | other
