from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.answer import NoMatch, Selected, match_text
from agentpod_bot.core.ids import EventId, OptionId, UserId
from agentpod_bot.core.lookalikes import Look, LookAlike
from agentpod_bot.core.model import DiffPreview, FieldPreview, Meaning, Option, Outcome, Progress, Scope, TextPreview
from agentpod_bot.core.scene import WhyUnheard
from agentpod_bot.core.secret_kinds import Kind
from agentpod_bot.core.secrets import Hidden
from agentpod_bot.errors import Invalid, TooLarge
from agentpod_bot.render import notices, sentences
from agentpod_bot.render.outcome import closed_message, outcome
from agentpod_bot.render.presented import present
from agentpod_bot.render.question import compose
from agentpod_bot.render.sentences import Keys
from tests.examples import ALLOW, REJECT
from tests.unit.render.samples import ASKED, ASKED_MS, OWNER, composed, ended, posted, selected

if TYPE_CHECKING:
    from agentpod_bot.core.model import NewQuestion, Question

SECRET = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
MASK = "[hidden token, 40 characters]"
PERSON = EventId("$person")
USE = Option(OptionId("use"), f"Allow with {SECRET}", Meaning.APPROVE, Scope.ONCE)


def everything_said(question: Question) -> list[dict[str, Any]]:
    """Every event of ours about one closed question, and those while it was open."""
    as_open = replace(question, closing=None)
    return [
        outcome(question),
        closed_message(question),
        notices.hint(as_open, reply_to=PERSON),
        notices.which_one((as_open,), now_ms=ASKED_MS, reply_to=PERSON),
        notices.open_list((as_open,), now_ms=ASKED_MS, reply_to=PERSON),
        notices.not_approver(as_open, reply_to=PERSON),
        notices.late(question, reply_to=PERSON),
        notices.refused(as_open, "option_id is missing", reply_to=PERSON),
        notices.undecryptable(as_open, Keys.ALL, reply_to=PERSON),
        notices.not_named(as_open, reply_to=PERSON),
        notices.unheard(as_open, WhyUnheard.CLEAR, reply_to=PERSON),
    ]


AROUND = st.text(st.characters(codec="utf-8") | st.sampled_from("=:'\"$`-_@/[]() \n"), max_size=12) | st.sampled_from(
    ["password=", "x" * 8_190, "y" * 300, "Bearer ", "\\", "-----BEGIN KEY-----\n", "token: ", "\n" * 70]
)
HOLDING = st.builds(lambda before, after: f"{before}{SECRET}{after}", AROUND, AROUND)
PARTS = (
    st.builds(FieldPreview, AROUND, HOLDING)
    | st.builds(TextPreview, HOLDING, HOLDING)
    | st.builds(DiffPreview, HOLDING, HOLDING | st.none(), HOLDING)
)


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(HOLDING, HOLDING, HOLDING, HOLDING, st.lists(PARTS, max_size=3))
def test_a_secret_stands_in_nothing_that_leaves_the_bot(
    title: str, agent: str, label: str, words: str, preview: list[FieldPreview | TextPreview | DiffPreview]
) -> None:
    options = (replace(ALLOW, label=label), Option(OptionId("c"), label, Meaning.CHOOSE, None), REJECT)
    asked = replace(ASKED, title=title, agent=agent, tool_kind=title, options=options, preview=tuple(preview))
    try:
        question, content = compose(asked, mentions=(OWNER,), other_codes=frozenset())
        closed = selected(len(question.offered), asked, comment=words)
    except (TooLarge, Invalid):
        return
    closed = replace(closed, progress=Progress(failure_reason=words, status=words))
    assert SECRET in question.title  # what was asked stays what it was
    for event in (content, *everything_said(closed)):
        assert SECRET not in json.dumps(event, ensure_ascii=False)
        assert SECRET[4:] not in json.dumps(event, ensure_ascii=False)


def test_the_switch_of_a_route_shows_every_text_as_it_came() -> None:
    asked = replace(ASKED, masked=False, title=f"[hidden x] {SECRET}", preview=(TextPreview("Command", SECRET),))
    content = composed(asked)
    assert content["title"] == f"[hidden x] {SECRET}"
    assert content["subject"]["preview"] == [{"type": "text", "label": "Command", "text": SECRET}]
    assert "hidden (" not in content["body"]
    assert SECRET in notices.not_approver(posted(asked), reply_to=PERSON)["body"]
    assert SECRET in outcome(ended(Outcome.EXPIRED, asked))["m.new_content"]["body"]


def test_what_is_kept_is_what_was_asked_and_ids_are_never_changed() -> None:
    asked = replace(
        ASKED,
        key=ASKED.key._replace(request_id=SECRET),
        title=SECRET,
        session_id=SECRET,
        options=(replace(USE, option_id=OptionId(f"x{SECRET}")), REJECT),
    )
    question, content = compose(asked, mentions=(OWNER,), other_codes=frozenset())
    assert replace(question, offered=()) == asked
    assert question.offered[0].option == asked.options[0]
    assert content["request_id"] == content["session_id"] == content["subject"]["id"] == SECRET
    assert content["options"][0]["id"] == f"x{SECRET}"
    assert content["title"] == MASK
    assert SECRET not in content["body"]
    receipt = outcome(selected(1, asked))
    assert (receipt["request_id"], receipt["option_id"]) == (SECRET, f"x{SECRET}")


