"""Every sentence that a person reads in a room.

Plain functions from data to words. Strings from outside come in as they are and are made
visible here. No sentence says "approved" or "allowed" of anything that was not decided;
the only earlier uses are that nothing was.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.diff import Change
from agentpod_bot.core.lookalikes import Look
from agentpod_bot.core.model import Meaning, Outcome, Scope
from agentpod_bot.core.scene import WhyUnheard
from agentpod_bot.core.text import visible_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.diff import Diff
    from agentpod_bot.core.ids import Code, RouteName, UserId
    from agentpod_bot.core.lookalikes import LookAlike
    from agentpod_bot.core.model import Closing, Copy, NewQuestion, Offered
    from agentpod_bot.core.secrets import Hidden

MAX_TITLE = 300
"""Characters of a title that readers draw."""
MAX_TITLE_IN_NOTICE = 80
MAX_CLAIM = 60
"""Characters shown of a name that a harness claims."""
MAX_REASON = 300
"""Characters shown of a person's or a harness's reason; the harness gets all of a person's."""
MAX_SORTS = 5
"""Sorts of hidden values that are named; the number of the others is said."""
MAX_LOOK_ALIKES = 5

LAST_LINE = "Reply with the number, or the option's name."
NO_PREVIEW = "Note: the agent did not say what it will do."
NOT_COMPLETE = "Note: the agent says that this is not all of what it will do."
NO_ALWAYS = "So options that reach further than this once are not offered."
NOT_ALL_SHOWN = "Note: not all of what the agent will do could be shown here."
FULL_TEXT_FOLLOWS = "The full text follows as a file in this thread. Nothing can be approved before it is there."
NOTHING_TO_APPROVE = "The full text could not be uploaded, so nothing can be approved from this room."
NOTHING_APPROVED = "Nothing has been approved."
HOW_TO_VERIFY = (
    "To verify it, start a verification of this account in your client, and compare the emoji with those that "
    "agentpod-bot verify shows on the bot's machine."
)
NO_VOTES = "no votes now"
STOPPED_WAITING = "the agent had stopped waiting"
WITHDRAWN = "No longer allowed, as the agent reports"
"""Stands before the outcome line of what was allowed and is so no more."""
REPORTS: Mapping[str, str] = {
    "executed": "it was run",
    "consumed": "all of it was used",
    "failed": "it failed",
    "noop": "there was nothing to do",
    "revoked": "it was revoked, and no further step may run",
    "expired": "its time ran out, and no further step may run",
    "reverted": "it was run, and then undone",
}
"""What the usual statuses of a decided request mean; each ends it. Any other is quoted as it came."""

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class Keys(Enum):
    """Which options a reaction can choose."""

    ALL = 1
    REJECTING = 2
    NONE = 3


def title_of(title: str) -> str:
    """Return a title on one line, cut where readers cut it."""
    return visible_line(title, limit=MAX_TITLE)


def quoted(text: str, *, limit: int = MAX_CLAIM) -> str:
    """Return an outside text in quotation marks that it cannot close itself."""
    return in_quotes(visible_line(text, limit=limit))


def in_quotes(shown: str) -> str:
    """Return a text that is visible already in quotation marks that it cannot close itself."""
    return '"{}"'.format(shown.replace('"', "\u201d"))


