"""A question as a room may see it: without secrets, and with what has to be said about its texts.

Ids stay as they are, for programs compare them. What goes back to a harness, into the
digest or into the store never passes here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.diff import WORK, Sign, unified
from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.lookalikes import warnings
from agentpod_bot.core.model import DiffPreview, FieldPreview, TextPreview
from agentpod_bot.core.secrets import by_line, hide, mask
from agentpod_bot.render import sentences

if TYPE_CHECKING:
    from agentpod_bot.core.diff import Run
    from agentpod_bot.core.lookalikes import LookAlike
    from agentpod_bot.core.model import NewQuestion, Offered, Preview, Question, Readable
    from agentpod_bot.core.secrets import Hidden


@dataclass(frozen=True, slots=True)
class Presented:
    """What a room may see of a question."""

    asked: NewQuestion
    """The question with masks in its texts; ids and times are the true ones."""
    preview: tuple[Readable, ...]
    """Its preview, with diffs as texts."""
    hidden: tuple[Hidden, ...]
    look_alikes: tuple[LookAlike, ...]


class _Texts:
    """Texts with their secrets masked, and what that hid."""

    def __init__(self, *, masking: bool) -> None:
        self._masking = masking
        self.hidden: list[Hidden] = []
        self.read: list[str] = []
        """The texts of all parts, without the signs of diffs."""

    def of(self, text: str) -> str:
        if not self._masking:
            return text
        masked = mask(text)
        self.hidden += masked.hidden
        return masked.text

    def part(self, part: Preview, *, work: int) -> Readable:
        """Return a part as it may be seen; `work` is what finding a diff may take."""
        match part:
            case FieldPreview(label=label, value=value):
                label, value = self._labelled(label, value)
                self.read += (label, value)
                return FieldPreview(label, value)
            case TextPreview(label=label, text=text, language=language):
                label, text = self._labelled(label, text)
                self.read += (label, text)
                return TextPreview(label, text, language)
            case DiffPreview():
                return self._diff(part, work)
            case _:
                assert_never(part)

    def _diff(self, part: DiffPreview, work: int) -> TextPreview:
        """Return a diff of what is there, with its lines masked after it was found.

        Masked before, a changed secret would be no change. What a kept line may hide is what
        the new text says, for that is what would run.
        """
        path = self.of(part.path)
        self.read.append(path)
        olds = by_line(part.old) if self._masking and part.old else {}
        news = by_line(part.new) if self._masking and part.new else {}

        def show(run: Run) -> str:
            text = run.text
            if self._masking:
                secrets = olds if run.sign is Sign.REMOVED else news
                numbers = range(run.start, run.start + run.count)
                has_any = bool(secrets) and any(number in secrets for number in numbers)
                lines = zip(numbers, text.split("\n"), strict=True) if has_any else [(-1, text)]
                masked = [hide(line, secrets.get(number, ())) for number, line in lines]
                self.hidden += [hidden for each in masked for hidden in each.hidden]
                text = "\n".join(each.text for each in masked)
            self.read.append(text)
            return text

        diff = unified(part.old, part.new, work=work)
        return TextPreview(path, f"{sentences.diff_summary(diff)}\n{diff.text(path, show=show)}", "diff")

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
    work = WORK // max(1, sum(isinstance(part, DiffPreview) for part in asked.preview))
    masked = replace(
        asked,
        title=texts.of(asked.title),
        tool_kind=None if asked.tool_kind is None else texts.of(asked.tool_kind),
        agent=None if asked.agent is None else texts.of(asked.agent),
        options=tuple(replace(option, label=texts.of(option.label)) for option in asked.options),
    )
    preview = tuple(texts.part(part, work=work) for part in asked.preview)
    texts.of(session_claim(asked))  # shown as a claim; as an id it stays
    found = warnings("\n".join([masked.title, *texts.read]))
    return Presented(replace(masked, preview=preview), preview, tuple(texts.hidden), found)


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
