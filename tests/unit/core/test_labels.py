from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentpod_bot import errors
from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import KINDS, MAX_OPTIONS, MAX_PRINTED, Withhold, guarded_scope, offer
from agentpod_bot.core.model import BOTS_OWN_REJECT, Meaning, Offered, Option, Scope
from agentpod_bot.core.text import folded, is_numeric, position, trimmed, words

SHAPES: dict[str, tuple[Meaning, Scope | None]] = {
    "allow_once": (Meaning.APPROVE, Scope.ONCE),
    "allow_always": (Meaning.APPROVE, Scope.ALWAYS),
    "reject_once": (Meaning.REJECT, Scope.ONCE),
    "reject_always": (Meaning.REJECT, Scope.ALWAYS),
    "approve_unscoped": (Meaning.APPROVE, None),
    "choose": (Meaning.CHOOSE, None),
}
REJECTING = ("reject", "deny", "decline", "refuse", "no", "don't", "don\u2019t", "cancel", "never", "never allow")
APPROVING = ("allow", "approve", "accept", "yes", "always", "allow once", "always allow")


def option(kind: str, label: str, option_id: str | None = None) -> Option:
    meaning, scope = SHAPES[kind]
    return Option(OptionId(option_id or kind), label, meaning, scope)


FOUR = (
    option("allow_once", "Allow once"),
    option("allow_always", "Always allow"),
    option("reject_once", "Reject"),
    option("reject_always", "Never allow"),
)
NO = option("reject_once", "Reject", "no-thanks")


def shown(*options: Option, withhold: Withhold = Withhold.NOTHING) -> list[str]:
    return [offered.printed for offered in offer(options, withhold=withhold)]


def selected(text: str, offered: tuple[Offered, ...]) -> list[Option]:
    """Return every option that the rules of comparison let a text select."""
    bare = trimmed(text)
    if is_numeric(bare):
        return [each.option for each in offered if each.position == position(bare)]
    name = folded(text)
    return [
        each.option
        for each in offered
        if name in each.names or (each.id_matches and name == folded(each.option.option_id))
    ]


def test_the_four_standard_labels_are_printed_as_they_are_and_match() -> None:
    offered = offer(FOUR, withhold=Withhold.NOTHING)
    assert [each.printed for each in offered] == ["Allow once", "Always allow", "Reject", "Never allow"]
    assert [each.position for each in offered] == [1, 2, 3, 4]
    for each in offered:
        assert selected(each.printed.upper() + ".", offered) == [each.option]


