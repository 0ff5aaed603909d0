from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId, UserId
from agentpod_bot.core.labels import check
from agentpod_bot.core.model import (
    BOTS_OWN_REJECT,
    FieldPreview,
    Meaning,
    Option,
    Outcome,
    PermissionRequest,
    Scope,
    TextPreview,
)
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import gaia
from agentpod_bot.harness.adapter import Ask, End, Harness, Manner, WhenUnanswered
from agentpod_bot.harness.reasons import EXPIRED, unasked

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "harness" / "gaia"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
EXAMPLES = Path(__file__).resolve().parents[4] / "shared" / "spec" / "harness" / "gaia-examples.jsonl"
OWNER = UserId("@owner:example.org")
MANNER = Manner()
ID = "P-0123456789abcdef0123456789abcdef"
ALLOWED = f"{OWNER} allowed this in Matrix."
KEYS = {"approval_id", "request_fingerprint", "status", "outcome", "decided_by", "reason"}
UNDECIDED = [outcome for outcome in Outcome if outcome not in (Outcome.SELECTED, Outcome.EXPIRED)]

adapter: Harness = gaia


def golden(case: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))
    return content


def body(content: Any) -> bytes:
    return json.dumps(content).encode()


def call_of(case: str = "set_of_two", **changes: Any) -> bytes:
    """The case's request with some of its fields changed."""
    return body(golden(case)["call"] | changes)


def asked(sent: bytes) -> PermissionRequest:
    call = gaia.parse(sent, MANNER)
    assert isinstance(call, Ask)
    return call.request


def chosen(option: Option, reason: str) -> End:
    return End(Outcome.SELECTED, reason, option=option, by=OWNER)


def refused_at(sent: bytes) -> tuple[str | int, ...]:
    with pytest.raises(Invalid) as refused:
        gaia.parse(sent, MANNER)
    return refused.value.loc


def set_of(*commands: str, **changes: Any) -> bytes:
    """A set as Gaia makes it of one chained call: without type and fingerprints."""
    items = [{"command": command, "rationale": ""} for command in commands]
    return call_of("chain", command_set=items, commands=list(commands), exact_content="\n".join(commands), **changes)


@pytest.mark.parametrize("case", CASES)
def test_each_shape_of_a_request_is_asked_and_answered_in_gaias_words(case: str) -> None:
    known = golden(case)
    sent = body(known["call"])
    request = asked(sent)
    allow, reject = request.options
    assert (allow.label, reject.label) == ("Allow once", "Reject")
    ends = {
        "allow": chosen(allow, ALLOWED),
        "reject": chosen(reject, f"{OWNER} refused this in Matrix: use a branch"),
        "expired": End(Outcome.EXPIRED, EXPIRED),
        "cancelled": End(
            Outcome.CANCELLED, "The question was cancelled (the client cancelled it). Nothing was allowed."
        ),
    }
    assert {name: gaia.answer(sent, sent, end, MANNER) for name, end in ends.items()} == known["answers"]


@pytest.mark.parametrize("case", CASES)
def test_the_approvals_id_is_the_requests_and_its_runtime_may_come_back(case: str) -> None:
    call = golden(case)["call"]
    request = asked(body(call))
    assert request.request_id == call["approval_id"]
    assert request.hold is None
    assert (request.title, request.tool_kind) == (call["operation"], "execute")


def test_all_commands_are_shown_in_order_with_their_numbers_and_all_that_is_said_of_them() -> None:
    items = golden("set_of_two")["call"]["command_set"]
    items[1] |= {"rationale": "The new image is there"}
    assert asked(call_of(command_set=items)).preview == (
        TextPreview("[1] Command", "docker push registry.example.com/app:1.2", "bash"),
        TextPreview("[2] Command", "kubectl apply -f deploy.yaml", "bash"),
        FieldPreview("[2] Rationale", "The new image is there"),
        FieldPreview("Scope", "COMMAND_SET"),
        FieldPreview("Risk level", "high"),
        FieldPreview("Rationale", "Plan-first ordered execution"),
        FieldPreview("Verification", "the remote shows the commit"),
        FieldPreview("Rollback", "none given"),
        FieldPreview("Request fingerprint", "71ca9be9ce4b7d48b21c0b786ba4a224748c72af2abd327ee4453f96a507f445"),
        FieldPreview("Approval", "P-dc90fbe3da8c859602515a6f4b13bc3c"),
    )


