from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import rfc8785

from tests.e2e_person import attachment
from tests.integration import said

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast, Place
    from tests.integration.daemons import Daemon, View

pytestmark = pytest.mark.synapse

ASKED: dict[str, Any] = {
    "session_id": "acps_3f0c",
    "request_seq": 12,
    "title": "Run the test suite",
    "tool_kind": "execute",
    "agent": "hermes",
    "options": [
        {"id": "allow_once", "kind": "allow_once"},
        {"id": "allow_always", "kind": "allow_always"},
        {"id": "reject_once", "kind": "reject_once"},
        {"id": "reject_always", "kind": "reject_always"},
    ],
    "preview": [
        {"type": "field", "label": "Tool", "value": "Run the test suite"},
        {"type": "field", "label": "Kind", "value": "execute"},
        {"type": "text", "label": "Command", "text": "bun test"},
        {"type": "field", "label": "Location", "value": "apps/hub"},
    ],
}
OPTIONS = [
    {"id": "allow_once", "label": "Allow once", "meaning": "approve", "scope": "once"},
    {"id": "allow_always", "label": "Always allow", "meaning": "approve", "scope": "always"},
    {"id": "reject_once", "label": "Reject", "meaning": "reject", "scope": "once"},
    {"id": "reject_always", "label": "Never allow", "meaning": "reject", "scope": "always"},
]
FIRST_LINE = "Permission needed: Run the test suite"
BLOCK = r"""Code {code} · client {client} · open until (\d{{4}}-\d\d-\d\d )?\d\d:\d\d UTC \(30 min\)
Calls itself "hermes", session "acps_3f0c"
Tool: Run the test suite
Kind: execute
Command:
    bun test
Location: apps/hub"""
LIST = "1. Allow once\n2. Always allow\n3. Reject\n4. Never allow"
LAST_LINE = "Reply with the number, or the option's name."
CARD = {
    "schema_version": 1,
    "session_id": "acps_3f0c",
    "request_seq": 12,
    "title": "Run the test suite",
    "options": [
        {"option_id": "allow_once", "name": "Allow once"},
        {"option_id": "allow_always", "name": "Always allow"},
        {"option_id": "reject_once", "name": "Reject"},
        {"option_id": "reject_always", "name": "Never allow"},
    ],
}
PROSE = {"msgtype", "body", "format", "formatted_body"}


def envelope(*, code: str, digest: str, expires_at: str) -> dict[str, Any]:
    """What a program reads of the question `ASKED`."""
    return {
        "suite_event_type": "dev.agentpod.permission.v2",
        "schema_version": 1,
        "request_id": "acps_3f0c:12",
        "session_id": "acps_3f0c",
        "request_seq": 12,
        "title": "Run the test suite",
        "tool_kind": "execute",
        "options": OPTIONS,
        "subject": {
            "id": "acps_3f0c:12",
            "digest": digest,
            "schema": "harness-permission/v1",
            "revision": 1,
            "expires_at": expires_at,
            "preview": ASKED["preview"],
            "preview_complete": True,
        },
        "code": code,
        "dev.agentpod.permission": CARD,
    }


def digest(salt: str, preview: list[dict[str, str]] | None = None) -> str:
    """The digest over `ASKED` (with another preview), as anyone with the salt computes it."""
    subject = {
        "schema": "harness-permission/v1",
        "id": "acps_3f0c:12",
        "revision": 1,
        "session_id": "acps_3f0c",
        "title": "Run the test suite",
        "tool_kind": "execute",
        "options": OPTIONS,
        "preview": preview or ASKED["preview"],
        "salt": salt,
    }
    return hashlib.sha256(rfc8785.dumps(subject)).hexdigest()


def instant(text: str) -> datetime:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    return datetime.fromisoformat(text)


async def test_four_options_are_asked_as_specified(place: Place) -> None:
    view = await place.harness.asked(**ASKED)
    question = await said.question(place.owner, place.room_id, "acps_3f0c:12")
    assert question["sender"] == place.pod.user_id
    content = dict(question["content"])
    first, block, options, last = re.split(r"\n\n", content["body"])
    assert (first, options, last) == (FIRST_LINE, LIST, LAST_LINE)
    code = content["code"]
    assert re.fullmatch(r"[A-Z0-9]{2,4}", code)
    assert re.fullmatch(BLOCK.format(code=code, client=place.client), block)
    assert content.pop("m.mentions") == {"user_ids": [place.account.user_id]}
    prose = {key: content.pop(key) for key in PROSE}
    assert (prose["msgtype"], prose["format"]) == ("m.text", "org.matrix.custom.html")
    subject = content["subject"]
    assert content == envelope(code=code, digest=digest(view["subject"]["salt"]), expires_at=subject["expires_at"])
    assert instant(subject["expires_at"]) == instant(view["expires_at"])


