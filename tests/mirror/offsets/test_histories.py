"""Two logs that were one until they parted: what epochs say of it is never later than where they did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.log.epochs import LeaderEpochs
from mirror.offsets.histories import EPOCHS_KEPT, EpochStart, judge, newest_epochs


def starts_of(log: list[int]) -> list[EpochStart]:
    """`log` is the epoch of every record."""
    return [EpochStart(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]


def agreed(read: list[EpochStart], read_to: int, leader: LeaderEpochs, log_end: int) -> int | None:
    """Ask the leader until it is known, as a start does."""
    asked: int | None = read[-1].leader_epoch
    while asked is not None:
        verdict = judge(read, read_to, asked, *leader.end_offset_for(asked, log_end))
        if verdict.agreed_to is not None:
            return verdict.agreed_to
        assert verdict.ask_next is None or verdict.ask_next < asked, "the questions come to an end"
        asked = verdict.ask_next
    return None


grown = st.lists(st.integers(0, 2), max_size=40)
"""By how much the epoch rises from record to record."""


def epochs_after(first: int, rises: list[int]) -> list[int]:
    log = []
    for rise in rises:
        first += rise
        log.append(first)
    return log


@given(grown, st.integers(0, 40), st.integers(1, 5), grown)
def test_the_logs_part_where_the_epochs_say(rises: list[int], cut: int, election: int, others: list[int]) -> None:
    """The next leader's epoch begins where the log was cut; then others write, under it and later ones."""
    ours = epochs_after(1, [0, *rises])
    cut = min(cut, len(ours))
    theirs = ours[:cut] + epochs_after(ours[-1] + election, others)
    leader = LeaderEpochs([(epoch, at) for epoch, at in starts_of(ours[:cut])])
    for at, epoch in enumerate([ours[-1] + election, *theirs[cut:]]):
        leader.assign(epoch, cut + max(0, at - 1))
    assert agreed(starts_of(ours), len(ours), leader, len(theirs)) == cut


@given(grown, st.integers(0, 40), grown)
def test_a_log_that_only_grew_agrees_with_all_that_was_read(rises: list[int], read_to: int, more: list[int]) -> None:
    log = epochs_after(1, [0, *rises])
    read_to = max(1, min(read_to, len(log)))
    grown_log = log + epochs_after(log[-1], more)
    leader = LeaderEpochs([(epoch, at) for epoch, at in starts_of(grown_log)])
    assert agreed(starts_of(log[:read_to]), read_to, leader, len(grown_log)) == read_to


def test_it_is_asked_again_for_an_epoch_that_both_know() -> None:
    """We read 1 and 4; the leader never saw 4, but wrote as 2 and 3 what we never read."""
    read = [EpochStart(1, 0), EpochStart(4, 10)]
    assert judge(read, 20, 4, 3, 15) == (None, 1)
    assert judge(read, 20, 1, 1, 8) == (8, None)


def test_what_cannot_be_said_is_not_guessed() -> None:
    read = [EpochStart(1, 0), EpochStart(4, 10)]
    assert judge(read, 20, 4, -1, -1) == (None, None)
    assert judge(read, 20, 4, 5, 30) == (None, None)


def test_a_checkpoint_keeps_the_newest_epochs_before_its_position() -> None:
    read = [EpochStart(epoch, 10 * epoch) for epoch in range(40)]
    kept = newest_epochs(read, 301)
    assert kept == tuple(read[31 - EPOCHS_KEPT : 31])
    assert newest_epochs(read, 0) == ()