def test_a_single_command_is_shown_with_its_rollback_under_either_name() -> None:
    request = asked(call_of("single"))
    assert request.preview[0] == TextPreview("Command", "git push origin main", "bash")
    assert FieldPreview("Rollback", "git revert HEAD") in request.preview
    sealed = asked(call_of("single", rollback=None, rollback_hint="git revert HEAD~1"))
    assert FieldPreview("Rollback hint", "git revert HEAD~1") in sealed.preview
    assert "Rollback" not in [getattr(part, "label", "") for part in sealed.preview]


def test_a_single_command_may_be_of_many_lines_and_is_shown_verbatim() -> None:
    text = "cd x && cat <<END | sh\n echo 'a' \nEND\n"
    assert asked(call_of("single", exact_content=text)).preview[0] == TextPreview("Command", text, "bash")


@pytest.mark.parametrize("said", [["a"], {"x": 1}, 5, "a\nb"])
def test_a_field_of_any_shape_is_shown_not_dropped(said: Any) -> None:
    labels = [getattr(part, "label", "") for part in asked(call_of(verification=said)).preview]
    assert "Verification" in labels


def test_agent_and_session_are_taken_where_a_bridge_names_them() -> None:
    request = asked(call_of(agent_id="a0123456789abcdef", session_id="s1"))
    assert (request.agent, request.session_id) == ("a0123456789abcdef", "s1")
    assert (asked(call_of()).agent, asked(call_of()).session_id) == (None, "none")


def test_fingerprints_are_over_exact_bytes_and_the_order_counts() -> None:
    first, second = "docker push registry.example.com/app:1.2", "kubectl apply -f deploy.yaml"
    turned = set_of(second, first)
    allow = asked(turned).options[0]
    answer = gaia.answer(turned, turned, chosen(allow, ALLOWED), MANNER)
    assert answer["request_fingerprint"] == "9ed7142a82cb85ece27ea7ad323048fca4f51756419487d99b283937d590e0e4"


@pytest.mark.parametrize(
    ("changes", "loc"),
    [
        ({"approval_id": None}, ("approval_id",)),
        ({"approval_id": f"{ID}\n"}, ("approval_id",)),
        ({"approval_id": ID.upper()}, ("approval_id",)),
        ({"approval_id": ID[:10]}, ("approval_id",)),
        ({"approval_id": [ID]}, ("approval_id",)),
        ({"operation": " "}, ("operation",)),
        ({"operation": None}, ("operation",)),
        ({"request_type": "COMMANDS"}, ("request_type",)),
        ({"request_type": []}, ("request_type",)),
        ({"command_set": None}, ("command_set",)),
        ({"command_set": []}, ("command_set",)),
        ({"command_set": {"command": "a"}}, ("command_set",)),
        ({"command_set": ["git push"]}, ("command_set", 0)),
        ({"command_set": [{"command": "git push"}] * 1_001}, ("command_set",)),
        ({"commands": ["docker push registry.example.com/app:1.2"]}, ("commands",)),
        ({"commands": "docker push"}, ("commands",)),
        (
            {"commands": ["kubectl apply -f deploy.yaml", "docker push registry.example.com/app:1.2"]},
            ("commands",),
        ),
        ({"exact_content": None}, ("exact_content",)),
        ({"exact_content": "docker push registry.example.com/app:1.2"}, ("exact_content",)),
        (
            {"exact_content": "docker push registry.example.com/app:1.2\nkubectl apply -f deploy.yaml\n"},
            ("exact_content",),
        ),
        (
            {"request_fingerprint": "9ed7142a82cb85ece27ea7ad323048fca4f51756419487d99b283937d590e0e4"},
            ("request_fingerprint",),
        ),
        (
            {"request_fingerprint": "71CA9BE9CE4B7D48B21C0B786BA4A224748C72AF2ABD327EE4453F96A507F445"},
            ("request_fingerprint",),
        ),
        ({"request_fingerprint": 0}, ("request_fingerprint",)),
    ],
)
def test_a_set_that_contradicts_itself_is_refused_at_the_field_and_never_shown(
    changes: dict[str, Any], loc: tuple[str | int, ...]
) -> None:
    assert refused_at(call_of(**changes)) == loc


