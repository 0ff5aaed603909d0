from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Scope
from agentpod_bot.harness.claude_code_suggestions import MOST, grants_in, notes_on
from agentpod_bot.harness.options import allow_once, reject_once

SESSION = {"destination": "session"}
RULES = {"type": "addRules", "behavior": "allow", **SESSION}
NPM = {"toolName": "Bash", "ruleContent": "npm test:*"}


def said(entry: Any) -> str | None:
    """What one suggestion's option says in full; None where there is no option."""
    grants = grants_in([entry])
    return grants[0].said if grants else None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({**RULES, "rules": [NPM]}, "Always allow for this session: Bash commands that match `npm test:*`"),
        (
            {**RULES, "rules": [NPM], "destination": "localSettings"},
            "Always allow in this project on this machine: Bash commands that match `npm test:*`",
        ),
        (
            {**RULES, "rules": [NPM], "destination": "projectSettings"},
            "Always allow for everybody in this project: Bash commands that match `npm test:*`",
        ),
        (
            {**RULES, "rules": [NPM], "destination": "userSettings"},
            "Always allow in all projects of this user: Bash commands that match `npm test:*`",
        ),
        (
            {**RULES, "rules": [NPM], "destination": "elsewhere"},
            "Always allow as kept in `elsewhere`: Bash commands that match `npm test:*`",
        ),
        ({**RULES, "rules": [{"toolName": "Bash"}]}, "Always allow for this session: every use of `Bash`"),
        (
            {**RULES, "rules": [{"toolName": "Bash", "ruleContent": None}]},
            "Always allow for this session: every use of `Bash`",
        ),
        (
            {**RULES, "rules": [{"toolName": "A"}, {"toolName": "Read", "ruleContent": "//a/**"}, {"toolName": "G"}]},
            "Always allow for this session: every use of `A`, uses of `Read` that match `//a/**` and every use of `G`",
        ),
        (
            {**RULES, "rules": [NPM, {"toolName": "Bash", "ruleContent": "ls"}, {"toolName": "Bash"}]},
            "Always allow for this session: Bash commands that match `npm test:*`, `ls` and every use of `Bash`",
        ),
        (
            {**RULES, "type": "replaceRules", "rules": [{"toolName": "Glob"}]},
            "Always allow for this session, in place of all rules that allow something now: every use of `Glob`",
        ),
        (
            {"type": "setMode", "mode": "acceptEdits", **SESSION},
            (
                "Always allow for this session: edits of files, and commands that make, move, copy, change or "
                "delete them (mode `acceptEdits`)"
            ),
        ),
        (
            {"type": "setMode", "mode": "bypassPermissions", **SESSION},
            "Always allow for this session: everything (mode `bypassPermissions`)",
        ),
        (
            {"type": "setMode", "mode": "default", **SESSION},
            "Always allow for this session: what the permission mode `default` allows",
        ),
        (
            {"type": "addDirectories", "directories": ["/a", "/b"], **SESSION},
            "Always allow for this session: work in `/a` and `/b`",
        ),
    ],
)
def test_a_suggestion_says_what_it_will_allow_and_where_that_is_kept(entry: Any, expected: str) -> None:
    (grant,) = grants_in([entry])
    assert grant.said == expected
    assert grant.entry is entry
    assert (grant.option.meaning, grant.option.scope) == (Meaning.APPROVE, Scope.ALWAYS)


