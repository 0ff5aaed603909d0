"""A question as a room may see it: without secrets, and with what has to be said about its texts.

Ids stay as they are, for programs compare them. What goes back to a harness, into the
digest or into the store never passes here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.lookalikes import warnings
from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.core.secrets import mask

if TYPE_CHECKING:
    from agentpod_bot.core.lookalikes import LookAlike
    from agentpod_bot.core.model import NewQuestion, Offered, Preview, Question
    from agentpod_bot.core.secrets import Hidden


@dataclass(frozen=True, slots=True)
class Presented:
    """What a room may see of a question."""

    asked: NewQuestion
    """The question with masks in its texts; ids and times are the true ones."""
    hidden: tuple[Hidden, ...]
    look_alikes: tuple[LookAlike, ...]


class _Texts:
    """Texts with their secrets masked, and what that hid."""

    def __init__(self, *, masking: bool) -> None:
        self._masking = masking
        self.hidden: list[Hidden] = []

    def of(self, text: str) -> str:
        if not self._masking:
            return text
        masked = mask(text)
        self.hidden += masked.hidden
        return masked.text

    def part(self, part: Preview) -> Preview:
        match part:
            case FieldPreview(label=label, value=value):
                return FieldPreview(*self._labelled(label, value))
            case TextPreview(label=label, text=text):
                return TextPreview(*self._labelled(label, text))
            case _:
                assert_never(part)

    def _labelled(self, label: str, text: str) -> tuple[str, str]:
        """Mask a text below its label, which may be what says that it is a secret."""
        if not self._masking:
            return label, text
        masked_label = mask(label)
        head = f"{label}: "
        whole = mask(head + text)
        if masked_label.text == label and whole.text.startswith(head):
            self.hidden += whole.hidden
            return label, whole.text.removeprefix(head)
        self.hidden += masked_label.hidden
        return masked_label.text, self.of(text)


def present(asked: NewQuestion) -> Presented:
    """Return what a room may see of `asked`. `offered` is taken over as it is."""
    texts = _Texts(masking=asked.masked)
    shown = replace(
        asked,
        title=texts.of(asked.title),
        tool_kind=None if asked.tool_kind is None else texts.of(asked.tool_kind),
        agent=None if asked.agent is None else texts.of(asked.agent),
        options=tuple(replace(option, label=texts.of(option.label)) for option in asked.options),
        preview=tuple(map(texts.part, asked.preview)),
    )
    texts.of(session_claim(asked))  # shown as a claim; as an id it stays
    return Presented(shown, tuple(texts.hidden), _look_alikes(shown))


def offered_in(asked: NewQuestion, shown: Presented, *, withhold: Withhold) -> tuple[Offered, ...]:
    """Return what is offered of `asked`: called and matched as it is shown, with the options as they were asked.

    A label with a secret in it selects nothing; the printed one, with its mask, and the
    number do. Raises what `offer` raises.
    """
    as_asked = {option.option_id: option for option in asked.options}
    return tuple(
        replace(each, option=as_asked.get(each.option.option_id, each.option))
        for each in offer(shown.asked.options, withhold=withhold)
    )


def present_closed(question: Question) -> tuple[Question, Presented]:
    """Return the question as a room may see it, a person's reason and the harness's reports masked too."""
    texts = _Texts(masking=question.asked.masked)
    shown = present(question.asked)
    closing, progress = question.closing, question.progress
    if closing is not None and closing.comment is not None:
        closing = replace(closing, comment=texts.of(closing.comment))
    if progress is not None:
        progress = replace(
            progress,
            failure_reason=None if progress.failure_reason is None else texts.of(progress.failure_reason),
            status=None if progress.status is None else texts.of(progress.status),
        )
    return replace(question, asked=shown.asked, closing=closing, progress=progress), shown


def present_title(question: Question) -> NewQuestion:
    """Return the question with its title as a room may see it, which is all of it that notices show."""
    asked = question.asked
    return replace(asked, title=_Texts(masking=asked.masked).of(asked.title))


def session_claim(asked: NewQuestion) -> str:
    """Return the session's id as something that the harness says of itself."""
    return mask(asked.session_id).text if asked.masked else asked.session_id


def _look_alikes(shown: NewQuestion) -> tuple[LookAlike, ...]:
    texts = [shown.title]
    for part in shown.preview:
        texts += (part.label, part.value if isinstance(part, FieldPreview) else part.text)
    return warnings("\n".join(texts))