async def test_the_answer_comes_back_whole_and_one_edit_says_what_was_decided_and_delivered(place: Place) -> None:
    began = datetime.now(UTC)
    waiting = asyncio.create_task(place.harness.ask(wait_s=60, **ASKED))
    question = await said.question(place.owner, place.room_id, "acps_3f0c:12")
    answer_id = await place.owner.send(place.room_id, "1")
    reply = await waiting
    assert reply.status == 201
    view: View = dict(reply.body)
    decision = view.pop("decision")
    answered_at = instant(decision.pop("answered_at"))
    assert decision == {
        "outcome": "selected",
        "option_id": "allow_once",
        "label": "Allow once",
        "meaning": "approve",
        "scope": "once",
        "answered_by": place.account.user_id,
        "via": "number",
        "comment": None,
        "event_id": answer_id,
        "voters": None,
    }
    created_at, expires_at = instant(view.pop("created_at")), instant(view.pop("expires_at"))
    assert began - timedelta(milliseconds=1) <= created_at <= answered_at <= datetime.now(UTC)
    assert expires_at - created_at == timedelta(minutes=30)
    salt = view["subject"]["salt"]
    assert re.fullmatch(r"[0-9a-f]{32}", salt)
    assert view == {
        "request_id": "acps_3f0c:12",
        "session_id": "acps_3f0c",
        "request_seq": 12,
        "status": "decided",
        "route": place.client,
        "room_id": place.room_id,
        "event_id": question["event_id"],
        "code": question["content"]["code"],
        "delivered_at": None,
        "subject": {"id": "acps_3f0c:12", "revision": 1, "digest": digest(salt), "salt": salt},
    }

    edit = await said.outcome(place.owner, place.room_id, question["event_id"])
    receipt = {key: value for key, value in edit["content"].items() if key not in {"msgtype", "body", "m.relates_to"}}
    shown = receipt.pop("m.new_content")
    assert edit["sender"] == place.pod.user_id
    assert instant(receipt.pop("decided_at")) == answered_at
    assert receipt == {
        "suite_event_type": "dev.agentpod.permission.outcome.v2",
        "schema_version": 1,
        "request_id": "acps_3f0c:12",
        "session_id": "acps_3f0c",
        "request_seq": 12,
        "outcome": "selected",
        "option_id": "allow_once",
        "meaning": "approve",
        "scope": "once",
        "decided_by": place.account.user_id,
        "subject": {"id": "acps_3f0c:12", "digest": digest(salt), "revision": 1},
        "m.mentions": {},
    }
    assert set(shown) == PROSE | {"m.mentions"}
    assert shown["m.mentions"] == {}
    allowed = f"Allowed once by {place.account.user_id} at {answered_at:%H:%M} UTC: Run the test suite"
    assert re.match(re.escape(allowed) + r" · delivered \d\d:\d\d UTC\n", shown["body"])
    assert f"Code {question['content']['code']} · client {place.client}" in shown["body"]
    assert "Command:\n    bun test\nLocation: apps/hub" in shown["body"]
    assert "1. Allow once" not in shown["body"]
    assert LAST_LINE not in shown["body"]

    later = await place.harness.view("acps_3f0c:12")
    assert instant(later["delivered_at"]) >= answered_at
    # what the room is told goes out in order: once the next outcome is there, a second edit of the first would be too
    after = await place.harness.asked(request_seq=13)
    following = await said.question(place.owner, place.room_id, after["request_id"])
    await place.harness.call("POST", f"/v1/requests/{after['request_id']}/cancel")
    await said.outcome(place.owner, place.room_id, following["event_id"])
    events = await place.owner.history(place.room_id)
    assert len(said.outcomes(events, question["event_id"])) == 1
    assert len(said.questions(events)) == 2
    assert salt not in str(events)


