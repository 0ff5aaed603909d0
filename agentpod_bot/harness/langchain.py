"""LangChain and LangGraph: the values with which a graph interrupts for a person, and those that it resumes with.

A body is an interrupt's value: a `HITLRequest`, answered with `{"decisions": [...]}`
(https://docs.langchain.com/oss/python/langchain/human-in-the-loop), or the deprecated list of `HumanInterrupt`,
answered with a list. Early names (`arguments`, `allowed_responses`) are read too. Beside a request's own members
a client may say `thread_id`, which becomes the session.

One question is asked for all actions of a request, and each of them gets its own answer, in the same order.
Nobody can edit or write a tool's result from a room. A request that leaves no way to say no is asked only
where the graph itself refuses an answer that it did not offer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import FieldPreview, Hold, PermissionRequest, TextPreview
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import naming, strict_json
from agentpod_bot.harness.adapter import Ask, Settled
from agentpod_bot.harness.options import allow_once, reject_once
from agentpod_bot.harness.tool_input import headline, preview_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.adapter import Answer, Call, End, Json, Manner
    from agentpod_bot.harness.strict_json import Loc

NAME = "langchain"
HOOK = False
PATIENCE_S: int | None = None
"""An interrupted graph waits until it is resumed."""

APPROVE = "approve"
REJECT = "reject"
RESPOND = "respond"
ACCEPT = "accept"
IGNORE = "ignore"
RESPONSE = "response"
FLAGS = {ACCEPT: "allow_accept", "edit": "allow_edit", RESPONSE: "allow_respond", IGNORE: "allow_ignore"}
"""Each answer of the deprecated list, and what says that it may be given."""
Faults = list[tuple["Loc", str]]


@dataclass(frozen=True, slots=True)
class _Action:
    """One thing that waits for an answer, and the answers that it takes."""

    name: str
    args: Any
    description: str
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Interrupt:
    """All actions of one request."""

    actions: tuple[_Action, ...]
    is_list: bool
    """Whether it came as the deprecated list."""
    session: Any = field(default=None)

    @property
    def can_allow(self) -> bool:
        """Whether every action takes a plain yes."""
        yes = ACCEPT if self.is_list else APPROVE
        return all(yes in action.allowed for action in self.actions)

    @property
    def can_reject(self) -> bool:
        """Whether every action takes a plain no."""
        ways = {IGNORE, RESPONSE} if self.is_list else {REJECT}
        return all(not ways.isdisjoint(action.allowed) for action in self.actions)


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one interrupt's value. Raises `MalformedJson`, or `Invalid` with every field at fault."""
    content = strict_json.read_either(body)
    interrupt = _read(content)
    if not interrupt.actions:
        return Settled(_told(interrupt, []), "an interrupt without actions")
    options = _options(interrupt)
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(interrupt.session),
            title=_title(interrupt.actions),
            options=options,
            preview=tuple(_preview(interrupt.actions)),
            hold=Hold(twin=f"{NAME}:{naming.hashed(content)}"),
            raw=body,
        )
    )


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Answer:  # noqa: ARG001 - every adapter takes it
    """Return what the graph is resumed with: a yes to every action where a person chose that, else a no to each."""
    interrupt = _readable(asked)
    if end.approves and interrupt.can_allow:
        yes = {"type": ACCEPT, "args": None} if interrupt.is_list else {"type": APPROVE}
        return _told(interrupt, [yes for _ in interrupt.actions])
    return _refusal(interrupt, end)


def refuse(call: bytes | None, end: End, manner: Manner) -> Answer:  # noqa: ARG001 - every adapter takes it
    """Return a no to each action; to none, which every graph refuses, where the call cannot be read."""
    return _refusal(_Interrupt((), is_list=False) if call is None else _readable(call), end)


def _refusal(interrupt: _Interrupt, end: End) -> Answer:
    said = _ignored if interrupt.is_list else _rejected
    return _told(interrupt, [said(action, end) for action in interrupt.actions])


def _rejected(action: _Action, end: End) -> Json:
    """A rejection, which tells the model why; the text stands for the tool's result only where nothing else may."""
    way = RESPOND if REJECT not in action.allowed and RESPOND in action.allowed else REJECT
    return {"type": way, "message": end.reason}


def _ignored(action: _Action, end: End) -> Json:
    """The no of the deprecated list: as a text where a person gave a reason, or where that is the only way."""
    has_reason = end.rejects and bool(end.comment)
    if RESPONSE in action.allowed and (has_reason or IGNORE not in action.allowed):
        return {"type": RESPONSE, "args": end.reason}
    return {"type": IGNORE, "args": None}


def _told(interrupt: _Interrupt, answers: list[Json]) -> Answer:
    return answers if interrupt.is_list else {"decisions": answers}


