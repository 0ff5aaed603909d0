from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nh3
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.envelope import Envelope
from agentpod_bot.core.ids import Code, OptionId, SessionId, UserId
from agentpod_bot.core.model import (
    Attachment,
    DiffPreview,
    FieldPreview,
    Meaning,
    NewQuestion,
    Option,
    Scope,
    TextPreview,
)
from agentpod_bot.errors import Invalid, TooLarge
from agentpod_bot.render.content import MAX_CARD_BYTES, MAX_EVENT_BYTES, card_size, event_size, size
from agentpod_bot.render.question import compose
from tests.examples import ALLOW, ALWAYS, FOUR, NEVER, REJECT
from tests.unit.core.test_text import hides
from tests.unit.render.samples import ASKED, MINUTE, OWNER, composed, golden

CASES = Path(__file__).resolve().parents[4] / "shared" / "spec" / "permission.v2.cases.json"
NUMBERED = re.compile(r"^\d+\.", re.MULTILINE)
LAST = "Reply with the number, or the option's name."
# https://spec.matrix.org/v1.16/client-server-api/#mroommessage-msgtypes
MATRIX_TAGS = frozenset(
    """del h1 h2 h3 h4 h5 h6 blockquote p a ul ol sup sub li b i u strong em s code hr br div table thead tbody tr th td
    caption pre span img details summary""".split()  # noqa: SIM905 -- 38 quoted names on lines of their own hide the list
)
LANGUAGE_CLASSES = {"code": {"language-python", "language-json", "language-diff"}}
TOKEN = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
LONG = replace(ASKED, preview=(TextPreview("Command", "echo ok;" + "a" * 5000 + "; rm -rf ~/work"),))
CHANGED = DiffPreview("apps/hub/main.py", "import os\n\nos.nice(1)\r\n", "import os\n\nos.nice(19)\r\nprint('<b>')")


def numbered(body: str) -> int:
    return len(NUMBERED.findall(body))


def labels(content: dict[str, Any]) -> list[str]:
    return [option["label"] for option in content["options"]]


def is_clean(formatted_body: str) -> bool:
    """Whether a client that follows Matrix's list of tags shows the whole of it."""
    cleaned = nh3.clean(
        formatted_body, tags=set(MATRIX_TAGS), attributes={}, allowed_classes=LANGUAGE_CLASSES, link_rel=None
    )
    return cleaned == formatted_body


