"""`alive_until` never promises more than ZooKeeper keeps: against a model of an ensemble that hears late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.zookeeper.deadline import SessionDeadline

TIMEOUT_MS = 4000
HALF_TICK_S = TIMEOUT_MS / 1000 / 4

delays = st.floats(0, 5)


@given(st.lists(st.tuples(delays, delays, delays, st.floats(0, HALF_TICK_S)), max_size=20), delays)
def test_the_session_is_alive_whenever_it_says_so(
    beats: list[tuple[float, float, float, float]], opening: float
) -> None:
    """Each heartbeat: the pause before it, its way there, its way back, and how late the leader hears of it."""
    now = 0.0
    deadline = SessionDeadline(now, TIMEOUT_MS)
    # The leader opened the session somewhere on the way.
    now += opening
    expires = now + TIMEOUT_MS / 1000
    for pause, there, back, late in beats:
        sent = now + pause
        assert deadline.alive_until <= expires
        at_server = sent + there
        if at_server >= expires:
            # The leader answers the sync with the session's expiry.
            return
        heard_by_leader = at_server + late
        now = at_server + back
        deadline.heard(sent, now)
        if heard_by_leader < expires:
            expires = heard_by_leader + TIMEOUT_MS / 1000
        assert deadline.alive_until <= expires


def test_regular_heartbeats_keep_it_alive() -> None:
    deadline = SessionDeadline(0, TIMEOUT_MS)
    for beat in range(1, 100):
        sent = beat * TIMEOUT_MS / 6000
        assert deadline.alive_until > sent
        deadline.heard(sent, sent + 0.01)


def test_after_a_silence_two_answers_make_it_alive_again() -> None:
    deadline = SessionDeadline(0, TIMEOUT_MS)
    deadline.heard(10, 10.1)
    assert deadline.alive_until == 3
    deadline.heard(10.2, 10.3)
    assert deadline.alive_until == 3, "sent too soon after the first answer"
    deadline.heard(11.2, 11.3)
    assert deadline.alive_until == 14.2