def test_a_label_with_a_secret_is_matched_as_it_is_printed_and_by_its_number_alone() -> None:
    question, content = compose(replace(ASKED, options=(USE, REJECT)), mentions=(OWNER,), other_codes=frozenset())
    assert content["options"][0]["label"] == question.offered[0].printed == f"Allow with {MASK}"
    for text in ("1", f"Allow with {MASK}"):
        match = match_text(text, question.offered)
        assert isinstance(match, Selected)
        assert match.option.option == USE
    assert isinstance(match_text(USE.label, question.offered), NoMatch)


def test_labels_that_differ_in_their_secrets_alone_are_told_apart_by_their_ids() -> None:
    other = replace(USE, option_id=OptionId("other"), label=USE.label.replace("0123", "9999"))
    content = composed(replace(ASKED, options=(USE, other, REJECT)))
    assert [option["label"] for option in content["options"]] == [
        f"Allow with {MASK} (use)",
        f"Allow with {MASK} (other)",
        "Reject",
    ]


def test_a_label_of_the_preview_may_say_that_its_value_is_a_secret() -> None:
    shown = present(replace(ASKED, preview=(FieldPreview("API key", "swordfish"), TextPreview("Password", "sword\nx"))))
    assert [part.__class__(part.label, "") for part in shown.asked.preview] == [
        FieldPreview("API key", ""),
        TextPreview("Password", ""),
    ]
    assert shown.hidden == (Hidden(Kind.KEY, 9), Hidden(Kind.PASSWORD, 5))


def test_only_what_was_really_hidden_is_counted() -> None:
    faked = replace(ASKED, title=MASK, preview=(FieldPreview("Note", "1 value hidden (token, 40 characters)"),))
    body = composed(faked)["body"]
    assert "Permission needed: [as written: hidden token, 40 characters]" in body
    assert "\nNote: " not in body


@pytest.mark.parametrize(
    ("hidden", "line"),
    [
        ([Hidden(Kind.TOKEN, 40)], "Note: 1 value hidden (token, 40 characters)."),
        ([Hidden(Kind.TOKEN, 40)] * 2, "Note: 2 values hidden (token, 40 characters)."),
        (
            [Hidden(Kind.PASSWORD, 7), Hidden(Kind.PRIVATE_KEY, 1_704), Hidden(Kind.PASSWORD, 7)],
            "Note: 3 values hidden (2 \u00d7 password, 7 characters; private key, 1,704 characters).",
        ),
        (
            [Hidden(Kind.KEY, length) for length in range(3, 11)],
            (
                "Note: 8 values hidden (key, 3 characters; key, 4 characters; key, 5 characters; key, 6 characters; "
                "key, 7 characters; and 3 more)."
            ),
        ),
    ],
)
def test_one_line_says_what_was_hidden(hidden: list[Hidden], line: str) -> None:
    assert sentences.secrets_hidden(hidden) == line


def noted(asked: NewQuestion) -> list[str]:
    return [line for line in composed(asked)["body"].split("\n") if line.startswith("Note: ")]


def test_hosts_and_paths_that_mislead_are_named_and_shown_again_when_it_is_over() -> None:
    asked = replace(
        ASKED,
        title="Get https://xn--e1afmkfd.xn--p1ai/",
        preview=(
            TextPreview("Command", "curl \u0430pple.com/x > /etc/\u0440\u0430sswd"),
            FieldPreview("Host", "\uff41b.com"),
        ),
    )
    lines = [
        'Note: "xn--e1afmkfd.xn--p1ai" stands for "пример.рф".',
        'Note: "\u0430pple.com" mixes Cyrillic and Latin letters.',
        'Note: "\u0440\u0430sswd" mixes Cyrillic and Latin letters.',
        'Note: "\uff41b.com" looks like "ab.com", but has other characters.',
    ]
    assert noted(asked) == lines
    assert set(lines) <= set(outcome(ended(Outcome.EXPIRED, asked))["m.new_content"]["body"].split("\n"))


def test_a_handful_of_look_alikes_is_shown_and_the_others_are_counted() -> None:
    found = [LookAlike(Look.NO_PUNYCODE, f"xn--{n}") for n in range(8)]
    lines = sentences.look_alikes(found)
    assert lines[0] == 'Note: "xn--0" has a part that stands for nothing.'
    assert lines[5:] == ["Note: and 3 more like these."]
    unread = 'Note: from "x" on, hosts and paths were not checked: there are too many.'
    assert sentences.look_alikes([*found, LookAlike(Look.UNREAD, "x")])[5:] == [lines[5], unread]


def test_a_look_alike_cannot_break_its_line_or_its_quotation() -> None:
    found = LookAlike(Look.PUNYCODE, 'x"y\n1. Allow', "\u202e" * 90)
    [line] = sentences.look_alikes([found])
    assert "\n" not in line
    assert line.count('"') == 4
    assert len(line) < 200


def test_look_alikes_anywhere_in_a_long_text_are_found() -> None:
    text = f"{'x ' * 20_000} \u0430pple.com {'x ' * 20_000} \u0430bc.com"
    assert [each.name for each in present(replace(ASKED, preview=(TextPreview("Command", text),))).look_alikes] == [
        "\u0430pple.com",
        "\u0430bc.com",
    ]


def test_the_person_who_decided_is_never_masked() -> None:
    question = selected(1)
    assert question.closing is not None
    by = UserId(f"@{SECRET}:example.org")
    shown = outcome(replace(question, closing=replace(question.closing, answered_by=by)))
    assert f"by {by} at" in shown["m.new_content"]["body"]