@pytest.mark.parametrize(
    ("kind", "label", "printed"),
    [
        ("allow_once", "Yes", "Yes"),
        ("allow_once", "allow ONCE", "allow ONCE"),
        ("allow_once", "Approve this command", "Approve this command"),
        ("allow_once", "Weiter", "Weiter (allows once)"),
        ("allow_once", "Always go on", "Always go on (allows once)"),
        ("allow_once", "✓", "✓ (allows once)"),
        ("allow_once", "  ", "Allow once"),
        ("allow_once", "\u200b", "Allow once"),
        ("allow_once", "Reject", 'Allow once \u2013 the agent calls it "Reject"'),
        ("allow_once", "Always allow", 'Allow once \u2013 the agent calls it "Always allow"'),
        ("allow_once", "Allow, no questions", 'Allow once \u2013 the agent calls it "Allow, no questions"'),
        ("allow_once", "Réject", 'Allow once \u2013 the agent calls it "Réject"'),
        ("allow_once", "R e j e c t", 'Allow once \u2013 the agent calls it "R e j e c t"'),
        ("allow_once", "'Cancel'", "Allow once \u2013 the agent calls it \"'Cancel'\""),
        ("allow_always", "Allow for this session", "Allow for this session (allows always)"),
        ("allow_always", "Always, for this folder", "Always, for this folder"),
        ("allow_always", "Allow once", 'Always allow \u2013 the agent calls it "Allow once"'),
        ("allow_always", "Reject", 'Always allow \u2013 the agent calls it "Reject"'),
        ("allow_always", "Always reject", 'Always allow \u2013 the agent calls it "Always reject"'),
        (
            "allow_always",
            "Yes, and don\u2019t ask again",
            'Always allow \u2013 the agent calls it "Yes, and don\u2019t ask again"',
        ),
        ("approve_unscoped", "Go", "Go (allows always)"),
        ("reject_once", "No, and say why", "No, and say why"),
        ("reject_once", "Nein", "Nein"),
        ("reject_once", "✗", "✗"),
        ("reject_once", "Allow once", 'Reject \u2013 the agent calls it "Allow once"'),
        ("reject_once", "Yes", 'Reject \u2013 the agent calls it "Yes"'),
        ("reject_once", "Never allow", 'Reject \u2013 the agent calls it "Never allow"'),
        ("reject_once", "Never again", "Never again (refuses once)"),
        ("reject_always", "Deny always", "Deny always (refuses always)"),
        ("reject_always", "Nie", "Nie"),
        ("choose", "Use staging", "Use staging (other)"),
    ],
)
def test_a_label_is_printed_as_its_kind_lets_it(kind: str, label: str, printed: str) -> None:
    others = (option("allow_always" if kind == "allow_once" else "allow_once", "Erlauben", "x"), NO)
    assert shown(option(kind, label, "the-one"), *others)[0] == printed


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("allow_always", "Reject"),
        ("allow_always", "Always reject"),
        ("allow_once", "'Reject'"),
        ("allow_once", "No"),
        ("reject_once", "Allow once"),
        ("choose", "Allow"),
        ("choose", "Deny it"),
        ("allow_once", "Do not allow"),
        ("allow_once", "R\u0435ject"),
    ],
)
def test_a_label_that_says_something_else_never_selects_its_option(kind: str, label: str) -> None:
    liar = option(kind, label, "liar")
    offered = offer(
        (liar, option("allow_once", "Erlauben", "x"), option("reject_always", "Nie")), withhold=Withhold.NOTHING
    )
    assert selected(label, offered) == []
    assert selected("1", offered) == [liar]


def test_a_suffixed_label_still_matches_bare_and_printed() -> None:
    offered = offer((option("allow_always", "Allow for this session"), NO), withhold=Withhold.NOTHING)
    for text in ("allow for this session", "Allow for this session (allows always)"):
        assert selected(text, offered) == [offered[0].option]


def test_labels_that_fold_alike_are_printed_with_their_ids_and_match_only_so() -> None:
    offered = offer(
        (option("allow_once", "Allow", "a"), option("allow_once", "allow ", "b"), NO), withhold=Withhold.NOTHING
    )
    assert [each.printed for each in offered] == ["Allow (a)", "allow (b)", "Reject"]
    assert selected("Allow", offered) == []
    assert selected("1", offered) == selected("allow (a)", offered) == [offered[0].option]


def test_labels_alike_of_different_kinds_say_their_kinds_too() -> None:
    both = shown(option("allow_once", "Weiter", "a"), option("allow_always", "Weiter", "b"), NO)
    assert both == ["Weiter (allows once) (a)", "Weiter (allows always) (b)", "Reject"]


def test_a_label_that_is_another_options_id_selects_neither() -> None:
    options = (
        option("allow_once", "Go", "allow_it"),
        option("reject_once", "Stop", "x"),
        option("choose", "allow_it", "c"),
    )
    offered = offer(options, withhold=Withhold.NOTHING)
    assert offered[2].printed == "allow_it (other) (c)"
    assert selected("allow_it", offered) == []


@pytest.mark.parametrize("label", ["2", "\uff12", "2.", "+2", "#2", "02", "②", "2️⃣", "🔟", "(2)", "-1"])
def test_a_label_that_reads_as_another_number_never_shadows_a_position(label: str) -> None:
    odd = option("choose", label, "odd")
    offered = offer((odd, option("choose", "Other", "even")), withhold=Withhold.NOTHING)
    assert offered[0].printed == f"{label} (odd)"
    assert odd not in selected(label, offered)
    assert selected("2", offered) == [offered[1].option]