def clock(at_ms: int, *, seen_from_ms: int) -> str:
    """Return a time as `10:12 UTC`, with its date where the day is not that of `seen_from_ms`."""
    at, seen_from = _utc(at_ms), _utc(seen_from_ms)
    return f"{at:%H:%M} UTC" if at.date() == seen_from.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def span(duration_ms: int) -> str:
    """Return a duration in the largest units that it fills, never more than it is: `1 h 30 min`."""
    if duration_ms < _MINUTE:
        return f"{max(duration_ms, 0) // 1000} s"
    days, rest = divmod(duration_ms, _DAY)
    hours, rest = divmod(rest, _HOUR)
    parts = ((days, "d"), (hours, "h"), (rest // _MINUTE, "min"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def first_line(title: str) -> str:
    """Return the first line of a question."""
    return f"Permission needed: {title_of(title)}"


def open_until(asked: NewQuestion) -> str:
    """Return the line that says code, client and deadline."""
    until = clock(asked.expires_at_ms, seen_from_ms=asked.created_at_ms)
    return f"{_where(asked)} · open until {until} ({span(asked.expires_at_ms - asked.created_at_ms)})"


def asked_at(asked: NewQuestion) -> str:
    """Return the same line of a question that is closed."""
    return f"{_where(asked)} · asked {clock(asked.created_at_ms, seen_from_ms=asked.created_at_ms)}"


def claims(asked: NewQuestion, session: str) -> str:
    """Return the line that says what the harness calls itself and its session."""
    session = quoted(session)
    agent = (asked.agent or "").strip()
    return f"Calls itself {quoted(agent)}, session {session}" if agent else f"Session {session}"


def hidden(characters: int) -> str:
    """Return what stands where a text was cut."""
    return f"[… {_many(characters, 'character')} hidden …]"


def items_hidden(items: int) -> str:
    """Return what stands where whole parts of a preview were left out."""
    return f"[… {_many(items, 'part')} of the preview hidden …]"


def diff_summary(diff: Diff) -> str:
    """Say in one line what a diff shows and what it leaves out."""
    match diff.change:
        case Change.CREATED:
            said = [f"new file, {_many(diff.added, 'line')}"]
        case Change.DELETED:
            said = [f"deleted file, {_many(diff.removed, 'line')}"]
        case Change.CHANGED if diff.hunks:
            said = [f"{_many(diff.added, 'line')} added, {diff.removed:,} removed"]
        case Change.CHANGED:
            said = ["nothing changes"]
        case _:
            assert_never(diff.change)
    if diff.not_shown:
        said.append(f"{_many(diff.not_shown, 'unchanged line')} not shown")
    if diff.looks_binary:
        said.append("looks like binary data")
    return "; ".join(said)


def foreign_code(code: Code) -> str:
    """Warn that an outside text holds another open question's code."""
    return f"Note: the agent's text holds {code}, which is the code of another open question."


def secrets_hidden(hidden: Sequence[Hidden]) -> str:
    """Say how many values were hidden, of which kinds, and how long each is."""
    sorts = Counter((each.kind.value, each.length) for each in hidden)
    named = [
        (f"{count} \N{MULTIPLICATION SIGN} " if count > 1 and len(sorts) > 1 else "")
        + f"{kind}, {_many(length, 'character')}"
        for (kind, length), count in list(sorts.items())[:MAX_SORTS]
    ]
    if len(sorts) > MAX_SORTS:
        named.append(and_more(sum(list(sorts.values())[MAX_SORTS:])))
    return f"Note: {_many(len(hidden), 'value')} hidden ({'; '.join(named)})."


def look_alikes(found: Sequence[LookAlike]) -> list[str]:
    """Say of hosts and paths that they may not be what they look like."""
    named = [each for each in found if each.look is not Look.UNREAD]
    lines = [f"Note: {_look_alike(each)}." for each in named[:MAX_LOOK_ALIKES]]
    if len(named) > MAX_LOOK_ALIKES:
        lines.append(f"Note: {and_more(len(named) - MAX_LOOK_ALIKES)} like these.")
    return lines + [f"Note: {_look_alike(each)}." for each in found if each.look is Look.UNREAD]


def _look_alike(found: LookAlike) -> str:
    match found.look:
        case Look.MIXED:
            return f"{quoted(found.name)} mixes {' and '.join(found.scripts)} letters"
        case Look.IMITATES:
            return f"{quoted(found.name)} looks like {quoted(found.other)}, but has other characters"
        case Look.PUNYCODE:
            return f"{quoted(found.name)} stands for {quoted(found.other)}"
        case Look.NO_PUNYCODE:
            return f"{quoted(found.name)} has a part that stands for nothing"
        case Look.UNREAD:
            return f"from {quoted(found.name)} on, hosts and paths were not checked: there are too many"
        case _:
            assert_never(found.look)


def option_line(offered: Offered) -> str:
    """Return an option's line of the list."""
    return f"{offered.position}. {offered.printed}"


def outcome_line(
    asked: NewQuestion, closing: Closing, *, delivered_at_ms: int | None, gave_up: bool, votes: Sequence[str] = ()
) -> str:
    """Return the first line of a closed question; `votes` are those that stood when it expired, in words."""
    at = clock(closing.at_ms, seen_from_ms=asked.created_at_ms)
    line = f"{_ended(asked, closing, at, votes)}: {title_of(asked.title)}"
    if delivered_at_ms is not None and closing.outcome is Outcome.SELECTED:  # only a decision is fetched
        line += f" · delivered {clock(delivered_at_ms, seen_from_ms=asked.created_at_ms)}"
    return f"{line} · {STOPPED_WAITING}" if gave_up else line


def answer_line(closing: Closing) -> str | None:
    """Return which option was taken, where the outcome line alone does not say it."""
    match closing.option:
        case None:
            return None
        case offered if offered.option.meaning is not Meaning.CHOOSE and offered.printed in _SAID_BY_OUTCOME:
            return None
        case offered:
            return f"Answer: {offered.printed}"


def reason_line(closing: Closing) -> str | None:
    """Return the reason that a person gave."""
    return f"Reason: {visible_line(closing.comment, limit=MAX_REASON)}" if closing.comment else None


def steps_done(steps: Sequence[int], *, more: int) -> str:
    """Return which steps of a decided request were done, and how many more are not named."""
    return f"Steps done: {', '.join(map(str, steps))}" + (f" {and_more(more)}" if more > 0 else "")


def next_step(step: int) -> str:
    """Return which step comes next."""
    return f"Next step: {step}"


def step_failed(step: int | None, reason: str | None) -> str:
    """Return that a step failed, and why, as far as the harness says."""
    at = "" if step is None else f" at step {step}"
    return f"Failed{at}" + (f": {visible_line(reason, limit=MAX_REASON)}" if reason else "")


def agent_reports(status: str, meant: str | None) -> str:
    """Return a status in the harness's own word, and what is meant by it where that is known."""
    said = visible_line(status, limit=MAX_REASON)
    return f"The agent reports: {said}" + (f" ({meant})" if meant else "")


def named(asked: NewQuestion) -> str:
    """Name a question in a notice: its code and the beginning of its title."""
    return f"{asked.code} {quoted(asked.title, limit=MAX_TITLE_IN_NOTICE)}"


def no_match(asked: NewQuestion) -> str:
    """Say that an answer is none of the options."""
    return f"That is none of the options of {named(asked)}. {NOTHING_APPROVED} The options are:"


def reason_approves_nothing(asked: NewQuestion) -> str:
    """Say that a reason stood behind an option that approves."""
    return (
        f"A reason can only follow an option that rejects, so that was no answer to {named(asked)}. "
        f"{NOTHING_APPROVED} The options are:"
    )


def full_text_of(asked: NewQuestion) -> str:
    """Say what a file is."""
    return f"Full text of {asked.code}"


def no_file_yet(asked: NewQuestion) -> str:
    """Say that the file which one would have to read is not there yet."""
    return f"The full text of {named(asked)} is not in the room yet. {NOTHING_APPROVED} Answer again once it is there."


def from_requester(asked: NewQuestion) -> str:
    """Say that the person for whom something was asked cannot approve it."""
    if asked.requester is None:
        return f"Nobody can approve {named(asked)}: it is not known for whom it was asked. {NOTHING_APPROVED}"
    return f"{named(asked)} was asked for you, so another approver has to approve it. {NOTHING_APPROVED}"


def still_open(asked: NewQuestion) -> str:
    """Remind people of an open question."""
    until = clock(asked.expires_at_ms, seen_from_ms=asked.created_at_ms)
    return f"Still open until {until}: {named(asked)}. Answer here in the thread, or reply to the question."


def also_asked(asked: NewQuestion, copy: Copy) -> str:
    """Say where a question that nobody answered was asked too."""
    at = clock(copy.asked_at_ms, seen_from_ms=asked.created_at_ms)
    return f"Also asked on route {copy.route} at {at}, for nobody had answered."


def not_asked(asked: NewQuestion, copy: Copy) -> str:
    """Say that a question could not be asked anywhere else, though nobody answered it."""
    at = clock(copy.asked_at_ms, seen_from_ms=asked.created_at_ms)
    return f"Could not be asked on route {copy.route} at {at}: the homeserver refused it there. It is asked only here."


def copied_from(asked: NewQuestion, route: RouteName) -> str:
    """Say in a second room that the question stands in another one already."""
    at = clock(asked.created_at_ms, seen_from_ms=asked.created_at_ms)
    return f"Also asked on route {route} since {at}, where nobody had answered; one answer is for both."


def not_asked_here(asked: NewQuestion, *, elsewhere: bool) -> str:
    """Say that nobody can answer a question in this room, because the configuration was changed."""
    first = " It can still be answered in the room in which it was asked first." if elsewhere else ""
    return (
        f"The configuration was changed, and {named(asked)} cannot be answered in this room any more. "
        f"{NOTHING_APPROVED}{first}"
    )


def needs_people(offered: Offered, needed: int) -> str:
    """Say beforehand that an option needs several people."""
    return f"{offered.printed} needs {needed} people."


def needs_code(code: Code) -> str:
    """Say beforehand that an approval has to name the question itself."""
    return f"To approve this, write the code too: <number> {code}. A reaction can only reject it."


def votes_line(offered: Offered, voters: Sequence[UserId], needed: int) -> str:
    """Say who is for an option that needs several people."""
    return f"{votes_for(offered, voters, needed)}: {_people(voters)}"


def votes_for(offered: Offered, voters: Sequence[UserId], needed: int) -> str:
    """Count the votes for an option that needs several people."""
    return f"{len(voters)} of {_many(needed, 'vote')} for {offered.printed}"


def not_rejected() -> str:
    """Head the list of what a rejection of several questions did not reject."""
    return f"Not rejected by your message. {NOTHING_APPROVED}"


def left_unknown(code: str) -> str:
    """Say that a code is none."""
    return f"{quoted(code)}: no question that was open here has this code"


def left_foreign(code: str) -> str:
    """Say that a code is not one question's alone."""
    return f"{quoted(code)}: another account or route asks with this code too, so reply to the question itself"


def left_without_rejection(asked: NewQuestion) -> str:
    """Say that a question cannot be rejected."""
    return f"{named(asked)}: it has no option that rejects"


def reject_which() -> str:
    """Ask for the codes of what is to be rejected."""
    return (
        "Nothing was rejected. Write the codes of the questions to reject, like !reject K7 M3, and after a colon why."
    )


def which_one(*, is_only: bool) -> str:
    """Ask which question an answer is for, also where it is the only one of ours that is open."""
    why = "Only one is open now, but another may be meant: one that closed a moment ago, or somebody else's. "
    return (
        f"Which question is that for? {NOTHING_APPROVED} {why if is_only else ''}"
        "Reply to the question itself, or write its code too:"
    )


def how_with_code(code: Code) -> str:
    """Show how an answer with a code is written."""
    return f"That is: the number of your answer, and the code: <number> {code}"


def not_an_approver(asked: NewQuestion) -> str:
    """Say that somebody may not answer."""
    return f"You are not an approver of {named(asked)} here, so your message changes nothing."


def too_late(asked: NewQuestion, closing: Closing) -> str:
    """Say what had happened when an answer came too late."""
    at = clock(closing.at_ms, seen_from_ms=asked.created_at_ms)
    match closing.outcome:
        case Outcome.SELECTED:
            label = closing.option.printed if closing.option else ""
            what = f"already answered by {_deciders(closing)}: {label}, at {at}"
        case Outcome.EXPIRED:
            what = f"too late, expired at {at}, nothing was allowed"
        case Outcome.CANCELLED:
            what = f"already closed at {at}: the agent no longer needs an answer; nothing was allowed"
        case Outcome.SUPERSEDED:
            what = f"already closed at {at}: replaced by a newer question; nothing was allowed"
        case Outcome.ANSWERED_ELSEWHERE:
            what = f"already closed by client {visible_line(asked.key.client)} at {at}: says it was answered there"
        case Outcome.UNDELIVERABLE:
            what = f"already closed at {at}: it could not be kept in this room; nothing was allowed"
    return f"{named(asked)}: {what}. Nothing was approved by your message."


def answer_refused(asked: NewQuestion, why: str) -> str:
    """Say why a structured answer does not count."""
    reason = visible_line(why, limit=MAX_REASON)
    return f"That answer does not fit {named(asked)}: {reason}. {NOTHING_APPROVED}"


def unreadable(asked: NewQuestion, keys: Keys) -> str:
    """Say that an encrypted answer, which may have been for this question, could not be read."""
    match keys:
        case Keys.ALL:
            react = ", or react to the question with an option's number"
        case Keys.REJECTING:
            react = ", or reject by reacting to the question with that option's number"
        case Keys.NONE:
            react = ""
        case _:
            assert_never(keys)
    return (
        f"Your message could not be decrypted here, so if it was for {named(asked)}, it decided nothing. "
        f"{NOTHING_APPROVED} Please send it again{react}."
    )


def unreadable_which() -> str:
    """The same where it may have been for one of several questions."""
    return (
        "Your message could not be decrypted here, so if it was for one of these questions, it decided nothing. "
        f"{NOTHING_APPROVED} Please send it again:"
    )


def not_named(asked: NewQuestion) -> str:
    """Say that an approval has to name its question itself."""
    return (
        f"To approve {named(asked)} here, a message has to carry its code. {NOTHING_APPROVED} "
        f"Write the number of your answer, and the code: <number> {asked.code}"
    )


def not_known(code: Code | None) -> str:
    """Say that a question was lost together with what was kept of it."""
    question = "That question" if code is None else f"Question {code}"
    return (
        f"{question} is not known to this bot any more, so no answer to it decides anything. {NOTHING_APPROVED} "
        "Whoever wants an answer has to ask again."
    )


def unheard(asked: NewQuestion | None, why: WhyUnheard) -> str:
    """Say why a message decided nothing because of how it came, and what to do."""
    message = "Your message" if asked is None else f"Your message about {named(asked)}"
    match why:
        case WhyUnheard.CLEAR:
            return (
                f"{message} came without encryption into this encrypted room, so it decides nothing. "
                f"{NOTHING_APPROVED} Please send it from a client that encrypts."
            )
        case WhyUnheard.STRANGER:
            return (
                f"{message} was encrypted by no device that your account is known to have, so it decides nothing. "
                f"{NOTHING_APPROVED} Please send it again, from a device that is logged in."
            )
        case WhyUnheard.UNVERIFIED:
            return (
                f"{message} came from a device that was not verified with this bot, so it decides nothing. "
                f"{NOTHING_APPROVED} {HOW_TO_VERIFY}"
            )
        case _:
            assert_never(why)


def not_read(since_ms: int | None, until_ms: int | None, *, now_ms: int, votes_are_void: bool) -> str:
    """Say that messages were passed over, and what to do."""
    since = "" if since_ms is None else f" from {clock(since_ms, seen_from_ms=now_ms)}"
    until = "" if until_ms is None else f" until {clock(until_ms, seen_from_ms=now_ms)}"
    when = f" sent{since}{until}" if since or until else ""
    votes = " Votes given before they were sent do not count any more." if votes_are_void else ""
    return (
        f"More was said here than this bot can catch up with: messages{when} were not read. Nothing was approved by "
        f"them.{votes} Whoever answered a question with one of them has to answer again, by a reply to the question "
        "or with its code."
    )


def room_replaced() -> str:
    """Say that nothing is asked any more in a room that was upgraded."""
    return (
        "This room was replaced by another one. Nothing new is asked here, nor in the other room until the bot's "
        "configuration names it. What is open here stays open until it is answered or expires."
    )


def room_followed(*, all_do: bool) -> str:
    """Say what becomes of the questions of routes that follow upgrades."""
    if not all_do:
        return (
            "Questions of routes that follow upgrades are an exception: from now on they cannot be answered here. "
            "They are asked again in the other room once the approvers are there."
        )
    return (
        "This room was replaced by another one. From now on nothing that is said here answers a question. What is open "
        "is asked again in the other room, once the approvers and the bot are there; until then nothing can be asked."
    )


def waits_to_move(asked: NewQuestion) -> str:
    """Say that an answer came after its room was replaced, and before its question was asked again."""
    return (
        f"{named(asked)} can no longer be answered in this room, which was replaced by another one. "
        f"{NOTHING_APPROVED} It is asked again there, once the approvers and the bot are in that room."
    )


def moved(asked: NewQuestion) -> str:
    """Say that an answer is for a question as it was asked in a room that was replaced."""
    return (
        f"{named(asked)} was asked again in the room that replaced the first one. {NOTHING_APPROVED} "
        "Only an answer to the new message counts."
    )


def moved_line() -> str:
    """Stand over a question in a room that it left."""
    return "This room was replaced; asked again in the room that replaced it. Answers here no longer count"


ASKED_AGAIN = "Asked again, for its first room was replaced by this one. Answers and votes given there do not count."


def followed(routes: Sequence[str]) -> str:
    """Say in a new room that questions are asked there from now on."""
    named_routes = ", ".join(visible_line(route) for route in routes)
    return (
        f"This room replaces the one in which questions of route {named_routes} were asked. They are asked here from "
        "now on; what was open there is asked again here."
    )


def open_questions(count: int) -> str:
    """Head the list of open questions."""
    return "No question is open here." if count == 0 else f"{_many(count, 'open question')} here:"


def open_entry(asked: NewQuestion, *, now_ms: int) -> str:
    """Return one line of the list of open questions."""
    return f"{named(asked)} · asked {span(now_ms - asked.created_at_ms)} ago"


def not_in_room_yet() -> str:
    """Stand for the link of a question that is still on its way."""
    return "not in the room yet"


def and_more(count: int) -> str:
    """End a list that is cut."""
    return f"and {count} more"


_SAID_BY_OUTCOME = frozenset({"Allow once", "Always allow", "Reject", "Never allow"})


def _ended(asked: NewQuestion, closing: Closing, at: str, votes: Sequence[str]) -> str:
    match closing.outcome:
        case Outcome.SELECTED:
            return f"{_decided(closing)} by {_deciders(closing)} at {at}"
        case Outcome.EXPIRED if votes:
            return f"Expired at {at} with only {' and '.join(votes)} by then; nothing was allowed"
        case Outcome.EXPIRED:
            return f"Expired at {at}, no answer came in time; nothing was allowed"
        case Outcome.CANCELLED:
            return f"Cancelled at {at}, the agent no longer needs an answer; nothing was allowed"
        case Outcome.SUPERSEDED:
            return f"Closed at {at}, replaced by a newer question; nothing was allowed"
        case Outcome.ANSWERED_ELSEWHERE:
            client = visible_line(asked.key.client)
            return f"At {at} closed by client {client}: says it was answered there; nothing was decided here"
        case Outcome.UNDELIVERABLE:
            return f"Closed at {at}, it could not be kept in this room; nothing was allowed"


def _decided(closing: Closing) -> str:
    option = closing.option.option if closing.option else None
    match (option.meaning, option.scope) if option else (None, None):
        case Meaning.APPROVE, Scope.ONCE:
            return "Allowed once"
        case Meaning.APPROVE, _:
            return "Allowed always"
        case Meaning.REJECT, Scope.ALWAYS:
            return "Rejected always"
        case Meaning.REJECT, _:
            return "Rejected"
        case _:
            return "Answered"


def _deciders(closing: Closing) -> str:
    return _people(closing.voters) if closing.voters else f"{closing.answered_by}"


def _people(names: Sequence[str]) -> str:
    shown = [visible_line(name) for name in names]
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else "".join(shown)


def _where(asked: NewQuestion) -> str:
    return f"Code {asked.code} · client {visible_line(asked.key.client)}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC)
