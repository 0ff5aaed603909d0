"""What Codex's model asks its user: `item/tool/requestUserInput`.

One question with choices can be asked in a room. Several questions, free text and secrets
cannot: they get no answer, and nothing of them is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.harness import naming
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.codex_choices import Choice, chosen, kept, one_of, options_of, spelled_out
from agentpod_bot.harness.codex_items import ItemParams, request_id
from agentpod_bot.harness.codex_message import Shape, Text, ask, framed, read_params
from agentpod_bot.harness.codex_shown import members, unknown

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Ask, End, Json
    from agentpod_bot.harness.codex_message import Message

SUFFIX = "tool/requestUserInput"
"""How the method ends: Codex's own documents write it with and without `item/` before it."""

_KNOWN = frozenset(
    {"threadId", "turnId", "itemId", "approvalId", "questions", "isBlocking", "autoResolutionMs", "startedAtMs"}
)


class _Choice(Shape):
    label: str
    description: str = ""


class _Question(Shape):
    id: Text
    header: str = ""
    question: str
    is_secret: Any = False
    options: list[_Choice] | None = None


class _Params(ItemParams):
    questions: list[_Question]


def question(message: Message) -> Ask | Settled:
    """Return the question of a message, or the empty answer where it cannot be asked; raises `Invalid`."""
    params = message.params
    asked = read_params(_Params, params)
    only = _askable(asked)
    if only is None:
        return Settled(framed(message, no()), "it is not one open question with choices")
    choices = _choices(only)
    shown = kept(choices)
    described = {f"Choice {n} means": each.description for n, each in enumerate(only.options or (), 1)}
    return ask(
        message,
        session_id=naming.session_id(asked.thread_id),
        request_id=request_id(message),
        title=naming.title_of(naming.text_of(only.header, "Question"), only.question),
        tool_kind=None,
        options=options_of(shown),
        preview=(
            *members({"Question": only.question}),
            *spelled_out(shown, left_out=len(choices) - len(shown)),
            *members({name: text for name, text in described.items() if text}),
            *unknown(params, _KNOWN),
        ),
    )


def result(message: Message, end: End) -> Json:
    """Return the answer to a message of which a question was made."""
    only = _askable(read_params(_Params, message.params))
    choice = None if only is None else chosen(_choices(only), end)
    return no() if choice is None else dict(choice.says)


def no() -> Json:
    """Return the answer that answers nothing."""
    return {"answers": {}}


def _askable(params: _Params) -> _Question | None:
    # Anything but a plain false may be a secret, and nobody types one into a room that others read.
    match params.questions:
        case [only] if only.options and (only.is_secret is False or only.is_secret is None):
            return only
        case _:
            return None


def _choices(only: _Question) -> list[Choice]:
    return [
        one_of(position, each.label, {"answers": {only.id: {"answers": [each.label]}}})
        for position, each in enumerate(only.options or ())
    ]