def test_a_label_that_is_its_own_position_stays_bare() -> None:
    assert shown(option("choose", "1", "a"), option("choose", "2", "b")) == ["1", "2"]


@pytest.mark.parametrize(
    ("kind", "option_id", "matches"),
    [
        ("allow_once", "allow_once", True),
        ("allow_once", "yes-please", True),
        ("reject_once", "reject_once", True),
        ("reject_always", "never", True),
        ("allow_always", "allow_always", False),
        ("reject_always", "reject_always", False),
        ("allow_once", "no", False),
        ("allow_once", "allow_no", False),
        ("allow_once", "opt-1", False),
        ("allow_once", "1allow", False),
        ("reject_once", "yes", False),
        ("choose", "allow", False),
    ],
)
def test_an_id_is_text_only_where_it_says_its_own_kind(kind: str, option_id: str, *, matches: bool) -> None:
    offered = offer(
        (option(kind, "Eins", option_id), option("allow_once", "Zwei", "x"), option("reject_once", "Drei", "y")),
        withhold=Withhold.NOTHING,
    )
    assert offered[0].id_matches is matches


def test_two_ids_that_fold_alike_match_neither() -> None:
    offered = offer(
        (option("allow_once", "Eins", "allow"), option("allow_once", "Zwei", "Allow"), NO), withhold=Withhold.NOTHING
    )
    assert selected("allow", offered) == []


def test_the_bot_adds_its_own_rejection_last_where_none_was_offered() -> None:
    offered = offer(
        (option("allow_once", "Reject", "reject"), option("choose", "Reject", "c")), withhold=Withhold.NOTHING
    )
    assert offered[-1].option.option_id == BOTS_OWN_REJECT
    assert offered[-1].printed == "Reject"
    assert selected("Reject", offered) == [offered[-1].option]


@pytest.mark.parametrize("options", [(option("choose", "A", "a"),), (option("reject_once", "No"),), FOUR])
def test_the_bot_adds_no_rejection_where_nothing_approves_or_one_rejects(options: tuple[Option, ...]) -> None:
    assert all(each.option.option_id != BOTS_OWN_REJECT for each in offer(options, withhold=Withhold.NOTHING))


def test_withheld_options_are_left_out_and_positions_count_the_rest() -> None:
    assert shown(*FOUR, withhold=Withhold.ALWAYS) == ["Allow once", "Reject", "Never allow"]
    assert shown(*FOUR, withhold=Withhold.APPROVING) == ["Reject", "Never allow"]
    assert [each.position for each in offer(FOUR, withhold=Withhold.APPROVING)] == [1, 2]


def test_choose_beside_other_meanings_is_guarded_as_approving_always() -> None:
    assert shown(*FOUR, option("choose", "Other"), withhold=Withhold.ALWAYS) == ["Allow once", "Reject", "Never allow"]
    assert shown(option("choose", "Other"), NO, withhold=Withhold.ALWAYS) == ["Reject"]


def test_choose_alone_is_guarded_as_approving_once() -> None:
    alone = (option("choose", "A", "a"), option("choose", "B", "b"))
    assert shown(*alone, withhold=Withhold.ALWAYS) == ["A", "B"]
    with pytest.raises(errors.TooLarge):
        offer(alone, withhold=Withhold.APPROVING)


@pytest.mark.parametrize("kind", ["allow_always", "approve_unscoped"])
def test_nothing_of_the_harness_left_to_offer_is_too_large(kind: str) -> None:
    with pytest.raises(errors.TooLarge):
        offer((option(kind, "Go"),), withhold=Withhold.ALWAYS)


def test_a_printed_label_over_the_limit_is_refused_not_cut() -> None:
    assert shown(option("choose", "x" * MAX_PRINTED))
    with pytest.raises(errors.TooLarge):
        offer((option("choose", "x" * (MAX_PRINTED + 1)),), withhold=Withhold.NOTHING)
    with pytest.raises(errors.TooLarge):
        offer((option("allow_once", "x" * (MAX_PRINTED - 5)),), withhold=Withhold.NOTHING)


