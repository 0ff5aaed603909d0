"""Outcomes that are to be posted, as the store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import ClientName, Row, WebhookId
from tests.unit.store.examples import LAPTOP, MINUTE, T0, insert_closed, migrated_engine, read, undone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.core.kept import Callback
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Tx

SERVER = ClientName("server")
LATER = T0 + 10 * MINUTE


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("callbacks"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def to_post(tx: Tx, number: int = 1, *, at_ms: int = T0, revision: int = 1, client: ClientName = LAPTOP) -> Question:
    """A closed question whose outcome is to be posted."""
    closed = insert_closed(tx, number, revision=revision, client=client)
    tx.call_back(closed, WebhookId(f"msg_{closed.row}"), at_ms)
    return closed


def begin(tx: Tx, due_by_ms: int = T0, *, at_most: int = 9, client: ClientName = LAPTOP) -> tuple[Callback, ...]:
    return tx.begin_callbacks(client, due_by_ms=due_by_ms, again_ms=LATER, at_most=at_most)


def test_an_outcome_is_begun_once_it_is_due_and_not_before(tx: Tx) -> None:
    closed = to_post(tx)
    assert begin(tx, T0 - 1) == ()
    (callback,) = begin(tx)
    assert (callback.row, callback.webhook_id, callback.attempts) == (closed.row, f"msg_{closed.row}", 1)


def test_one_that_was_begun_is_due_again_later_under_the_same_id(tx: Tx) -> None:
    to_post(tx)
    (first,) = begin(tx)
    assert begin(tx) == ()
    assert tx.callback_due(LAPTOP) == LATER
    (second,) = begin(tx, LATER)
    assert (second.callback_id, second.webhook_id, second.attempts) == (first.callback_id, first.webhook_id, 2)


def test_one_that_is_finished_is_never_begun_again(tx: Tx) -> None:
    to_post(tx)
    (callback,) = begin(tx)
    tx.finish_callback(callback.callback_id)
    assert begin(tx, LATER) == ()
    assert tx.callback_due(LAPTOP) is None


def test_one_that_is_postponed_waits_until_then(tx: Tx) -> None:
    to_post(tx)
    (callback,) = begin(tx)
    tx.postpone_callback(callback.callback_id, T0 + MINUTE)
    assert tx.callback_due(LAPTOP) == T0 + MINUTE
    assert begin(tx, T0 + MINUTE - 1) == ()
    assert len(begin(tx, T0 + MINUTE)) == 1


def test_the_revisions_of_a_request_go_in_their_order(tx: Tx) -> None:
    first = to_post(tx, 1, revision=1)
    second = to_post(tx, 1, revision=2)
    (callback,) = begin(tx)
    assert callback.row == first.row
    tx.postpone_callback(callback.callback_id, T0 + MINUTE)
    assert begin(tx) == ()
    assert tx.callback_due(LAPTOP) == T0 + MINUTE
    (callback,) = begin(tx, T0 + MINUTE)
    tx.finish_callback(callback.callback_id)
    assert [after.row for after in begin(tx)] == [second.row]


def test_other_requests_do_not_wait_for_one_that_is_postponed(tx: Tx) -> None:
    to_post(tx, 1)
    other = to_post(tx, 2)
    (callback,) = begin(tx, at_most=1)
    tx.postpone_callback(callback.callback_id, LATER)
    assert [after.row for after in begin(tx)] == [other.row]


def test_no_more_are_begun_than_asked_for_and_the_longest_due_go_first(tx: Tx) -> None:
    late, early, latest = (
        to_post(tx, number, at_ms=T0 + minutes * MINUTE) for number, minutes in enumerate((3, 1, 5), 1)
    )
    assert {callback.row for callback in begin(tx, LATER - 1, at_most=2)} == {late.row, early.row}
    assert [callback.row for callback in begin(tx, LATER - 1, at_most=2)] == [latest.row]


def test_each_client_has_a_queue_of_its_own(tx: Tx) -> None:
    to_post(tx, 1, client=SERVER, at_ms=T0 + MINUTE)
    mine = to_post(tx, 1, client=LAPTOP)
    assert [callback.row for callback in begin(tx, LATER)] == [mine.row]
    assert tx.callback_due(SERVER) == T0 + MINUTE


def test_one_outcome_is_noted_once(tx: Tx) -> None:
    closed = to_post(tx)
    with pytest.raises(ValueError, match="cannot hold"):
        tx.call_back(closed, WebhookId("msg_other"), T0)


def test_a_webhook_id_is_given_once(tx: Tx) -> None:
    closed = to_post(tx)
    with pytest.raises(ValueError, match="cannot hold"):
        tx.call_back(insert_closed(tx, 2), WebhookId(f"msg_{closed.row}"), T0)


def test_hastening_has_all_of_one_clients_tried_now(tx: Tx) -> None:
    for number in (1, 2):
        to_post(tx, number, at_ms=LATER)
    to_post(tx, 3, client=SERVER, at_ms=LATER)
    tx.hasten_callbacks(LAPTOP, T0)
    assert len(begin(tx)) == 2
    assert tx.callback_due(SERVER) == LATER


def test_hastening_puts_nothing_off(tx: Tx) -> None:
    to_post(tx, at_ms=T0)
    tx.hasten_callbacks(LAPTOP, T0 + MINUTE)
    assert tx.callback_due(LAPTOP) == T0


def test_those_about_old_questions_are_given_up_whomever_they_are_for(tx: Tx) -> None:
    to_post(tx, 1)
    to_post(tx, 2, client=SERVER)
    kept = to_post(tx, 3, at_ms=T0 + MINUTE)
    assert tx.lapse_callbacks(T0 + MINUTE) == 2
    assert [callback.row for callback in begin(tx, LATER)] == [kept.row]


def test_a_question_is_not_forgotten_before_its_outcome_was_posted_or_given_up(tx: Tx) -> None:
    closed = to_post(tx)
    assert tx.prune(LATER * 2) == 0
    assert read(tx, closed).row == closed.row
    (callback,) = begin(tx)
    tx.finish_callback(callback.callback_id)
    assert tx.prune(LATER * 2) == 1
    assert tx.question(Row(closed.row)) is None
