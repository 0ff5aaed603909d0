from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentpod_bot import errors
from agentpod_bot.broker.waiters import Waiters
from agentpod_bot.core.ids import ClientName
from tests.examples import LAPTOP, START, closed, question

OPEN = question(1)
ENDED = replace(closed(1, at_ms=START), row=OPEN.row)


async def test_every_call_that_waits_gets_the_closed_question() -> None:
    waiters = Waiters()
    with waiters.place(OPEN.row, LAPTOP, limit=9) as first, waiters.place(OPEN.row, LAPTOP, limit=9) as second:
        waiters.release(ENDED)
        assert await first is ENDED
        assert await second is ENDED
    assert waiters.open_waits() == 0


async def test_a_place_is_given_back_however_the_call_ends() -> None:
    waiters = Waiters()
    with pytest.raises(RuntimeError), waiters.place(OPEN.row, LAPTOP, limit=1):
        raise RuntimeError
    with waiters.place(OPEN.row, LAPTOP, limit=1):
        assert waiters.open_waits() == 1
        with pytest.raises(errors.TooManyWaits), waiters.place(question(2).row, LAPTOP, limit=1):
            pass
        with waiters.place(question(2).row, ClientName("ci"), limit=1):
            assert waiters.open_waits() == 2
    assert waiters.open_waits() == 0


async def test_a_question_is_settled_once_every_released_call_has_left() -> None:
    waiters = Waiters()
    with waiters.place(OPEN.row, LAPTOP, limit=9):
        with waiters.place(OPEN.row, LAPTOP, limit=9):
            waiters.release(ENDED)
            settled = asyncio.create_task(waiters.settled(OPEN.row, up_to_s=10))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not settled.done()
    await settled


async def test_a_caller_that_reads_slowly_holds_nothing_back_for_long() -> None:
    waiters = Waiters()
    with waiters.place(OPEN.row, LAPTOP, limit=9):
        waiters.release(ENDED)
        await waiters.settled(OPEN.row, up_to_s=0.001)


async def test_nothing_is_waited_for_where_nobody_waits() -> None:
    waiters = Waiters()
    waiters.release(ENDED)
    await waiters.settled(OPEN.row, up_to_s=60)
    other = question(2).row
    with waiters.place(other, LAPTOP, limit=9):
        await waiters.settled(other, up_to_s=60)


async def test_a_question_that_closed_before_its_place_was_taken_is_there_at_once() -> None:
    waiters = Waiters()
    waiters.release(ENDED)
    with waiters.place(OPEN.row, LAPTOP, limit=9) as waiting:
        assert waiting.result() is ENDED
        assert waiters.is_being_answered(OPEN.row)
        assert waiters.being_answered(ENDED.asked.room_id) == (OPEN.row,)
    assert not waiters.is_being_answered(OPEN.row)
    assert waiters.being_answered(ENDED.asked.room_id) == ()


async def test_on_a_stop_every_wait_ends_and_none_begins() -> None:
    waiters = Waiters()
    with waiters.place(OPEN.row, LAPTOP, limit=9) as waiting:
        waiters.stop()
        with pytest.raises(errors.ShuttingDown) as caught:
            await waiting
        assert caught.value.row == OPEN.row
    with pytest.raises(errors.ShuttingDown), waiters.place(OPEN.row, LAPTOP, limit=9):
        pass
