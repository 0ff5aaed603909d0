"""Reminders, and a second room, on a real homeserver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.daemons import Daemon
    from tests.integration.people import People

pytestmark = pytest.mark.synapse


async def second_room(
    daemon: Daemon, people: People, cast: Cast, register: Callable[[str], Awaitable[Account]]
) -> tuple[str, Account]:
    """Let questions that nobody answers be asked of somebody else; returns where, and whom."""
    lead = await register("lead")
    room_id = await people.room(lead, cast.pod)
    daemon.config["routes"]["ops"]["escalate"] = {"after": "1s", "to": "leads"}
    daemon.config["routes"]["leads"] = {"room": room_id, "approvers": [lead.user_id]}
    return room_id, lead


async def test_the_approver_is_reminded_in_the_thread_and_answers_there(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    daemon.config["routes"]["ops"]["remind_before"] = "58s"
    await daemon.start()
    async with daemon.harness() as harness:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1", ttl_s=60))
        question = await said.question(owner, cast.room_id, "r1")
        reminder = await owner.until(
            cast.room_id, lambda event: str(event["content"].get("body")).startswith("Still open until ")
        )
        content = reminder["content"]
        assert content["msgtype"] == "m.text"
        assert content["m.mentions"] == {"user_ids": [cast.owner.user_id]}
        assert content["m.relates_to"]["event_id"] == question["event_id"]
        relation: dict[str, Any] = {"rel_type": "m.thread", "event_id": question["event_id"], "is_falling_back": True}
        relation["m.in_reply_to"] = {"event_id": reminder["event_id"]}
        await owner.send(cast.room_id, {"msgtype": "m.text", "body": "2", "m.relates_to": relation})
        decision = (await waiting).body["decision"]
        assert (decision["option_id"], decision["answered_by"]) == ("reject_once", cast.owner.user_id)


async def test_an_escalated_question_is_answered_in_the_second_room_and_edited_in_both(
    daemon: Daemon,
    owner: Person,
    cast: Cast,
    people: People,
    register: Callable[[str], Awaitable[Account]],
) -> None:
    room_id, lead = await second_room(daemon, people, cast, register)
    await daemon.start()
    async with daemon.harness() as harness, people.at(lead) as person:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1"))
        first = await said.question(owner, cast.room_id, "r1")
        second = await said.question(person, room_id, "r1")
        assert second["content"]["m.mentions"] == {"user_ids": [lead.user_id]}
        for_people = dict.fromkeys(("m.mentions", "body", "formatted_body"))
        assert {**second["content"], **for_people} == {**first["content"], **for_people}
        lines = second["content"]["body"].splitlines()
        [why] = [line for line in lines if line.startswith("Also asked on route ops since ")]
        assert [line for line in lines if line != why] == first["content"]["body"].splitlines()
        assert why in second["content"]["formatted_body"]
        await owner.until(cast.room_id, lambda event: "Also asked on route leads" in str(event["content"]))
        await person.send(room_id, {"msgtype": "m.text", "body": "1"})
        view = (await waiting).body
        assert (view["decision"]["option_id"], view["decision"]["answered_by"]) == ("allow_once", lead.user_id)
        assert (view["room_id"], view["event_id"]) == (cast.room_id, first["event_id"])
        for reader, room, question in ((owner, cast.room_id, first), (person, room_id, second)):
            outcome = await said.outcome(reader, room, question["event_id"])
            assert (outcome["content"]["outcome"], outcome["content"]["decided_by"]) == ("selected", lead.user_id)


async def test_an_answer_in_the_second_room_counts_though_the_daemon_was_killed_before_it_came(
    daemon: Daemon,
    owner: Person,
    cast: Cast,
    people: People,
    register: Callable[[str], Awaitable[Account]],
) -> None:
    room_id, lead = await second_room(daemon, people, cast, register)
    await daemon.start()
    async with people.at(lead) as person:
        async with daemon.harness() as harness:
            await harness.asked(request_id="r1")
            question = await said.question(person, room_id, "r1")
        daemon.kill()
        await daemon.ended()
        await person.reply(room_id, question["event_id"], "2: not today")
        await daemon.start()
        async with daemon.harness() as harness:
            view = await harness.view("r1", wait_s=30)
        assert (view["decision"]["answered_by"], view["decision"]["comment"]) == (lead.user_id, "not today")
        first = await said.question(owner, cast.room_id, "r1")
        await said.outcome(owner, cast.room_id, first["event_id"])
        await said.outcome(person, room_id, question["event_id"])
