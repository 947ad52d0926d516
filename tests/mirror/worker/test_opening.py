"""What a gap or a checkpoint says is held against both logs, as they are when a session opens the partition."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind, GapStatus, VoidEntry, Writer
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.offsets.intervals import End
from mirror.offsets.paged import Intervals
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.tail import Tail
from mirror.offsets.topic_entries import TopicIdentity
from mirror.topics.plan import MirroredTopic
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from mirror.worker.plan import Blocker
from mirror.worker.resume import Evidence, Opening, SourceLog, open_partition
from mirror.worker.startup import _opening_changes
from tests.broker.clock import ManualClock
from tests.mirror.worker.histories import WHERE, finish
from tests.mirror.worker.test_acceptance import Histories, begun, stopped_at


def test_a_topic_id_that_was_not_told_once_is_not_forgotten() -> None:
    histories = begun()
    histories.write_and_catch_up([4])
    known = histories.twins.folding.entries().checkpoints[WHERE].topic_ids
    histories.twins.tells_ids = False
    histories.start(0, False)
    assert histories.twins.folding.entries().checkpoints[WHERE].topic_ids == known == ("source-1", "target-1")
    histories.twins.tells_ids = True
    histories.twins.target.topic_number += 1  # recreated, and filled with the very same
    assert stopped_at(histories)[0] is GapKind.TARGET_TRUNCATED
    histories.twins.target.topic_number -= 1
    histories.twins.tells_ids = False
    histories.start(0, False)
    histories.twins.tells_ids = True
    histories.twins.source.topic_number += 1
    assert stopped_at(histories)[0] is GapKind.RECREATED


def test_a_last_record_is_another_one_where_its_value_alone_differs() -> None:
    """Its batch has the same header, and is as long."""
    histories = begun()
    histories.write_and_catch_up([4, 2])
    source = histories.twins.source
    first, second = (int(record.value or b"") for record in source.records()[-2:])
    source.cut(source.end - 1)
    source.write([first, second - 1])
    assert stopped_at(histories)[0] is GapKind.TRUNCATED_END


def test_a_session_fetches_on_with_the_epoch_that_the_source_confirmed() -> None:
    histories = begun()
    histories.write_and_catch_up([4])
    histories.start(0, False)
    assert histories.life is not None
    assert histories.life.replicator.cursor.leader_epoch == histories.twins.source.epoch


def test_what_landed_without_a_checkpoint_may_be_of_an_epoch_that_nobody_noted() -> None:
    """The first start recovers it; later ones, that find nothing new, must not doubt the source for its epochs."""
    histories = begun()
    histories.write_and_catch_up([4])
    histories.source_loses_its_end(0, "go on", [])
    histories.start(0, False)
    histories.write_at_source(3, 0)
    histories.live([("fetch", 1), ("write", 9), ("produce", 1)])
    histories.life = None
    for _ in range(3):
        histories.start(0, False)
        assert histories.life is not None, histories.twins.open_gap()
        assert histories.life.replicator.position == 7
        histories.life.checkpoint()
        histories.twins.target.delete_to(histories.twins.target.end)  # no copy is left to compare
    histories.write_and_catch_up([1])
    checkpoint = histories.twins.folding.entries().checkpoints[WHERE]
    assert checkpoint.epochs_end == checkpoint.position == 8
    histories.source_loses_its_end(1, "go on", [4])
    assert stopped_at(histories)[:2] == (GapKind.TRUNCATED_END, 8)


def refused(histories: Histories, source_to: int) -> None:
    """The target refuses what comes next; then the session ends."""
    assert histories.life is not None
    replicator = histories.life.replicator
    replicator.hold_at(Blocker(GapKind.REFUSED_BATCH, replicator.cursor.position, source_to, "too large"))
    histories.life.write_state(99)
    assert histories.twins.open_gap() is not None
    histories.life = None


@pytest.mark.parametrize("lost", [0, 1])
def test_stepping_over_a_refused_batch_leaves_out_nothing_that_the_target_lost_before_it(lost: int) -> None:
    histories = begun()
    histories.write_and_catch_up([4])
    histories.start(0, False)
    for _ in range(2):
        histories.write_at_source(3, 0)
    histories.live([("fetch", 2), ("write", 9), ("produce", 2), ("ack", 2)])  # and no checkpoint
    refused(histories, 12)
    if lost:
        histories.target_loses_its_end(lost)
    histories.twins.accept()
    opening, _ = finish(histories.twins.open())
    (gap,) = histories.twins.folding.entries().gaps.values()
    assert opening.gap is None
    assert (opening.position, gap.status) == ((7, GapStatus.GONE) if lost else (12, GapStatus.PASSED))


@pytest.mark.parametrize(("start_at", "position"), [(10, 10), (11, None)])
def test_a_partition_does_not_begin_beyond_the_source_s_end(start_at: int, position: int | None) -> None:
    """Whoever accepted it did so before the source was cut, or by a slip: records still to come would be left out."""
    accepted = Gap(*WHERE, GapKind.TARGET_NOT_EMPTY, 3, start_at, 1, GapStatus.ACCEPTED, 0, "")
    evidence = Evidence(
        where=WHERE, shared=False, source=SourceLog(4, 10, "id", ""), tail=Tail(0, 2), recorded=Intervals(), blocks=(),
        checkpoint=None, now_ms=5, gaps=(accepted,), occupant="somebody wrote",
    )  # fmt: skip
    opening = open_partition(evidence, Writer(7, 2))
    statuses = {change.source_from: change.status for change in opening.changes if isinstance(change, Gap)}
    if position is None:
        assert opening.gap is not None
        assert opening.gap.detail == "somebody wrote; it was to begin at 11, and the source's log ends at 10"
        assert statuses == {3: GapStatus.GONE, 4: GapStatus.STOPPED}
    else:
        assert (opening.gap, opening.position, statuses) == (None, position, {3: GapStatus.PASSED})


def test_a_topics_id_is_written_when_it_is_new_and_when_none_of_it_stands_at_the_old_one() -> None:
    clock = ManualClock()
    old, new = UUID(int=1), UUID(int=2)
    names = ("known", "young", "recreated", "stands", "held", "has no id")
    link = Link("l", Site("east", "e:1"), Site("west", "w:1"), (".*",))
    recorded = {"known": str(new)} | {name: str(old) for name in ("recreated", "stands", "held", "has no id")}
    entries = StateEntries(link, topic_ids=recorded)
    mirrored = [MirroredTopic(name, name, None if name == "has no id" else new, 1) for name in names]
    holds = Holds(Attempts(WorkerLimits(), clock), clock)
    holds.add(Hold("held", 3, HoldReason.ERROR_AT_SOURCE, "", 1))
    gap = Gap("stands", 0, GapKind.RECREATED, 1, 2, 0, GapStatus.STOPPED, 1, "")
    stands = Opening(End(1, 1), 1, Intervals(), (gap,), gap)
    goes = Opening(End(1, 1), 1, Intervals(), (VoidHold("known", 0), VoidHold("known", 1)))
    changes = _opening_changes(entries, mirrored, [goes, stands], holds)
    ids = [TopicIdentity(name, str(new)) for name in ("young", "recreated")]
    assert changes == [*goes.changes, gap, *ids]
    lines = [replace(gap, topic="known", status=GapStatus.PASSED, source_from=n, at_ms=n) for n in range(2_000)]
    full = replace(entries, gaps={("known", 0, line.source_from, line.kind): line for line in lines})
    voids = [VoidEntry(line) for line in full.surplus_gaps()]
    assert voids
    assert _opening_changes(full, [], [], holds) == voids


@pytest.mark.parametrize("deletes", [False, True])
def test_mirrored_anew_all_comes_again_behind_what_is_there(deletes: bool) -> None:
    histories = begun()
    histories.write_and_catch_up([4, 2])
    histories.twins.target.batches[1:2] = []  # whatever a disk did to what the mirror had written
    before = histories.twins.target.end
    histories.is_mirrored_anew(deletes, really=True)
    histories.write_and_catch_up([3])
    again = [record.value for record in histories.twins.target.records() if record.offset >= before]
    assert again == [record.value for record in histories.twins.source.records()]
    histories.start(1, False)
    assert histories.life is not None
    assert histories.life.replicator.position == 9, "once"
    histories.teardown()


@pytest.mark.parametrize("cut", [2, 3, 4, 5, 6])
def test_a_target_that_begins_inside_of_a_batch_has_all_of_it(cut: int) -> None:
    """Its records were the mirror's own, and none is mirrored again."""
    histories = begun()
    histories.write_and_catch_up([1])
    histories.write_at_source(5, 0)
    histories.live([("fetch", 2), ("write", 9), ("produce", 1), ("ack", 1)])
    histories.life = None  # killed before the checkpoint
    histories.twins.target.delete_to(cut, inside=True)
    opening = finish(histories.twins.open())[0]
    assert (opening.gap, opening.position) == (None, 6)
