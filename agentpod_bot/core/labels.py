"""What each option is called in the room, and which texts may select it.

Meaning and scope come from the option's kind, never from its label: a label that says
something else is printed as a quotation beside the kind's standard label, and selects
nothing. Where the rules leave a choice, the one is taken under which less can be
approved by mistake.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from agentpod_bot import errors
from agentpod_bot.core.model import BOTS_OWN_REJECT, Meaning, Offered, Option, Scope
from agentpod_bot.core.text import fold, folded, is_numeric, position, trimmed, visible_line, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_OPTIONS = 20
MAX_PRINTED = 200
"""Longest printed label in characters; a longer one is refused, never cut."""
_LONGEST_LABEL = 2_000
"""Longer ones are refused before anything is compared: no label can be shown that short."""
MAX_LABEL = 1_000
"""A longer label is not even looked at: as printed it would be too long, and folding it costs more than its length."""
RESERVED_IDS = "agentpod."
"""Ids that begin so are the bot's own."""


class Withhold(Enum):
    """Which options a question may not offer."""

    NOTHING = "nothing"
    ALWAYS = "always"
    """Whatever approves with scope always."""
    APPROVING = "approving"
    """Whatever approves."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the four ACP kinds of option."""

    meaning: Meaning
    scope: Scope
    standard: str
    """The label of an option that came without one, or with one that says something else."""
    own_words: frozenset[str]
    """Folded first words by which a label or an id says that it is of this kind."""
    remark: str
    """What is printed after a label that does not say it."""


ALLOW_ONCE = Kind(
    Meaning.APPROVE, Scope.ONCE, "Allow once", frozenset({"allow", "approve", "accept", "yes"}), "(allows once)"
)
ALLOW_ALWAYS = Kind(Meaning.APPROVE, Scope.ALWAYS, "Always allow", frozenset({"always"}), "(allows always)")
REJECT_ONCE = Kind(
    Meaning.REJECT,
    Scope.ONCE,
    "Reject",
    frozenset({"reject", "deny", "decline", "refuse", "no", "don't", "cancel"}),
    "(refuses once)",
)
REJECT_ALWAYS = Kind(Meaning.REJECT, Scope.ALWAYS, "Never allow", frozenset({"never"}), "(refuses always)")
KINDS = (ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE, REJECT_ALWAYS)

_REMARK_CHOOSE = "(other)"
_TEN = "🔟"
_APPROVING_WORDS = ALLOW_ONCE.own_words | ALLOW_ALWAYS.own_words
_REJECTING_WORDS = REJECT_ONCE.own_words | REJECT_ALWAYS.own_words
_WORDS_OF = {Meaning.APPROVE: _APPROVING_WORDS, Meaning.REJECT: _REJECTING_WORDS}
_ANY_WORD = _APPROVING_WORDS | _REJECTING_WORDS
_REJECTING_LETTERS = frozenset(word.replace("'", "") for word in _REJECTING_WORDS | {"neverallow"})
# Words that turn a sentence round: a label with one of them never approves by being typed.
_NEGATIONS = frozenset(
    {"not", "dont", "cannot", "can't", "cant", "won't", "wont", "without"}
    | {"n", "nope", "nah", "veto", "stop", "abort", "block", "forbid", "disallow"}
)
# How words begin that say no in another form than the kinds' own words do.
_NO_STEMS = ("reject", "deny", "deni", "declin", "refus", "cancel", "disallow", "disapprov", "forbid", "prohibit")


def kind_of(option: Option) -> Kind | None:
    """Return the option's kind; None for `choose`. An approval without a scope is one for always."""
    match option.meaning, option.scope:
        case Meaning.APPROVE, Scope.ONCE:
            return ALLOW_ONCE
        case Meaning.APPROVE, _:
            return ALLOW_ALWAYS
        case Meaning.REJECT, Scope.ALWAYS:
            return REJECT_ALWAYS
        case Meaning.REJECT, _:
            return REJECT_ONCE
        case _:
            return None


def guarded_scope(option: Option, options: Iterable[Option]) -> Scope | None:
    """Return the scope with which an option approves in every guard; None where it approves nothing.

    `options` are all of its request. `choose` beside other meanings counts as approving
    always, in a request of nothing else as approving once.
    """
    match option.meaning:
        case Meaning.APPROVE:
            return option.scope or Scope.ALWAYS
        case Meaning.CHOOSE:
            return Scope.ONCE if all(other.meaning is Meaning.CHOOSE for other in options) else Scope.ALWAYS
        case Meaning.REJECT:
            return None


def approves(option: Option, options: Iterable[Option]) -> bool:
    """Whether choosing an option counts as an approval in every guard; `options` are all of its request."""
    return guarded_scope(option, options) is not None


def offer(options: tuple[Option, ...], *, withhold: Withhold) -> tuple[Offered, ...]:
    """Return the options as the room shows them, numbered 1..n in the harness's order.

    The bot's own "Reject" comes last where the request approves and has nothing that rejects.
    Raises `Invalid` (loc below `options`) for a list that no question can have, and `TooLarge`
    where a printed label is too long or none of the harness's options is left.
    """
    return _offer(options, withhold)