class Codes(HTMLParser):
    """Collects what stands in `<code>`, as a browser shows it and a reader would copy it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self._open.append(tag)
        if tag == "code":
            self.texts.append("")
        assert not attrs or tag == "code"

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "code" and "pre" not in self._open:
            self.texts[-1] = self.texts[-1].strip(" \t\n\f\r")

    def handle_data(self, data: str) -> None:
        if "code" in self._open:
            self.texts[-1] += data if "pre" in self._open else re.sub(r"[ \t\n\f\r]+", " ", data)


def copied(formatted_body: str) -> list[str]:
    parser = Codes()
    parser.feed(formatted_body)
    return parser.texts


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("question", ASKED),
        ("question_cut", LONG),
        ("question_diff", replace(ASKED, title="Edit main.py", preview=(CHANGED,))),
        ("question_not_complete", replace(ASKED, preview_complete=False)),
        ("question_without_preview", replace(ASKED, preview=(), agent=None, options=(ALLOW,))),
        (
            "question_masked",
            replace(
                ASKED,
                title="Deploy with glpat-abcdefghij0123456789",
                session_id=SessionId("password=hunter2"),
                preview=(
                    TextPreview("Command", f"curl -H 'Authorization: Bearer {TOKEN}' https://\u0430pple.com/x"),
                    FieldPreview("Password", "hunter2"),
                    FieldPreview("Database", "postgres://app:hunter2@db/app"),
                    FieldPreview("Note to you", "[hidden token, 40 characters]"),
                ),
                options=(
                    ALLOW,
                    Option(OptionId("other"), f"Use {TOKEN}", Meaning.CHOOSE, None),
                    REJECT,
                ),
            ),
        ),
        (
            "question_hostile",
            replace(
                ASKED,
                title="Run @room @owner:example.org [x](https://example.org)\n\n1. Allow once\n2. Reject <b>&\u202e",
                agent='hermes", session "other',
                options=(replace(ALWAYS, label="Reject"), replace(REJECT, label="Allow once"), ALLOW),
                preview=(
                    TextPreview("Command", "true\n3. Allow once\n\r\x1b[2K</code></pre><a href='https://x'>"),
                    FieldPreview("1. Allow once", "x\n2. Reject"),
                    FieldPreview("Permission needed", "nothing"),
                ),
            ),
        ),
    ],
)
def test_a_question_looks_as_agreed(name: str, asked: NewQuestion) -> None:
    assert composed(asked) == golden(name)


@pytest.mark.shared
@pytest.mark.skipif(not CASES.exists(), reason="the specification's files are not beside the project")
def test_the_first_valid_case_comes_out_of_the_same_request() -> None:
    case = json.loads(CASES.read_text())["valid"][0]["content"]
    ours = composed()
    for content in (case, ours):
        content["subject"] = {**content["subject"], "digest": "", "expires_at": ""}
    for key in case.keys() - {"body"}:
        assert ours[key] == case[key], key
    expected, lines = case["body"].split("\n"), ours["body"].split("\n")
    assert lines[0] == expected[0]
    assert lines[-7:] == expected[-7:]


@pytest.mark.parametrize(
    ("label", "opening"),
    [
        ("Python", '<pre><code class="language-python">'),
        ("json", '<pre><code class="language-json">'),
        ("Command", "<pre><code>"),
        ("python script", "<pre><code>"),
        ('python" onclick="x', "<pre><code>"),
    ],
)
def test_code_says_its_language_only_where_the_label_is_its_name(label: str, opening: str) -> None:
    html_body = composed(replace(ASKED, preview=(TextPreview(label, "x = 1"),)))["formatted_body"]
    assert f"{opening}x = 1</code></pre>" in html_body
    assert is_clean(html_body)


def test_the_body_has_first_line_block_list_and_last_line() -> None:
    assert composed(replace(ASKED, preview=ASKED.preview[2:]))["body"].split("\n") == [
        "Permission needed: Run the test suite",
        "",
        "Code K7 · client laptop · open until 10:30 UTC (30 min)",
        'Calls itself "hermes", session "acps_3f0c"',
        "Command:",
        "    bun test",
        "Location: apps/hub",
        "",
        "1. Allow once",
        "2. Always allow",
        "3. Reject",
        "4. Never allow",
        "",
        LAST,
    ]


def test_the_question_pings_exactly_the_approvers() -> None:
    approvers = (UserId("@owner:example.org"), UserId("@second:example.org"))
    _, content = compose(
        replace(ASKED, title="@room @mallory:example.org"), mentions=approvers, other_codes=frozenset()
    )
    assert content["m.mentions"] == {"user_ids": ["@owner:example.org", "@second:example.org"]}


def test_the_deadline_shows_its_day_where_that_is_another() -> None:
    asked = replace(ASKED, expires_at_ms=ASKED.created_at_ms + 24 * 60 * MINUTE)
    assert "open until 2026-11-08 10:00 UTC (1 d)" in composed(asked)["body"]


def test_what_the_bot_cuts_can_not_be_approved_from_the_room() -> None:
    question, content = compose(LONG, mentions=(), other_codes=frozenset())
    assert labels(content) == [offered.printed for offered in question.offered] == ["Reject", "Never allow"]
    assert content["subject"]["preview_complete"] is False
    for said in ("    echo ok;aaa", "; rm -rf ~/work\n", "characters hidden", "nothing can be approved from this room"):
        assert said in content["body"]


@pytest.mark.parametrize("options", [FOUR, (ALLOW, Option(OptionId("c"), "C", Meaning.CHOOSE, None))])
def test_a_file_with_the_full_text_leaves_what_reaches_no_further_than_this_once(options: tuple[Option, ...]) -> None:
    wanted = replace(LONG, options=options, attachment=Attachment.WANTED)
    question, content = compose(wanted, mentions=(), other_codes=frozenset())
    assert question.attachment is Attachment.WANTED
    assert content["subject"]["preview_complete"] is False
    assert "allow_once" in {option["id"] for option in content["options"]}
    for option in content["options"]:
        assert (option["meaning"], option.get("scope")) != ("approve", "always")
        assert option["meaning"] != "choose"
    assert "follows as a file" in content["body"]


def test_where_all_is_shown_no_file_is_wanted() -> None:
    question, content = compose(replace(ASKED, attachment=Attachment.WANTED), mentions=(), other_codes=frozenset())
    assert question.attachment is Attachment.NONE
    assert "file" not in content["body"]


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "x" * 301},
        {"preview": (TextPreview("Command", "x\n" * 60),)},
        {"preview": (FieldPreview("Command", "x" * 4_000),)},
        {"preview": (FieldPreview("l" * 61, "x"),)},
        {"preview": tuple(FieldPreview(f"f{n}", "x") for n in range(61))},
        {"preview": (TextPreview("Command", "\u4e00" * 3_000),)},  # fits the body, but not what readers draw
        {"preview": (TextPreview("Command", " " * 9_000),)},
    ],
)
def test_any_cut_of_title_or_preview_withholds_every_approving_option(changes: dict[str, Any]) -> None:
    content = composed(replace(ASKED, options=(*FOUR, Option(OptionId("c"), "C", Meaning.CHOOSE, None)), **changes))
    assert {option["meaning"] for option in content["options"]} == {"reject"}
    assert content["subject"]["preview_complete"] is False
    assert "nothing can be approved" in content["body"]


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "x" * 300},
        {"preview": (TextPreview("Command", "\n".join("x" * 59)),)},
        {"preview": (FieldPreview("Command", "x" * 3_990),)},
        {"preview": tuple(FieldPreview(f"f{n}", "x") for n in range(60))},
    ],
)
def test_what_just_fits_is_shown_whole_and_offered_whole(changes: dict[str, Any]) -> None:
    content = composed(replace(ASKED, **changes))
    assert labels(content) == ["Allow once", "Always allow", "Reject", "Never allow"]
    assert content["subject"]["preview_complete"] is True


def test_what_only_the_harness_calls_incomplete_withholds_the_standing_options() -> None:
    content = composed(replace(ASKED, preview_complete=False))
    assert labels(content) == ["Allow once", "Reject", "Never allow"]
    assert content["subject"]["preview_complete"] is False
    assert "the agent says that this is not all" in content["body"]


def test_a_question_without_preview_says_so() -> None:
    assert "the agent did not say what it will do" in composed(replace(ASKED, preview=()))["body"]


def test_another_open_questions_code_in_an_outside_text_is_pointed_out() -> None:
    codes = frozenset({Code("M3"), Code("P4")})
    body = composed(replace(ASKED, title="Same as m3: go"), other_codes=codes)["body"]
    assert "the agent's text holds M3" in body
    assert "P4" not in body


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        (FOUR, ["Allow once", "Always allow", "Reject", "Never allow"]),
        ((ALLOW,), ["Allow once", "Reject"]),
        (
            (*(replace(ALLOW, option_id=OptionId(f"a{n}"), label=f"Yes {n}") for n in range(5)), NEVER, REJECT),
            ["Yes 0", "Yes 1", "Yes 2", "Never allow"],
        ),
        (tuple(Option(OptionId(f"c{n}"), f"C{n}", Meaning.CHOOSE, None) for n in range(6)), ["C0", "C1", "C2", "C3"]),
    ],
)
def test_a_card_has_four_options_and_never_lacks_a_rejection(options: tuple[Option, ...], drawn: list[str]) -> None:
    card = composed(replace(ASKED, options=options))["dev.agentpod.permission"]
    assert [option["name"] for option in card["options"]] == drawn


def test_an_approval_without_scope_is_sent_as_one_for_always() -> None:
    content = composed(replace(ASKED, options=(replace(ALLOW, scope=None, label="Go"), REJECT)))
    assert content["options"][0] == {
        "id": "allow_once",
        "label": "Go (allows always)",
        "meaning": "approve",
        "scope": "always",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"options": tuple(Option(OptionId(f"{n:\U0001f600<200}"), "x", Meaning.CHOOSE, None) for n in range(20))},
        {"options": (ALLOW,), "title": "x" * 301},
        {"options": (replace(ALLOW, label="x" * 200),)},
        {"session_id": SessionId("\U0001f600" * 3_000)},
    ],
)
def test_what_does_not_fit_however_it_is_cut_is_too_large(changes: dict[str, Any]) -> None:
    with pytest.raises(TooLarge):
        composed(replace(ASKED, **changes))


def test_options_that_no_question_can_have_are_refused_with_their_field() -> None:
    with pytest.raises(Invalid) as refused:
        composed(replace(ASKED, options=(ALLOW, ALLOW)))
    assert refused.value.loc == ("options", 1, "id")


def test_text_copied_from_the_html_is_the_text_that_was_shown() -> None:
    text = "if a < b && c > d:\n\techo \"x\" 'y' `z` \u00a0 &amp; </code>\n\n    done"
    content = composed(replace(ASKED, preview=(TextPreview("Command", text),)))
    assert copied(content["formatted_body"]) == [text]
    assert content["subject"]["preview"] == [{"type": "text", "label": "Command", "text": text}]


@pytest.mark.parametrize(
    ("text", "around"),
    [
        ("git commit -m " + "x" * 67, "blockquote"),
        ("x" * 81, "blockquote"),
        ("x" * 80, "pre"),
        ("x" * 90 + "\ny", "pre"),
        ("x" * 90 + "  y", "pre"),
        ("x" * 90 + "\ty", "pre"),
        (" " + "x" * 90, "pre"),
        ("x" * 90 + " ", "pre"),
        ("x" * 90 + " \u00a0 y", "blockquote"),
    ],
)
def test_a_long_line_wraps_where_nothing_of_it_is_lost(text: str, around: str) -> None:
    """Code in `<pre>` goes on to the right of a phone's screen; code without it has only single blanks."""
    html_body = composed(replace(ASKED, preview=(TextPreview("Command", text),)))["formatted_body"]
    assert f"<{around}><code>" in html_body
    assert f"</code></{around}>" in html_body
    assert copied(html_body) == [text]


