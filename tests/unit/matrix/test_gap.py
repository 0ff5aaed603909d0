from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import EventId, RoomId
from agentpod_bot.errors import HomeserverUnavailable, MatrixError, RateLimited, Refused
from agentpod_bot.matrix.gap import MOST_EVENTS, SLACK_MS, missing
from agentpod_bot.matrix.response import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

MINUTE = 60_000


def event(number: int) -> dict[str, Any]:
    """The event with this number; each is a minute after the one before it."""
    return {"event_id": f"${number}", "origin_server_ts": number * MINUTE}


@dataclass
class Past:
    """A room whose events are numbered from `first`; a token is the number of the event before it."""

    first: int = 0
    page_size: int | None = None
    failure: MatrixError | None = None
    asked: list[str] = field(default_factory=list)
    dates: dict[int, Any] = field(default_factory=dict)

    async def messages(
        self,
        room_id: RoomId,
        from_token: str,
        *,
        limit: int,
        to_token: str | None = None,
        event_filter: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        assert room_id == "!ops"
        assert to_token is None
        assert event_filter is not None
        self.asked.append(from_token)
        if self.failure is not None:
            raise self.failure
        newest = int(from_token)
        oldest = max(newest - (self.page_size or limit), self.first - 1)
        chunk = [event(number) | self.dates.get(number, {}) for number in range(newest, oldest, -1)]
        return {"chunk": chunk} | ({"end": str(oldest)} if oldest >= self.first else {})


def part(*, limited: bool = True, prev_batch: str | None = "1000", left: bool = False, first: int = 1001) -> Part:
    timeline = [event(number) for number in range(first, first + 3)]
    return Part(room_id=RoomId("!ops"), state=(), timeline=timeline, limited=limited, prev_batch=prev_batch, left=left)


async def numbers(past: Past, of: Part | None = None, *, newest: int | None, open_ts: int | None = None) -> list[int]:
    found = await missing(
        past, of or part(), newest_seen=None if newest is None else EventId(f"${newest}"), oldest_open_ts=open_ts
    )
    return [int(raw["event_id"][1:]) for raw in found.events if isinstance(raw, dict)]


async def test_a_gap_is_paged_back_to_the_newest_processed_event() -> None:
    past = Past()
    assert await numbers(past, newest=742) == list(range(743, 1001))
    assert past.asked == ["1000", "900", "800"]


async def test_what_is_before_a_timeline_that_left_nothing_out_is_read_too_where_it_is_asked_for() -> None:
    assert await numbers(Past(), part(limited=False), newest=742) == list(range(743, 1001))


async def test_short_pages_make_no_difference() -> None:
    assert await numbers(Past(page_size=7), newest=742) == list(range(743, 1001))


@pytest.mark.parametrize(
    ("of", "newest", "open_ts"),
    [(part(limited=False, prev_batch=None), 5, 5), (part(), None, None), (part(), 1001, 5)],
)
async def test_nothing_is_asked_for_where_nothing_is_missing_or_needed(
    of: Part, newest: int | None, open_ts: int | None
) -> None:
    past = Past()
    assert await numbers(past, of, newest=newest, open_ts=open_ts) == []
    assert past.asked == []


async def test_without_a_processed_event_the_oldest_open_question_decides_how_far() -> None:
    found = await numbers(Past(), newest=None, open_ts=850 * MINUTE)
    assert set(range(849, 1001)) <= set(found)  # an answer may be dated up to a minute early
    assert found[0] > 600


async def test_one_event_with_a_false_date_does_not_hide_what_is_before_it() -> None:
    past = Past(dates={number: {"origin_server_ts": 0} for number in range(901, 1000)})
    assert 700 in await numbers(past, newest=None, open_ts=700 * MINUTE)


async def test_an_event_that_came_late_before_the_newest_processed_one_is_kept_while_it_can_matter() -> None:
    assert await numbers(Past(), newest=950, open_ts=945 * MINUTE) == [*range(944, 950), *range(951, 1001)]
    assert SLACK_MS == MINUTE


async def test_paging_ends_at_the_beginning_of_the_room() -> None:
    assert await numbers(Past(first=990), newest=5) == list(range(990, 1001))


async def test_a_gap_without_an_end_is_followed_only_so_far() -> None:
    far = part(prev_batch="90000", first=90_001)
    assert len(await numbers(Past(), far, newest=5)) == MOST_EVENTS


@pytest.mark.parametrize(("newest", "is_cut"), [(5, True), (None, True), (89_000, False)])
async def test_it_is_known_whether_all_of_a_gap_was_read(newest: int | None, *, is_cut: bool) -> None:
    seen = None if newest is None else EventId(f"${newest}")
    far = part(prev_batch="90000", first=90_001)
    assert (await missing(Past(), far, newest_seen=seen, oldest_open_ts=MINUTE)).is_cut is is_cut
    assert not (await missing(Past(first=980), part(), newest_seen=seen, oldest_open_ts=MINUTE)).is_cut


async def test_dates_never_end_a_gap_before_the_newest_processed_event() -> None:
    far = part(prev_batch="90000", first=90_001)
    assert await numbers(Past(), far, newest=85_000, open_ts=89_999 * MINUTE) == list(range(85_001, 90_001))


@pytest.mark.parametrize("failure", [HomeserverUnavailable("cut"), RateLimited(5), Refused("M_FORBIDDEN", status=403)])
async def test_a_page_that_fails_leaves_the_gap_unfilled(failure: MatrixError) -> None:
    with pytest.raises(type(failure)):
        await numbers(Past(failure=failure), newest=5)


async def test_a_left_room_that_is_no_longer_shown_stops_nothing() -> None:
    assert await numbers(Past(failure=Refused("M_FORBIDDEN", status=403)), part(left=True), newest=5) == []
    with pytest.raises(HomeserverUnavailable):
        await numbers(Past(failure=HomeserverUnavailable("cut")), part(left=True), newest=5)


async def test_a_gap_that_nothing_leads_into_is_not_taken_for_filled() -> None:
    with pytest.raises(HomeserverUnavailable):
        await numbers(Past(), part(prev_batch=None), newest=5)


async def test_a_page_without_events_is_not_taken_for_the_end() -> None:
    class Broken(Past):
        async def messages(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            return {"end": "x"}

    with pytest.raises(HomeserverUnavailable):
        await numbers(Broken(), newest=5)


async def test_empty_pages_do_not_go_on_for_ever() -> None:
    class Empty(Past):
        async def messages(self, _room: Any, token: str, **_kwargs: Any) -> dict[str, Any]:
            self.asked.append(token)
            return {"chunk": [], "end": token + "x"}

    past = Empty()
    assert await numbers(past, newest=5) == []
    assert len(past.asked) == 400