@pytest.mark.parametrize(
    "entry",
    [
        {**RULES, "rules": [NPM], "behavior": "deny"},
        {**RULES, "rules": [NPM], "behavior": "ask"},
        {**RULES, "rules": [NPM], "behavior": "Allow"},
        {**RULES, "rules": [NPM], "type": "removeRules"},
        {"type": "removeDirectories", "directories": ["/a"], **SESSION},
    ],
)
def test_a_suggestion_that_allows_nothing_is_no_option(entry: Any) -> None:
    assert said(entry) is None


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "addRules",
        [],
        {},
        {"type": "addRules"},
        {**RULES, "rules": []},
        {**RULES, "rules": "Bash"},
        {**RULES, "rules": [NPM, None]},
        {**RULES, "rules": [NPM, {"toolName": ""}]},
        {**RULES, "rules": [{"toolName": "Bash", "ruleContent": ""}]},
        {**RULES, "rules": [{"toolName": "Bash", "ruleContent": ["npm"]}]},
        {**RULES, "rules": [{**NPM, "except": "rm"}]},
        {**RULES, "rules": [NPM], "and": "more"},
        {**RULES, "rules": [NPM], "destination": None},
        {**RULES, "rules": [NPM], "destination": " "},
        {"type": "setMode", "mode": "", **SESSION},
        {"type": "setMode", "mode": 1, **SESSION},
        {"type": "setMode", "mode": "plan", "more": 1, **SESSION},
        {"type": "addDirectories", "directories": [], **SESSION},
        {"type": "addDirectories", "directories": ["/a", 1], **SESSION},
        {"type": "addEverything", **SESSION},
    ],
)
def test_a_suggestion_that_is_not_understood_to_its_last_member_is_no_option(entry: Any) -> None:
    """It would go back whole, and nobody could have read all of it."""
    assert said(entry) is None


def test_an_option_says_by_its_id_which_suggestion_it_is() -> None:
    entries = [{**RULES, "rules": [NPM], "behavior": "deny"}, {**RULES, "rules": [NPM]}, {**RULES, "rules": [NPM]}]
    assert [grant.option.option_id for grant in grants_in(entries)] == ["suggestion:1", "suggestion:2"]


@pytest.mark.parametrize("suggestions", [None, {}, "addRules", 7])
def test_what_is_no_list_holds_no_suggestions(suggestions: Any) -> None:
    assert grants_in(suggestions) == ()
    assert notes_on(suggestions, ()) == ()


def test_more_suggestions_than_fit_leave_the_rejection_in() -> None:
    entries = [{**RULES, "rules": [{"toolName": f"mcp__x__{number}"}]} for number in range(30)]
    grants = grants_in(entries)
    assert len(grants) == MOST
    offered = offer((allow_once(), *(grant.option for grant in grants), reject_once()), withhold=Withhold.NOTHING)
    assert len(offered) == 20
    assert offered[-1].option == reject_once()
    assert notes_on(entries, grants) == (FieldPreview("Not offered here", "12 more of the harness's suggestions"),)


def test_a_long_label_is_cut_and_stands_in_full_in_the_preview() -> None:
    entry = {**RULES, "rules": [{"toolName": "Bash", "ruleContent": "x" * 500}]}
    (grant,) = grants_in([entry])
    assert len(grant.option.label) == 150
    assert grant.option.label.endswith("…")
    assert notes_on([entry], (grant,)) == (FieldPreview("Option 2 in full", grant.said),)
    assert "x" * 500 in grant.said


def test_a_pattern_of_signs_that_are_shown_escaped_can_be_printed() -> None:
    entries = [{**RULES, "rules": [{"toolName": "Bash", "ruleContent": "\u202e\n" * 40}]}] * 2
    options = (allow_once(), *(grant.option for grant in grants_in(entries)), reject_once())
    assert [each.printed[:12] for each in offer(options, withhold=Withhold.NOTHING)][1:3] == ["Always allow"] * 2


def test_a_rule_that_holds_a_rejecting_word_is_printed_as_what_it_is() -> None:
    """The label says "no" in a quotation, which a person could type to refuse."""
    (grant,) = grants_in([{**RULES, "rules": [{"toolName": "Bash", "ruleContent": "git commit -m no"}]}])
    printed = offer((allow_once(), grant.option, reject_once()), withhold=Withhold.NOTHING)[1].printed
    assert printed.startswith('Always allow – the agent calls it "Always allow for this session: Bash')


def test_how_far_an_option_reaches_is_said_before_anything_that_an_agent_wrote() -> None:
    pattern = "x` for this session only"
    long = {**RULES, "rules": [{"toolName": "Bash", "ruleContent": pattern + " " * 300}], "destination": "userSettings"}
    (grant,) = grants_in([long])
    assert grant.option.label.startswith("Always allow in all projects of this user: Bash commands that match `x`")