@lru_cache(maxsize=128)  # a harness offers the same options again and again
def _offer(options: tuple[Option, ...], withhold: Withhold) -> tuple[Offered, ...]:
    check(options)
    left = [option for option in options if _may_be_offered(option, options, withhold)]
    if not left:
        raise errors.TooLarge("options", "no option is left to offer, because not all of the content can be shown")
    asked = _Asked(options)
    printed = [_printed(option, number, asked) for number, option in enumerate(left, 1)]
    bare = [_bare_name(option, number, asked) for number, option in enumerate(left, 1)]
    if _needs_reject(options):
        left.append(Option(BOTS_OWN_REJECT, REJECT_ONCE.standard, Meaning.REJECT, Scope.ONCE))
        printed.append(REJECT_ONCE.standard)
        bare.append(folded(REJECT_ONCE.standard))
    for shown in printed:
        if len(shown) > MAX_PRINTED:
            raise errors.TooLarge("options", f"an option's name is longer than {MAX_PRINTED} characters as printed")
    names = _names(printed, bare)
    return tuple(
        Offered(
            position=number,
            option=option,
            printed=shown,
            names=own - asked.ids_of_others(option),
            id_matches=_id_matches(option, asked, frozenset().union(*names[: number - 1], *names[number:])),
        )
        for number, (option, shown, own) in enumerate(zip(left, printed, names, strict=True), 1)
    )


class _Asked:
    """What one label must be compared with: the whole request, with what is withheld."""

    def __init__(self, options: tuple[Option, ...]) -> None:
        self.options = options
        self.only_choose = all(option.meaning is Meaning.CHOOSE for option in options)
        self.labels = Counter(folded(_label(option)) for option in options)
        self.letters = Counter(_letters(_label(option)) for option in options)
        self.ids = Counter(folded(option.option_id) for option in options)

    def is_ambiguous(self, option: Option, number: int) -> bool:
        """Whether the label alone could mean another option, or another option's number."""
        label = folded(_label(option))
        return (
            self.labels[label] > 1
            or label in self.ids_of_others(option)
            or _reads_as_other_number(_label(option), number)
        )

    def differs_in_signs_only(self, option: Option) -> bool:
        """Whether another option's label has the same letters."""
        return self.letters[_letters(_label(option))] > 1

    def ids_of_others(self, option: Option) -> frozenset[str]:
        """Return the folded ids of all other options; the bot's own "Reject" is not held up by any."""
        if option.option_id == BOTS_OWN_REJECT:
            return frozenset()
        name = folded(option.option_id)
        return frozenset(other for other, count in self.ids.items() if other != name or count > 1)

    def is_label_of_other(self, name: str, option: Option) -> bool:
        """Whether another option's label folds to `name`, however that label is printed."""
        return self.labels[name] > (folded(_label(option)) == name)


def check(options: tuple[Option, ...]) -> None:
    """Refuse a list of options that no question can have; cheap, whatever stands in it.

    Raises `Invalid` (loc below `options`) and, for a label of any length beyond reason, `TooLarge`.
    """
    if not 1 <= len(options) <= MAX_OPTIONS:
        raise errors.Invalid(("options",), f"there must be 1 to {MAX_OPTIONS} options")
    if any(len(option.label) > MAX_LABEL for option in options):
        raise errors.TooLarge("options", f"an option's name is longer than {MAX_PRINTED} characters as printed")
    seen: set[str] = set()
    for index, option in enumerate(options):
        if option.option_id.startswith(RESERVED_IDS):
            raise errors.Invalid(("options", index, "id"), f"ids that begin with {RESERVED_IDS!r} are the bot's own")
        if option.option_id in seen:
            raise errors.Invalid(("options", index, "id"), "two options have this id")
        seen.add(option.option_id)
        if len(option.label) > _LONGEST_LABEL:
            raise errors.TooLarge("options", f"an option's label is longer than {_LONGEST_LABEL} characters")
    if _needs_reject(options) and len(options) == MAX_OPTIONS:
        raise errors.Invalid(("options",), f"{MAX_OPTIONS} options of which none rejects leave no room for a rejection")


def _needs_reject(options: Iterable[Option]) -> bool:
    meanings = {option.meaning for option in options}
    return Meaning.APPROVE in meanings and Meaning.REJECT not in meanings


def _may_be_offered(option: Option, options: tuple[Option, ...], withhold: Withhold) -> bool:
    scope = guarded_scope(option, options)
    match withhold:
        case Withhold.NOTHING:
            return True
        case Withhold.ALWAYS:
            return scope is not Scope.ALWAYS
        case Withhold.APPROVING:
            return scope is None


def _label(option: Option) -> str:
    """Return the harness's label, or what stands for one that shows nothing."""
    if folded(option.label):
        return option.label
    kind = kind_of(option)
    return option.option_id if kind is None else kind.standard