@pytest.mark.parametrize("wrong", ["", "0" * 64, 5, False])
def test_a_commands_fingerprint_that_is_not_its_own_is_refused(wrong: Any) -> None:
    items = golden("set_of_two")["call"]["command_set"]
    items[1] |= {"fingerprint": wrong}
    assert refused_at(call_of(command_set=items)) == ("command_set", 1, "fingerprint")


def test_the_fingerprint_of_escaped_json_is_not_taken_for_that_of_exact_bytes() -> None:
    escaped = "eca15505559399252e4670e8c84daf8c213115d54fe88a959bff26b71f08ac8e"
    commands = ["git tag -a v1.0 -m 'Größe'", "git push origin v1.0"]
    assert hashlib.sha256(json.dumps(commands, separators=(",", ":")).encode()).hexdigest() == escaped
    assert refused_at(call_of("set_not_ascii", request_fingerprint=escaped)) == ("request_fingerprint",)


@pytest.mark.parametrize(
    "command",
    [
        "",
        " git push",
        "git push ",
        "git push\n",
        "\u3000git push",
        "a && b",
        "a || b",
        "a | b",
        "a; b",
        "a `b`",
        "a $(b)",
        "a\nb",
        None,
        5,
        ["git", "push"],
    ],
)
def test_a_command_of_a_set_that_is_not_one_exact_invocation_is_refused(command: Any) -> None:
    """Gaia itself would never run it as it stands, and a line break would make two commands of one."""
    items = [{"command": "git push origin main"}, {"command": command}]
    joined = "git push origin main\n" + str(command)
    sent = call_of("chain", command_set=items, commands=None, exact_content=joined)
    assert refused_at(sent) == ("command_set", 1, "command")


@pytest.mark.parametrize(
    ("changes", "loc"),
    [
        ({"exact_content": None}, ("exact_content",)),
        ({"exact_content": " \n"}, ("exact_content",)),
        ({"exact_content": ["git push"]}, ("exact_content",)),
        ({"commands": ["git push origin main", "rm -rf build"]}, ("commands",)),
        ({"commands": []}, ("commands",)),
        ({"request_fingerprint": "0" * 64}, ("request_fingerprint",)),
    ],
)
def test_a_single_command_that_contradicts_itself_is_refused(
    changes: dict[str, Any], loc: tuple[str | int, ...]
) -> None:
    assert refused_at(call_of("single", **changes)) == loc


def test_a_single_command_may_stand_in_its_list_of_commands_too() -> None:
    sent = call_of("single", commands=["git push origin main"])
    assert len([part for part in asked(sent).preview if isinstance(part, TextPreview)]) == 1


@pytest.mark.parametrize(
    "changes", [{"request_type": "COMMAND_SET"}, {"request_fingerprint": "71ca9be9ce4b7d48"}, {"exact_content": "x"}]
)
def test_only_a_set_without_type_and_fingerprints_may_have_its_first_command_stand_for_all(
    changes: dict[str, Any],
) -> None:
    assert refused_at(call_of("chain", **changes)) == ("exact_content",)


def test_a_set_of_which_some_fingerprints_are_left_out_has_the_others_checked() -> None:
    items = golden("set_of_two")["call"]["command_set"]
    del items[0]["fingerprint"]
    assert asked(call_of(command_set=items)).request_id == "P-dc90fbe3da8c859602515a6f4b13bc3c"
    first = golden("set_of_two")["call"]["commands"][0]
    assert refused_at(call_of("chain", command_set=items, exact_content=first)) == ("exact_content",)


@pytest.mark.parametrize("outcome", UNDECIDED)
def test_an_end_that_nobody_decided_is_revoked_never_rejected(outcome: Outcome) -> None:
    sent = call_of()
    answer = gaia.answer(sent, sent, End(outcome, "why"), Manner(when_unanswered=WhenUnanswered.TERMINAL))
    assert (answer["status"], answer["outcome"], answer["decided_by"]) == ("revoked", outcome.value, None)
    assert answer["reason"] == "why"


def test_a_rejection_that_the_bot_itself_offered_is_one() -> None:
    sent = call_of()
    own = Option(BOTS_OWN_REJECT, "Reject", Meaning.REJECT, Scope.ONCE)
    assert gaia.answer(sent, sent, chosen(own, "no"), MANNER)["status"] == "rejected"