def test_values_are_a_list_and_keep_their_blanks() -> None:
    values = (FieldPreview("Kind", "a  b"), FieldPreview("1.", "c <d>"), TextPreview("Command", "ls"))
    content = composed(replace(ASKED, preview=values))
    assert (
        '<ul><li>Kind: <pre><code>a  b</code></pre></li><li>"1.": c &lt;d&gt;</li></ul><p>Command:</p>'
        in content["formatted_body"]
    )
    assert 'Kind: a  b\n"1.": c <d>\nCommand:\n    ls' in content["body"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from(" \t\n\r<&")), min_size=1, max_size=3))
def test_text_copied_from_the_html_is_the_text_of_the_envelope(texts: list[str]) -> None:
    parts = tuple(TextPreview("Command", text * times) for text in texts for times in (1, 20))
    content = composed(replace(ASKED, preview=parts, masked=False))
    if content["subject"]["preview_complete"]:
        assert copied(content["formatted_body"]) == [part["text"] for part in content["subject"]["preview"]]


def test_body_and_html_say_the_same() -> None:
    content = composed()
    text = re.sub(r"<[^>]*>", "\n", content["formatted_body"])
    said = [line.strip() for line in html.unescape(text).split("\n") if line.strip()]
    assert said == [line.strip() for line in content["body"].split("\n") if line.strip()]


TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\n\r1.<&>\"' \u202e\u200d\u0301\u00a0@`[]"), max_size=40)
REPEATED = st.builds(
    lambda piece, times: piece * times, st.text(min_size=1, max_size=5), st.sampled_from([9, 900, 9_000])
)
LONG_TEXT = st.one_of(TEXT, TEXT, REPEATED)
PART = (
    st.builds(FieldPreview, TEXT, LONG_TEXT)
    | st.builds(TextPreview, TEXT, LONG_TEXT)
    | st.builds(DiffPreview, TEXT, LONG_TEXT | st.none(), LONG_TEXT)
)
PREVIEWS = st.lists(PART, max_size=4) | st.lists(PART, max_size=2).map(lambda few: few * 10)
OPTIONS = st.lists(
    st.builds(
        Option,
        st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=12).map(OptionId),
        TEXT,
        st.sampled_from(Meaning),
        st.sampled_from([None, *Scope]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda option: option.option_id,
)
QUESTIONS = st.builds(
    lambda title, agent, options, preview, complete: replace(
        ASKED, title=title, agent=agent, options=tuple(options), preview=tuple(preview), preview_complete=complete
    ),
    LONG_TEXT,
    st.none() | TEXT,
    OPTIONS,
    PREVIEWS,
    st.booleans(),
)


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(QUESTIONS)
def test_every_question_is_valid_bounded_clean_and_lists_exactly_what_it_offers(asked: NewQuestion) -> None:
    try:
        question, content = compose(asked, mentions=(UserId("@owner:example.org"),), other_codes=frozenset())
    except (TooLarge, Invalid):
        return
    Envelope.model_validate(content)
    assert card_size(content) <= MAX_CARD_BYTES
    assert size(content) < event_size(content) <= MAX_EVENT_BYTES
    body = content["body"]
    assert numbered(body) == len(question.offered) == len(content["options"])
    assert body.startswith("Permission needed: ")
    assert body.endswith(f"{question.offered[-1].printed}\n\n{LAST}")
    assert not [char for char in body if hides(char) and char not in "\n\t"]
    assert is_clean(content["formatted_body"])
    assert len(body.split("\n\n1. ")[0].split("\n")) <= 2 + 2 + 60 + 3 + 1 + 6
    shown_whole = content["subject"]["preview_complete"]
    for offered in question.offered:
        if not shown_whole and asked.preview_complete:  # the bot cut it
            assert offered.option.meaning is Meaning.REJECT
        if not shown_whole:
            assert (offered.option.meaning, offered.option.scope) != (Meaning.APPROVE, Scope.ALWAYS)


def test_what_needs_several_people_is_said_beforehand_in_the_block() -> None:
    content = compose(ASKED, mentions=(OWNER,), other_codes=frozenset(), quorum=2)[1]
    line = "Always allow needs 2 people."
    assert content["body"].replace(f"\n{line}", "") == composed()["body"]
    assert f"\n{line}\n\n1. Allow once" in content["body"]
    assert line in content["formatted_body"]
    assert {**content, "body": "", "formatted_body": ""} == {**composed(), "body": "", "formatted_body": ""}


@pytest.mark.parametrize("complete", [True, False])
def test_nothing_is_said_of_people_where_one_is_enough_for_all_that_is_offered(*, complete: bool) -> None:
    quorum = 1 if complete else 3  # what would need three is not offered then
    asked = replace(ASKED, preview_complete=complete)
    content = compose(asked, mentions=(OWNER,), other_codes=frozenset(), quorum=quorum)[1]
    assert "people" not in content["body"]


def test_where_an_approval_has_to_carry_the_code_that_is_said_beforehand() -> None:
    content = compose(ASKED, mentions=(OWNER,), other_codes=frozenset(), needs_code=True)[1]
    line = f"To approve this, write the code too: <number> {ASKED.code}. A reaction can only reject it."
    assert content["body"].replace(f"\n{line}", "") == composed()["body"]
    rejecting = tuple(option for option in ASKED.options if option.meaning is Meaning.REJECT)
    asked = replace(ASKED, options=rejecting)
    content = compose(asked, mentions=(OWNER,), other_codes=frozenset(), needs_code=True)[1]
    assert "To approve" not in content["body"]
