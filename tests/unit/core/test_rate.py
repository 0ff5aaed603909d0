from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.rate import Bucket, Rate

RATES = st.builds(Rate, st.integers(1, 1_000), st.sampled_from([1_000, 60_000, 3_600_000]))
SIXTY_A_MINUTE = Rate(60, 60_000)


def taken(bucket: Bucket) -> Bucket:
    less = bucket.take()
    assert isinstance(less, Bucket)
    return less


def test_all_of_a_rate_may_come_at_once_and_then_one_at_a_time() -> None:
    bucket = Bucket.full(SIXTY_A_MINUTE, 0)
    for _ in range(60):
        bucket = taken(bucket)
    assert bucket.take() == 1_000
    assert bucket.at(999).take() == 1
    bucket = taken(bucket.at(1_000))
    assert bucket.take() == 1_000


def test_what_was_not_used_for_long_is_never_more_than_the_whole_rate() -> None:
    bucket = Bucket.full(SIXTY_A_MINUTE, 0).at(10**12)
    assert bucket == Bucket.full(SIXTY_A_MINUTE, 10**12)


@given(RATES, st.lists(st.integers(0, 100_000), min_size=1, max_size=200))
def test_no_more_pass_than_the_rate_and_what_came_in_meanwhile(rate: Rate, pauses_ms: list[int]) -> None:
    bucket, now_ms, passed = Bucket.full(rate, 0), 0, 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        bucket = bucket.at(now_ms)
        match bucket.take():
            case Bucket() as less:
                bucket, passed = less, passed + 1
            case wait_ms:
                assert wait_ms >= 1
                assert isinstance(bucket.at(now_ms + wait_ms).take(), Bucket)
                assert not isinstance(bucket.at(now_ms + wait_ms - 1).take(), Bucket)
        assert passed <= rate.count + now_ms * rate.count / rate.per_ms
