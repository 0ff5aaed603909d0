"""The question: one message with prose for people, an envelope and a card for programs.

What must be cut is decided here, and with it what may be offered: where anything is cut,
nothing that approves is, for nobody can approve what nobody saw.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agentpod_bot.core.digest import SUBJECT_SCHEMA
from agentpod_bot.core.envelope import CARD_KEY, CARD_OPTIONS, QUESTION_TYPE, SCHEMA_VERSION, Envelope
from agentpod_bot.core.labels import Withhold, approves, guarded_scope, kind_of
from agentpod_bot.core.model import Attachment, Meaning, Scope
from agentpod_bot.core.text import fits, fold, folded, visible_line
from agentpod_bot.errors import Invalid, TooLarge
from agentpod_bot.render import sentences
from agentpod_bot.render.content import (
    HTML,
    MAX_CARD_BYTES,
    MAX_EVENT_BYTES,
    Prose,
    card_size,
    event_size,
    instant,
    stacked,
)
from agentpod_bot.render.presented import Presented, offered_in, present, session_claim
from agentpod_bot.render.preview import Measured, Shown, envelope_entries, for_body, prose, shown

if TYPE_CHECKING:
    from agentpod_bot.core.ids import Code, RouteName, UserId
    from agentpod_bot.core.model import NewQuestion, Offered, Option

MAX_TOOL_KIND = 100
MAX_RAW_TITLE = 10_000
"""A title is a line; what is longer belongs into the preview. Readers draw 300 characters."""
_CLOSE_ENOUGH = 64
"""Characters of an envelope's preview that are not worth another try."""
_WORD = re.compile(r"\w+")


def compose(
    asked: NewQuestion,
    *,
    mentions: tuple[UserId, ...],
    other_codes: frozenset[Code],
    quorum: int = 1,
    needs_code: bool = False,
    copied_from: RouteName | None = None,
    again: bool = False,
) -> tuple[NewQuestion, dict[str, Any]]:
    """Return the question with what it offers, and the whole content of its `m.room.message`.

    `asked.offered` is not looked at. `mentions` are pinged, and nobody else;
    `other_codes` are those of the room's other open questions; `quorum` people are needed
    for what reaches further than once; `needs_code` says that what approves has to carry
    the question's code; `copied_from` is the route on which it is asked already; `again`
    says that its first room was replaced. Raises `TooLarge` where it does not fit or nothing
    is left to offer, `Invalid` where no question can be so. Where `asked.masked`, the content
    has masks in place of secrets; the question that is returned has all that was asked. Its
    `attachment` is `NONE` where all is shown; else that of `asked`, or `FAILED` where that
    promises no file: then nothing approving is offered.
    """
    if len(asked.title) > MAX_RAW_TITLE:
        raise TooLarge("title", f"the title is longer than {MAX_RAW_TITLE} characters")
    seen = present(asked)
    measured = Measured(seen.preview)
    preview = for_body(measured)
    is_cut = preview.is_cut or is_title_cut(seen.asked)
    if not is_cut:
        withhold = Withhold.NOTHING if asked.preview_complete else Withhold.ALWAYS
        offered = offered_in(asked, seen, withhold=withhold)
        shown_now = replace(seen.asked, offered=offered)
        content = _envelope(shown_now, mentions, preview, is_complete=asked.preview_complete)
        is_cut = card_size(content) > MAX_CARD_BYTES
    attachment = Attachment.NONE
    if is_cut:
        # Without a file that somebody will bring, nobody can read what they would approve.
        attachment = Attachment.FAILED if asked.attachment is Attachment.NONE else asked.attachment
        unread = attachment is Attachment.FAILED
        offered = offered_in(asked, seen, withhold=Withhold.APPROVING if unread else Withhold.ALWAYS)
        content = _cut_envelope(replace(seen.asked, offered=offered), mentions, measured)
    seen = replace(seen, asked=replace(seen.asked, offered=offered))
    asked = replace(asked, offered=offered, attachment=attachment)
    notes = [sentences.ASKED_AGAIN] if again else []
    notes += _notes(seen.asked, attachment, quorum=quorum, needs_code=needs_code)
    notes += map(sentences.foreign_code, sorted(_codes_held(seen.asked, preview, other_codes)))
    if copied_from is not None:
        notes.append(sentences.copied_from(asked, copied_from))
    content = _prose(seen, preview, notes).message() | content
    if event_size(content) > MAX_EVENT_BYTES:
        raise TooLarge("preview", "the question does not fit into a room's event")
    try:
        Envelope.model_validate(content)
    except ValidationError as refused:
        fault = refused.errors()[0]
        raise Invalid(fault["loc"], fault["msg"]) from refused
    return asked, content


def is_title_cut(asked: NewQuestion) -> bool:
    """Whether the title is longer than readers draw it."""
    return not fits(asked.title, sentences.MAX_TITLE)


def block(seen: Presented, preview: Shown, head: str) -> Prose:
    """Return what is said of a question whether open or closed: `head`, what is claimed, what it will do, notes."""
    asked = seen.asked
    notes = sentences.look_alikes(seen.look_alikes)
    if seen.hidden:
        notes.append(sentences.secrets_hidden(seen.hidden))
    if not asked.preview:
        notes.append(sentences.NO_PREVIEW)
    if not asked.preview_complete:
        notes.append(sentences.NOT_COMPLETE)
    if preview.is_cut or is_title_cut(asked):
        notes.append(sentences.NOT_ALL_SHOWN)
    claims = sentences.claims(asked, session_claim(asked))
    return stacked([Prose.of([head, claims]), prose(preview), Prose.of(notes)], gap="\n")