@pytest.mark.parametrize(
    ("options", "loc"),
    [
        ((), ("options",)),
        (tuple(option("choose", f"L{n}", f"o{n}") for n in range(MAX_OPTIONS + 1)), ("options",)),
        (tuple(option("allow_once", f"L{n}", f"o{n}") for n in range(MAX_OPTIONS)), ("options",)),
        ((option("choose", "a", "x"), option("choose", "b", "x")), ("options", 1, "id")),
        ((option("choose", "a", "agentpod.reject"),), ("options", 0, "id")),
    ],
)
def test_a_list_that_no_question_can_have_is_refused_with_its_field(
    options: tuple[Option, ...], loc: tuple[str | int, ...]
) -> None:
    with pytest.raises(errors.Invalid) as refused:
        offer(options, withhold=Withhold.NOTHING)
    assert refused.value.loc == loc


WORDS = st.sampled_from(
    [
        *REJECTING,
        *APPROVING,
        "Reject",
        "Allow once",
        "2",
        "1",
        "\u0661",
        "+1",
        "not",
        "session",
        "(a)",
        "\u2013",
        "\u200b",
        "é",
    ]
)
LABELS = st.lists(WORDS | st.text(max_size=6), max_size=4).map(" ".join)
IDS = st.sampled_from(["a", "b", "allow", "reject", "no", "2", "Allow once", "deny_1"]) | st.text(
    min_size=1, max_size=5
)
REQUESTS = st.lists(
    st.builds(option, st.sampled_from(list(SHAPES)), LABELS, IDS),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.option_id,
).map(tuple)


@given(REQUESTS, st.sampled_from(Withhold), LABELS)
def test_no_text_selects_what_it_does_not_plainly_name(
    options: tuple[Option, ...], withhold: Withhold, text: str
) -> None:
    assume(not any(each.option_id.startswith("agentpod.") for each in options))
    try:
        offered = offer(options, withhold=withhold)
    except errors.TooLarge:
        return
    found = selected(text, offered)
    assert len(found) <= 1, "no two options may share a text"
    for each in offered:
        if found == [each.option]:
            plain = {folded(each.printed), folded(each.option.label), folded(each.option.option_id)}
            assert position(trimmed(text)) == each.position or folded(text) in plain
    for word in REJECTING:
        assert all(one.meaning is Meaning.REJECT or only_choose(options) for one in selected(word, offered))
    for word in APPROVING:
        assert all(one.meaning is Meaning.APPROVE or only_choose(options) for one in selected(word, offered))


def only_choose(options: tuple[Option, ...]) -> bool:
    return all(each.meaning is Meaning.CHOOSE for each in options)


@given(REQUESTS, st.sampled_from(Withhold))
def test_every_offered_option_has_its_own_number_and_nothing_withheld_is_there(
    options: tuple[Option, ...], withhold: Withhold
) -> None:
    try:
        offered = offer(options, withhold=withhold)
    except errors.TooLarge:
        return
    assert [each.position for each in offered] == list(range(1, len(offered) + 1))
    for each in offered:
        assert "\n" not in each.printed
        assert selected(str(each.position), offered) == [each.option]
        assert not any(is_numeric(name) or not name for name in each.names)
        if withhold is not Withhold.NOTHING:
            assert guarded_scope(each.option, options) is not Scope.ALWAYS
        if withhold is Withhold.APPROVING:
            assert guarded_scope(each.option, options) is None


@given(REQUESTS)
def test_every_approving_option_says_on_its_line_that_it_approves(options: tuple[Option, ...]) -> None:
    try:
        offered = offer(options, withhold=Withhold.NOTHING)
    except errors.TooLarge:
        return
    approving = {word for kind in KINDS if kind.meaning is Meaning.APPROVE for word in kind.own_words}
    for each in offered:
        if each.option.meaning is Meaning.APPROVE:
            says = "(allows " in each.printed or "the agent calls it" in each.printed
            assert says or not approving.isdisjoint(words(each.printed))
