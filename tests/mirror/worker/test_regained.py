"""A source that came back without the end of its log, and then with it: what goes on by itself, and what does not."""

from __future__ import annotations

import pytest

from broker.log.epochs import LeaderEpochs
from mirror.offsets.entries import Gap, GapKind, GapStatus
from tests.mirror.worker.histories import WHERE, MemoryLog
from tests.mirror.worker.test_acceptance import Histories, begun, stopped_at


class Disk:
    """What a source's log is now."""

    def __init__(self, log: MemoryLog) -> None:
        self.end, self._batches, self._epochs = log.end, list(log.batches), list(log.epochs.entries)

    def back(self, log: MemoryLog) -> None:
        """The broker starts with it, and leads by an epoch of its own."""
        log.end, log.batches, log.epochs = self.end, list(self._batches), LeaderEpochs(list(self._epochs))
        log.epoch = log.epochs.latest
        log.elect()


def the_gap(histories: Histories) -> Gap:
    (gap,) = histories.twins.folding.entries().gaps.values()
    return gap


def stopped_without_its_end(histories: Histories, older: Disk) -> None:
    source = histories.twins.source
    position = histories.twins.folding.entries().checkpoints[WHERE].position
    older.back(source)
    assert stopped_at(histories) == (GapKind.TRUNCATED_END, position, source.end)


@pytest.mark.parametrize("markers", [0, 3])
def test_a_source_whose_newer_disk_is_back_goes_on_without_a_consent(markers: int) -> None:
    histories = begun()
    histories.write_and_catch_up([4, 2])
    older = Disk(histories.twins.source)
    histories.write_and_catch_up([] if markers else [5, 3])
    for _ in range(markers):  # behind the last record that was mirrored
        histories.mark_at_source()
    histories.write_and_catch_up([])
    newer = Disk(histories.twins.source)
    stopped_without_its_end(histories, older)
    newer.back(histories.twins.source)
    histories.start(0, False)
    assert histories.life is not None, the_gap(histories).detail
    assert histories.life.replicator.position == newer.end
    assert the_gap(histories).status is GapStatus.GONE
    histories.write_and_catch_up([2])
    histories.teardown()


@pytest.mark.parametrize("copies", ["are there", "are gone"])
def test_a_source_that_grew_past_its_old_end_with_others_stays_stopped(copies: str) -> None:
    """Its epochs are used again: nothing but the content says that it is another one, or nothing at all."""
    histories = begun()
    histories.write_and_catch_up([4, 2])
    older = Disk(histories.twins.source)
    histories.twins.source.elect()
    histories.write_and_catch_up([5, 3])
    if copies == "are gone":
        histories.twins.target.delete_to(histories.twins.target.end)
    stopped_without_its_end(histories, older)
    for count in (6, 6):
        histories.write_at_source(count, 0)
    assert stopped_at(histories)[:2] == (GapKind.TRUNCATED_END, 14)
    detail = the_gap(histories).detail
    if copies == "are there":
        assert detail == "the source has another record at offset 13 than was mirrored"
    else:
        assert detail == (
            "the source's log ended at 6, the mirror had read to 14; it goes on to 18 now, and nothing proves that it "
            "is again the one that was read"
        )
        assert stopped_at(histories)[:2] == (GapKind.TRUNCATED_END, 14)
        assert the_gap(histories).detail == detail
    histories.teardown()


@pytest.mark.parametrize("hidden", [False, True])
def test_an_equal_last_record_proves_nothing_of_what_a_source_has_behind_it(hidden: bool) -> None:
    """Markers were read there; a source of an older disk has others' records in their place."""
    histories = begun()
    histories.write_and_catch_up([4, 2])
    older = Disk(histories.twins.source)
    histories.twins.source.elect()
    for _ in range(3):
        histories.mark_at_source()
    histories.write_and_catch_up([])
    stopped_without_its_end(histories, older)
    if hidden:
        histories.twins.source.transaction_from = histories.twins.source.end
    histories.write_at_source(3, 0)
    assert stopped_at(histories)[:2] == (GapKind.TRUNCATED_END, 9)