def test_an_approval_fits_no_other_approval_commands_or_option() -> None:
    sent = call_of()
    allow = asked(sent).options[0]
    odd = Option(OptionId("allow_always"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
    for call, option in (
        (sent, odd),
        (call_of(approval_id=ID), allow),
        (call_of("set_of_one", approval_id="P-dc90fbe3da8c859602515a6f4b13bc3c"), allow),
        (b"{}", allow),
    ):
        answer = gaia.answer(sent, call, chosen(option, ALLOWED), MANNER)
        assert (answer["status"], answer["reason"]) == ("revoked", gaia.NOT_THIS)
    assert gaia.answer(b"{}", b"{}", chosen(allow, ALLOWED), MANNER)["status"] == "revoked"


@pytest.mark.parametrize("sent", [None, b"", b"[]", b"{}", b"\xff"])
def test_a_call_that_cannot_be_read_is_revoked_without_names(sent: bytes | None) -> None:
    end = unasked("the request cannot be read")
    assert gaia.refuse(sent, end, MANNER) == {
        "approval_id": None,
        "request_fingerprint": None,
        "status": "revoked",
        "outcome": None,
        "decided_by": None,
        "reason": end.reason,
    }


def test_a_call_for_which_nobody_was_asked_keeps_its_names() -> None:
    sent = call_of()
    told = gaia.refuse(sent, unasked("Matrix is not there", unavailable=True), MANNER)
    assert (told["approval_id"], told["status"]) == ("P-dc90fbe3da8c859602515a6f4b13bc3c", "revoked")
    assert gaia.refuse(sent, chosen(asked(sent).options[0], ALLOWED), MANNER)["status"] == "revoked"


@pytest.mark.parametrize("sent", [b"", b"{", b'{"approval_id":"a","approval_id":"b"}', b"\xff", b'{"a":NaN}'])
def test_what_is_no_plain_json_is_refused(sent: bytes) -> None:
    with pytest.raises(MalformedJson):
        gaia.parse(sent, MANNER)


@pytest.mark.shared
@pytest.mark.skipif(not EXAMPLES.exists(), reason="the specification's files are not beside the project")
def test_every_worked_example_of_the_specification_is_read() -> None:
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    for line in lines:
        example = json.loads(line)
        sent = body(example["sealed_payload"] | {"approval_id": example["derived_id"]})
        shown = [part.text for part in asked(sent).preview if isinstance(part, TextPreview)]
        assert shown == example["commands"]
        end = chosen(asked(sent).options[0], ALLOWED)
        assert gaia.answer(sent, sent, end, MANNER)["request_fingerprint"] == example["request_fingerprint"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
COMMANDS = st.lists(st.sampled_from(["git push origin main", "rm -rf build", "echo 'ß'"]) | TEXTS, max_size=4)
REQUESTS = st.builds(
    lambda commands, said, exact: (
        {"operation": "Deploy", "approval_id": ID}
        | {"command_set": [{"command": text, "rationale": exact} for text in commands]}
        | {"exact_content": "\n".join(commands)}
        | said
    ),
    COMMANDS,
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("rationale", "scope", "risk_level", "rollback", "verification", "session_id"), JSON),
            **dict.fromkeys(("commands", "exact_content", "request_fingerprint", "request_type", "agent_id"), JSON),
        },
    ),
    JSON,
)
OPTIONS = st.builds(
    Option,
    st.sampled_from(["allow_once", "allow_always", "reject_once", "agentpod.reject"]).map(OptionId),
    st.just("Allow once"),
    st.sampled_from(Meaning),
    st.sampled_from([Scope.ONCE, Scope.ALWAYS, None]),
)
ENDS = st.builds(End, st.none() | st.sampled_from(Outcome), TEXTS, st.none() | OPTIONS, st.none() | st.just(OWNER))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS, ENDS)
def test_whatever_can_be_asked_has_an_answer_and_is_approved_by_a_persons_choice_alone(content: Any, end: End) -> None:
    sent = body(content)
    try:
        request = asked(sent)
    except Invalid:
        assert gaia.refuse(sent, end, MANNER)["status"] != "approved"
        return
    check(request.options)
    answer = gaia.answer(sent, sent, end, MANNER)
    assert answer.keys() == KEYS
    assert answer["status"] in {"approved", "rejected", "revoked", "expired"}
    approved = end.approves and end.option is not None and end.option.option_id == "allow_once"
    assert (answer["status"] == "approved") == approved
    assert (answer["status"] == "rejected") == end.rejects
