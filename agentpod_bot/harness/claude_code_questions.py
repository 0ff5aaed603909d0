"""Two tools of Claude Code that are questions themselves: AskUserQuestion and ExitPlanMode.

Claude Code takes an allow for one of them only together with an input to go on with. For
AskUserQuestion that input carries the answer, so what is offered are the tool's own choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS
from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.core.text import folded
from agentpod_bot.harness import naming, options, tool_input

if TYPE_CHECKING:
    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.adapter import Json

ASK = "AskUserQuestion"
LEAVE_PLAN = "ExitPlanMode"
CHOICE = "choice"
ONE_AT_A_TIME = (
    "Only one question with one answer can be answered here. Answer it where the agent runs, or reject it: "
    "a reason given with a rejection reaches the agent."
)

_QUESTION_MEMBERS = frozenset({"question", "header", "options", "multiSelect"})
_OPTION_MEMBERS = frozenset({"label", "description"})


@dataclass(frozen=True, slots=True)
class Presented:
    """How the call of such a tool is asked."""

    options: tuple[Option, ...]
    headline: str
    shown: tuple[Preview, ...]
    notes: tuple[Preview, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class _Choices:
    """One question of which one answer is wanted."""

    question: str
    labels: tuple[str, ...]
    shown: tuple[Preview, ...]


def presented(tool: str, asked: Json) -> Presented | None:
    """How a call of `tool` with the input `asked` is put to people; None for any other tool."""
    match tool:
        case "ExitPlanMode":
            plan = naming.text_of(asked.get("plan"))
            shown = tool_input.preview_of(asked)
            return Presented((options.allow_once(), options.reject_once()), plan, shown, complete=bool(plan))
        case "AskUserQuestion":
            choices = _choices(asked)
            if choices is None:
                note = FieldPreview("How to answer", ONE_AT_A_TIME)
                return Presented((options.reject_once(),), _first(asked), tool_input.preview_of(asked), (note,))
            offered = [
                options.choose(naming.label_of(label), option_id=OptionId(f"{CHOICE}:{position}"))
                for position, label in enumerate(choices.labels)
            ]
            whole = tuple(
                FieldPreview(f"Option {number} in full", label)
                for number, (label, option) in enumerate(zip(choices.labels, offered, strict=True), 1)
                if option.label != label
            )
            return Presented((*offered, options.reject_once()), choices.question, choices.shown, whole)
        case _:
            return None


def answered(tool: str, asked: Json, option: Option) -> Json | None:
    """The input with which such a tool goes on after `option`, which was presented and is no rejection.

    None for any other tool.
    """
    if tool != ASK:
        return asked if tool == LEAVE_PLAN else None
    choices = _choices(asked)
    if choices is None:  # then nothing was presented that goes on
        return asked
    label = choices.labels[int(option.option_id.removeprefix(f"{CHOICE}:"))]
    return {**asked, "answers": {choices.question: label}}


def without_answers(tool: str, asked: Any) -> Any:
    """The input by which a call is known again after it ran: the answers came in between."""
    if tool == ASK and isinstance(asked, dict):
        return {"questions": asked.get("questions")}
    return asked


def _choices(asked: Json) -> _Choices | None:
    """The one question of an input, where it has one and one of its labels answers it."""
    match asked.get("questions"):
        case [{"question": str(question), "options": [*offered]}] if question.strip():
            only: Json = asked["questions"][0]
            labels = _labels(offered)
            if only.get("multiSelect", False) is not False or not labels:
                return None
            return _Choices(question, labels, _shown(asked, only))
        case _:
            return None


def _labels(offered: list[Any]) -> tuple[str, ...]:
    """The labels of the choices; none unless each can be seen, is no other's, and a rejection fits beside them."""
    labels = [each.get("label") for each in offered if isinstance(each, dict)]
    seen = tuple(label for label in labels if isinstance(label, str) and folded(label))
    is_usable = 0 < len(seen) == len(offered) < MAX_OPTIONS and len(set(seen)) == len(seen)
    return seen if is_usable else ()


def _shown(asked: Json, only: Json) -> tuple[Preview, ...]:
    """The question and its choices in words, and all of the input besides where there is more to it."""
    offered: list[Json] = only["options"]
    parts: list[Preview] = [TextPreview("Question", only["question"])]
    if header := naming.text_of(only.get("header")):
        parts.append(FieldPreview("Header", header))
    parts.extend(
        FieldPreview("Choice", f"{each['label']}: {description}")
        for each in offered
        if (description := naming.text_of(each.get("description")))
    )
    texts = (only.get("header"), *(each.get("description") for each in offered))
    is_all = (
        asked.keys() <= {"questions"}
        and only.keys() <= _QUESTION_MEMBERS
        and all(each.keys() <= _OPTION_MEMBERS for each in offered)
        and all(text is None or isinstance(text, str) for text in texts)
    )
    return tuple(parts) if is_all else (*parts, *tool_input.preview_of(asked))


def _first(asked: Json) -> str:
    match asked.get("questions"):
        case [{"question": str(question)}, *_]:
            return question
        case _:
            return ""
