"""Backoff and giving up, on a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.errors import ClientError, ClusterUnreachable, ConnectionLost, KafkaError
from broker.client.limits import ClientLimits
from broker.client.retry import Retry, backoff_seconds
from broker.wire.errors import ErrorCode

LIMITS = ClientLimits(retry_backoff_ms=100, retry_backoff_max_ms=1_000, retry_timeout_ms=10_000)


class TestClock:
    """Sleeping moves it."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_capped_and_never_below_half(attempt: int, jitter: float) -> None:
    seconds = backoff_seconds(attempt, LIMITS, jitter)
    whole = min(0.1 * 2 ** min(attempt, 16), 1.0)
    assert whole / 2 <= seconds <= whole


async def spend(error: ClientError) -> TestClock:
    clock = TestClock()
    retry = Retry(LIMITS, clock, lambda: 0.5)
    with pytest.raises(type(error)):
        await pause_for_ever(retry, error)
    return clock


async def pause_for_ever(retry: Retry, error: ClientError) -> None:
    while True:
        await retry.pause(error)


async def test_retriable_errors_are_tried_until_the_time_is_over() -> None:
    clock = await spend(ConnectionLost("gone"))
    assert 8 < clock.now <= LIMITS.retry_timeout_ms / 1000
    assert clock.slept[:4] == [0.075, 0.15, 0.3, 0.6]


async def test_an_unknown_topic_is_given_up_sooner() -> None:
    clock = await spend(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t"))
    assert 1 < clock.now <= LIMITS.unknown_topic_timeout_ms / 1000


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.INVALID_CONFIG, "t"), ClusterUnreachable("nowhere")])
async def test_others_are_raised_at_once(error: ClientError) -> None:
    assert (await spend(error)).slept == []


def test_a_kafka_error_says_what_to_do() -> None:
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t at east")
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert error.hint
    assert not error.retriable
    assert KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t").retriable