def _options(interrupt: _Interrupt) -> tuple[Option, ...]:
    """Offer what every action takes. Raises `Invalid` where that is nothing, or a no could not be said."""
    at: Loc = () if interrupt.is_list else ("review_configs",)
    if interrupt.is_list and not interrupt.can_reject:
        raise Invalid(at, "every action must allow to be ignored or responded to, or nobody could refuse it")
    several = len(interrupt.actions) > 1
    offered: list[Option] = []
    if interrupt.can_allow:
        offered.append(allow_once("Allow all") if several else allow_once())
    if interrupt.can_reject:
        offered.append(reject_once("Reject all") if several else reject_once())
    if not offered:
        raise Invalid(at, "no decision that a person could give here is allowed for every action")
    return tuple(offered)


def _title(actions: Sequence[_Action]) -> str:
    if len(actions) == 1:
        return naming.title_of(actions[0].name, headline(actions[0].args))
    names = Counter(action.name for action in actions)
    each = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in names.items())
    return naming.title_of(f"{len(actions)} actions", each)


def _preview(actions: Sequence[_Action]) -> Iterator[Preview]:
    """Every action with all of its arguments; where there are several, each part says whose it is."""
    for number, action in enumerate(actions, 1):
        of = f"Action {number} " if len(actions) > 1 else ""
        yield FieldPreview(f"Action {number}" if of else "Tool", action.name)
        for part in preview_of(action.args):
            match part:
                case FieldPreview(label=label, value=value):
                    yield FieldPreview(of + label, value)
                case TextPreview(label=label, text=text, language=language):
                    yield TextPreview(of + label, text, language)
                case _:
                    yield part
        if action.description:
            yield TextPreview(f"{of}Description", action.description)
        yield FieldPreview(f"{of}Allowed answers", ", ".join(sorted(action.allowed)) or "none")


def _readable(body: bytes) -> _Interrupt:
    """Return an interrupt, or one without actions where it cannot be read."""
    try:
        return _read(strict_json.read_either(body))
    except (Invalid, MalformedJson):
        return _Interrupt((), is_list=False)


def _read(content: Json | list[Any]) -> _Interrupt:
    faults: Faults = []
    if isinstance(content, list):
        actions = [_of_list(item, (index,), faults) for index, item in enumerate(content)]
    else:
        actions = _of_request(content, faults)
    known = tuple(action for action in actions if action is not None)
    if faults:
        raise strict_json.invalid(faults)
    is_list = isinstance(content, list)
    return _Interrupt(known, is_list, None if isinstance(content, list) else content.get("thread_id"))


def _of_request(content: Json, faults: Faults) -> list[_Action | None]:
    requests, configs = content.get("action_requests"), content.get("review_configs")
    if not isinstance(requests, list):
        faults.append((("action_requests",), "is required, and must be a list"))
        return []
    if not isinstance(configs, list):
        faults.append((("review_configs",), "is required, and must be a list"))
        return []
    allowed = _allowed(configs, faults)
    actions: list[_Action | None] = []
    for index, item in enumerate(requests):
        at: Loc = ("action_requests", index)
        action = _action(item, "name", at, faults)
        if action is not None and action.name not in allowed:
            faults.append(((*at, "name"), "has no review config, so nothing is allowed for it"))
        elif action is not None:
            actions.append(_Action(action.name, action.args, action.description, allowed[action.name]))
    return actions


def _allowed(configs: list[Any], faults: Faults) -> dict[str, frozenset[str]]:
    """Return what each action's config allows; of two for one action, what both allow."""
    allowed: dict[str, frozenset[str]] = {}
    for index, config in enumerate(configs):
        at: Loc = ("review_configs", index)
        name = config.get("action_name") if isinstance(config, dict) else None
        if not isinstance(name, str):
            faults.append(((*at, "action_name"), "is required, and must be a text"))
            continue
        key = "allowed_decisions" if "allowed_decisions" in config else "allowed_responses"
        decisions = config.get(key)
        if not isinstance(decisions, list):
            faults.append(((*at, "allowed_decisions"), "is required, and must be a list"))
            continue
        own = frozenset(each for each in decisions if isinstance(each, str))
        allowed[name] = allowed.get(name, own) & own
    return allowed


def _of_list(item: Any, at: Loc, faults: Faults) -> _Action | None:
    request, config = (item.get("action_request"), item.get("config")) if isinstance(item, dict) else (None, None)
    action = _action(request, "action", (*at, "action_request"), faults)
    if not isinstance(config, dict):
        faults.append(((*at, "config"), "is required, and must be an object"))
        return None
    if action is None:
        return None
    allowed = frozenset(said for said, flag in FLAGS.items() if config.get(flag) is True)
    return _Action(action.name, action.args, naming.text_of(item.get("description")), allowed)


def _action(item: Any, name_key: str, at: Loc, faults: Faults) -> _Action | None:
    if not isinstance(item, dict):
        faults.append((at, "is required, and must be an object"))
        return None
    name = naming.text_of(item.get(name_key))
    args_key = "args" if "args" in item else "arguments"
    if not name:
        faults.append(((*at, name_key), "is required, and must be a text"))
    if args_key not in item:
        faults.append(((*at, "args"), "is required"))
    if not name or args_key not in item:
        return None
    return _Action(name, item[args_key], naming.text_of(item.get("description")), frozenset())