async def test_a_lone_number_after_a_lone_question_decides_it_and_with_two_open_it_decides_none(place: Place) -> None:
    lone = await place.harness.asked()
    await said.question(place.owner, place.room_id, lone["request_id"])
    await place.owner.send(place.room_id, "1")
    assert (await place.harness.view(lone["request_id"], wait_s=20))["decision"]["option_id"] == "allow_once"

    one, two = await place.harness.asked(title="Build"), await place.harness.asked(title="Deploy")
    await said.question(place.owner, place.room_id, one["request_id"])
    asked = await said.question(place.owner, place.room_id, two["request_id"])
    bare = await place.owner.send(place.room_id, "1")
    notice = await said.notice(place.owner, place.room_id)
    assert notice["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == bare
    assert one["code"] in notice["content"]["body"]
    assert two["code"] in notice["content"]["body"]
    assert [(await place.harness.view(each["request_id"]))["status"] for each in (one, two)] == ["pending", "pending"]

    await place.owner.reply(place.room_id, asked["event_id"], "1")
    decided = await place.harness.view(two["request_id"], wait_s=20)
    assert (decided["status"], decided["decision"]["option_id"]) == ("decided", "allow_once")
    assert (await place.harness.view(one["request_id"]))["status"] == "pending"

    await place.owner.send(place.room_id, f"Reject {one['code']}: not on a Friday")
    refused = await place.harness.view(one["request_id"], wait_s=20)
    assert (refused["decision"]["option_id"], refused["decision"]["comment"]) == ("reject_once", "not on a Friday")
    assert len(said.notices(await place.owner.history(place.room_id))) == 1


async def test_keycaps_are_offered_after_three_seconds_and_answer_with_and_without_their_selector(place: Place) -> None:
    slow = await place.harness.asked(title="Think about it")
    question = await said.question(place.owner, place.room_id, slow["request_id"])
    seeded = [await said.reaction(place.owner, place.room_id, key) for key in ("1️⃣", "2️⃣")]
    assert all(each["sender"] == place.pod.user_id for each in seeded)
    assert seeded[0]["origin_server_ts"] - question["origin_server_ts"] >= 2_900
    await place.owner.react(place.room_id, question["event_id"], "2️⃣")
    decided = await place.harness.view(slow["request_id"], wait_s=20)
    assert (decided["decision"]["option_id"], decided["decision"]["via"]) == ("reject_once", "reaction")

    quick = await place.harness.asked(title="Just do it")
    at_once = await said.question(place.owner, place.room_id, quick["request_id"])
    await place.owner.react(place.room_id, at_once["event_id"], "👍")
    await place.owner.react(place.room_id, at_once["event_id"], "1\N{COMBINING ENCLOSING KEYCAP}")
    decided = await place.harness.view(quick["request_id"], wait_s=20)
    assert (decided["decision"]["option_id"], decided["decision"]["via"]) == ("allow_once", "reaction")
    await said.outcome(place.owner, place.room_id, at_once["event_id"])
    events = await place.owner.history(place.room_id)
    assert said.keys(events, place.pod.user_id, question["event_id"]) == ["1️⃣", "2️⃣"]
    assert said.keys(events, place.pod.user_id, at_once["event_id"]) == []


async def test_a_question_that_somebody_removed_from_the_room_is_undeliverable(place: Place) -> None:
    asked = await place.harness.asked()
    question = await said.question(place.owner, place.room_id, asked["request_id"])
    waiting = asyncio.create_task(place.harness.view(asked["request_id"], wait_s=30))
    await place.owner.call("PUT", f"rooms/{place.room_id}/redact/{question['event_id']}/once", {})
    view = await waiting
    assert view["status"] == "undeliverable"
    assert (view["decision"]["outcome"], view["decision"]["reason"]) == ("undeliverable", "redacted")
    await place.owner.reply(place.room_id, question["event_id"], "1")
    await said.notice(place.owner, place.room_id, asked["code"])
    again = await place.harness.view(asked["request_id"])
    assert (again["status"], again["decision"]) == ("undeliverable", view["decision"])


async def test_a_question_that_nobody_answers_expires_at_its_time_and_a_later_answer_is_too_late(place: Place) -> None:
    waiting = asyncio.create_task(place.harness.ask(wait_s=30, ttl_s=2, request_id="short"))
    question = await said.question(place.owner, place.room_id, "short")
    reply = await waiting
    assert reply.body["status"] == reply.body["decision"]["outcome"] == "expired"
    edit = await said.outcome(place.owner, place.room_id, question["event_id"])
    assert edit["content"]["outcome"] == "expired"
    assert edit["content"]["m.new_content"]["body"].startswith("Expired at ")
    await place.owner.reply(place.room_id, question["event_id"], "1")
    late = await said.notice(place.owner, place.room_id)
    assert "too late, expired at" in late["content"]["body"]
    assert (await place.harness.view("short"))["status"] == "expired"


async def test_who_hung_up_gets_the_answer_later_and_the_room_says_when(place: Place) -> None:
    waiting = asyncio.create_task(place.harness.ask(wait_s=60, request_id="r1"))
    question = await said.question(place.owner, place.room_id, "r1")
    await place.harness.waiting_calls(1)
    waiting.cancel()
    await place.harness.waiting_calls(0)
    await place.owner.reply(place.room_id, question["event_id"], "1")
    first = await said.outcome(place.owner, place.room_id, question["event_id"])
    assert "delivered" not in first["content"]["m.new_content"]["body"]
    view = await place.harness.view("r1")
    assert (view["status"], view["delivered_at"]) == ("decided", None)
    second = await place.owner.until(
        place.room_id,
        lambda event: said.closes(event, question["event_id"]) and event["event_id"] != first["event_id"],
    )
    assert " · delivered " in second["content"]["m.new_content"]["body"]
    assert second["content"]["option_id"] == first["content"]["option_id"] == "allow_once"


async def test_however_often_and_fast_one_request_is_posted_it_is_asked_once(place: Place) -> None:
    replies = await asyncio.gather(*(place.harness.ask(request_id="r1") for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [200] * 19 + [201]
    assert len({reply.body["code"] for reply in replies}) == 1
    question = await said.question(place.owner, place.room_id, "r1")
    waiting = [asyncio.create_task(place.harness.ask(wait_s=30, request_id="r1")) for _ in range(5)]
    await place.owner.reply(place.room_id, question["event_id"], "1")
    decisions = [(await each).body["decision"]["option_id"] for each in waiting]
    assert decisions == ["allow_once"] * 5
    await said.outcome(place.owner, place.room_id, question["event_id"])
    assert len(said.questions(await place.owner.history(place.room_id))) == 1


async def test_what_is_too_long_for_the_room_stands_there_whole_as_a_file_before_it_can_be_approved(
    synapse: PrivateSynapse, place: Place, *, sealed: bool
) -> None:
    command = "\n".join(f"echo {number}" for number in range(1_500))
    preview = [{"type": "text", "label": "Command", "text": command}]
    view = await place.harness.asked(**ASKED | {"preview": preview})
    question = await said.question(place.owner, place.room_id, "acps_3f0c:12")
    content = question["content"]
    assert content["subject"]["preview_complete"] is False
    assert "characters hidden" in content["body"]
    assert "    echo 0\n" in content["body"]
    assert "    echo 1499\n" in content["body"]
    assert [option["id"] for option in content["options"]] == ["allow_once", "reject_once", "reject_always"]
    assert digest(view["subject"]["salt"], preview) == view["subject"]["digest"] == content["subject"]["digest"]

    file = await place.owner.until(place.room_id, lambda event: event["content"].get("msgtype") == "m.file")
    assert file["content"]["m.relates_to"]["rel_type"] == "m.thread"
    assert file["content"]["m.relates_to"]["event_id"] == question["event_id"]
    assert ("file" in file["content"], "url" in file["content"]) == (sealed, not sealed)
    shown = await attachment(synapse.url, place.account.access_token, file)
    assert command in shown.decode()
    await place.owner.reply(place.room_id, file["event_id"], "1")
    decided = await place.harness.view("acps_3f0c:12", wait_s=20)
    assert (decided["status"], decided["decision"]["option_id"]) == ("decided", "allow_once")


async def test_over_a_unix_socket_a_harness_asks_in_a_room_named_by_its_alias_and_gets_a_structured_answer(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    socket = daemon.listen_on_socket()
    alias = f"#{cast.pod.device_id.lower()}:localhost"
    await owner.call("PUT", f"directory/room/{quote(alias, safe='')}", {"room_id": cast.room_id})
    daemon.config["routes"]["ops"]["room"] = alias
    await daemon.start()
    assert socket.stat().st_mode & 0o777 == 0o600
    async with daemon.harness() as harness:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="by-socket"))
        question = await said.question(owner, cast.room_id, "by-socket")
        answer = {
            "suite_event_type": "dev.agentpod.permission.answer.v2",
            "schema_version": 1,
            "request_id": "by-socket",
            "option_id": "reject_once",
            "subject": {"digest": question["content"]["subject"]["digest"], "revision": 1},
            "comment": "not now",
            "m.relates_to": {"rel_type": "m.reference", "event_id": question["event_id"]},
            "msgtype": "m.text",
            "body": "Allow once",
        }
        await owner.send(cast.room_id, answer)
        decision = (await waiting).body["decision"]
    assert (decision["option_id"], decision["via"], decision["comment"]) == ("reject_once", "structured", "not now")
    async with daemon.harness("of somebody else") as stranger:
        assert (await stranger.call("GET", "/v1/requests/by-socket")).status == 401