def _notes(question: NewQuestion, attachment: Attachment, *, quorum: int, needs_code: bool) -> list[str]:
    """Return what has to be known before one answers."""
    notes: list[str] = []
    match attachment:
        case Attachment.NONE:
            pass
        case Attachment.FAILED:
            notes.append(sentences.NOTHING_TO_APPROVE)
        case _:
            notes.append(sentences.FULL_TEXT_FOLLOWS)
    if attachment is not Attachment.FAILED and any(
        guarded_scope(option, question.options) is Scope.ALWAYS for option in _withheld(question)
    ):
        notes.append(sentences.NO_ALWAYS)
    if quorum > 1:
        guarded = [o for o in question.offered if guarded_scope(o.option, question.options) is Scope.ALWAYS]
        notes.extend(sentences.needs_people(each, quorum) for each in guarded)
    if needs_code and any(approves(each.option, question.options) for each in question.offered):
        notes.append(sentences.needs_code(question.code))
    return notes


def _prose(seen: Presented, preview: Shown, notes: list[str]) -> Prose:
    question = seen.asked
    return stacked(
        [
            Prose.heading(sentences.first_line(question.title)),
            stacked([block(seen, preview, sentences.open_until(question)), Prose.of(notes)], gap="\n"),
            Prose.of([sentences.option_line(offered) for offered in question.offered]),
            Prose.of([sentences.LAST_LINE]),
        ],
        gap="\n\n",
    )


def _withheld(question: NewQuestion) -> list[Option]:
    offered = {each.option.option_id for each in question.offered}
    return [option for option in question.options if option.option_id not in offered]


def _codes_held(question: NewQuestion, preview: Shown, codes: frozenset[Code]) -> set[Code]:
    """Return the codes that stand as a word in anything that is shown from outside."""
    texts = [sentences.title_of(question.title), sentences.claims(question, session_claim(question))]
    texts += [offered.printed for offered in question.offered]
    for part in preview.parts:
        texts += [part.label, part.head, part.tail or ""]
    words = {word for text in texts for word in _WORD.findall(fold(text))} if codes else set()
    return {code for code in codes if folded(code) in words}


def _cut_envelope(question: NewQuestion, mentions: tuple[UserId, ...], measured: Measured) -> dict[str, Any]:
    """Return the envelope with as much of the preview as readers draw."""
    fitting = _envelope(question, mentions, Shown((), omitted=0, omitted_after=0, is_cut=True), is_complete=False)
    if card_size(fitting) > MAX_CARD_BYTES:
        raise TooLarge("options", f"without any preview the question is larger than {MAX_CARD_BYTES} bytes")
    fits, too_many = 0, MAX_CARD_BYTES - card_size(fitting) + 1
    while too_many - fits > _CLOSE_ENOUGH:
        characters = (fits + too_many) // 2
        tried = _envelope(question, mentions, shown(measured, characters=characters), is_complete=False)
        if card_size(tried) <= MAX_CARD_BYTES:
            fits, fitting = characters, tried
        else:
            too_many = characters
    return fitting


def _envelope(
    question: NewQuestion, mentions: tuple[UserId, ...], preview: Shown, *, is_complete: bool
) -> dict[str, Any]:
    """Return everything of the content but the two bodies."""
    key = question.key
    title = sentences.title_of(question.title)
    tool_kind = visible_line(question.tool_kind or "", limit=MAX_TOOL_KIND)
    common = {"session_id": question.session_id, "request_seq": question.request_seq, "title": title}
    return {
        "msgtype": "m.text",
        "format": HTML,
        "m.mentions": {"user_ids": list(mentions)},
        "suite_event_type": QUESTION_TYPE,
        "schema_version": SCHEMA_VERSION,
        "request_id": key.request_id,
        **common,
        **({"tool_kind": tool_kind} if tool_kind else {}),
        "code": question.code,
        "options": [_option(offered) for offered in question.offered],
        "subject": {
            "id": key.request_id,
            "digest": question.digest,
            "schema": SUBJECT_SCHEMA,
            "revision": key.revision,
            "expires_at": instant(question.expires_at_ms),
            "preview": envelope_entries(preview),
            "preview_complete": is_complete,
        },
        CARD_KEY: {"schema_version": 1, **common, "options": _card_options(question.offered)},
    }


def _option(offered: Offered) -> dict[str, Any]:
    option = offered.option
    kind = kind_of(option)
    shape = {"id": option.option_id, "label": offered.printed, "meaning": option.meaning.value}
    return shape if kind is None else shape | {"scope": kind.scope.value}


def _card_options(offered: tuple[Offered, ...]) -> list[dict[str, Any]]:
    """Return the four that a card draws: the first ones, but never without one that rejects."""
    drawn = list(offered[:CARD_OPTIONS])
    rejecting = [each for each in offered if each.option.meaning is Meaning.REJECT]
    if rejecting and rejecting[0] not in drawn:
        drawn[-1] = rejecting[0]
    return [{"option_id": each.option.option_id, "name": each.printed} for each in drawn]