def _printed(option: Option, number: int, asked: _Asked) -> str:
    label = visible_line(_label(option).strip())
    kind = kind_of(option)
    if kind is None:
        named = label if asked.only_choose else f"{label} {_REMARK_CHOOSE}"
    elif _lies(_label(option), kind):
        return f'{kind.standard} \N{EN DASH} the agent calls it "{label}"'
    else:
        named = label if _says_its_kind(_label(option), kind) else f"{label} {kind.remark}"
    return f"{named} ({visible_line(option.option_id)})" if asked.is_ambiguous(option, number) else named


def _says_its_kind(label: str, kind: Kind) -> bool:
    """Whether a label that does not lie may stand alone."""
    first = words(label)[:1]
    if folded(label) == folded(kind.standard) or not kind.own_words.isdisjoint(first):
        return True
    return kind.meaning is Meaning.REJECT and _ANY_WORD.isdisjoint(first)


def _lies(label: str, kind: Kind) -> bool:
    """Whether a label says another kind's standard label, or another meaning."""
    if folded(label) == folded(kind.standard):
        return False
    if folded(label) in {folded(other.standard) for other in KINDS}:
        return True
    spoken = words(label)
    others = _REJECTING_WORDS if kind.meaning is Meaning.APPROVE else _APPROVING_WORDS
    if not others.isdisjoint(spoken[:1]):
        return True
    return kind.meaning is Meaning.APPROVE and (not others.isdisjoint(spoken) or _looks_rejecting(label))


def _looks_rejecting(label: str) -> bool:
    """Whether a label looks like a rejecting word though it is spelled with accents, gaps or signs."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", fold(label)) if not unicodedata.combining(char))
    squeezed = "".join(char for char in plain if char.isalpha())
    return squeezed in _REJECTING_LETTERS or not _REJECTING_LETTERS.isdisjoint(words(plain))


def _bare_name(option: Option, number: int, asked: _Asked) -> str | None:
    """Return the folded label where typing it may select the option."""
    label = _label(option)
    spoken = words(label)
    kind = kind_of(option)
    if asked.is_ambiguous(option, number):
        return None
    if guarded_scope(option, asked.options) is not None and asked.differs_in_signs_only(option):
        return None
    if kind is None:
        doubtful = not asked.only_choose and (not _ANY_WORD.isdisjoint(spoken[:1]) or _is_doubtful(label))
    else:
        doubtful = _lies(label, kind) or (kind.meaning is Meaning.APPROVE and _is_doubtful(label))
    return None if doubtful else folded(label)


def _is_doubtful(label: str) -> bool:
    """Whether a label that is guarded as approving could be typed by one who means to refuse."""
    spoken = words(label)
    return (
        not (_REJECTING_WORDS | _NEGATIONS).isdisjoint(spoken)
        or any(word.startswith(_NO_STEMS) for word in spoken)
        or _looks_rejecting(label)
        or _holds_a_number(label)
        or any(_mixes_scripts(word) for word in spoken)
    )


def _holds_a_number(label: str) -> bool:
    """Whether any character is a number in any script: it could be typed for another option's position."""
    return any(unicodedata.numeric(char, None) is not None for char in fold(label))


def _letters(label: str) -> str:
    """The letters of a label alone: two that differ in signs only are one to whoever types them."""
    return "".join(char for char in fold(label) if char.isalpha())


def _mixes_scripts(word: str) -> bool:
    """Whether Latin letters stand beside another script's in one word, which look-alikes do."""
    scripts = {unicodedata.name(char, "?").split()[0] for char in word if char.isalpha()}
    return "LATIN" in scripts and len(scripts) > 1


def _reads_as_other_number(label: str, number: int) -> bool:
    """Whether a label is a number in any dress (`2`, `+2`, `#2`, a keycap) but not its own position."""
    if is_numeric(trimmed(label)):
        return position(trimmed(label)) != number
    plain = folded(label)
    if _TEN in plain or is_numeric(plain):
        return True
    marks = "".join("9" if unicodedata.category(char).startswith("N") else char for char in plain)
    digits = marks.strip("".join({char for char in marks if char != "9" and not char.isalnum()}))
    return bool(digits) and set(digits) == {"9"}


def _names(printed: Sequence[str], bare: Sequence[str | None]) -> list[frozenset[str]]:
    """Return the texts that may select each option: none that two of them claim, and no number."""
    claimed = [{folded(shown)} | ({name} if name else set()) for shown, name in zip(printed, bare, strict=True)]
    claims = Counter(name for own in claimed for name in own)
    return [frozenset(name for name in own if name and claims[name] == 1 and not is_numeric(name)) for own in claimed]


def _id_matches(option: Option, asked: _Asked, names_of_others: frozenset[str]) -> bool:
    """Whether the id, typed as text, may select the option: an id may lie too."""
    kind = kind_of(option)
    name = folded(option.option_id)
    if kind is None or option.option_id == BOTS_OWN_REJECT or asked.ids[name] != 1:
        return False
    runs = "".join(char if char.isalpha() else " " for char in name).split()
    if not name[:1].isalpha() or runs[0] not in kind.own_words:
        return False
    if kind.meaning is Meaning.APPROVE and not (_REJECTING_WORDS | _NEGATIONS).isdisjoint(runs):
        return False
    return name not in names_of_others and not asked.is_label_of_other(name, option)
