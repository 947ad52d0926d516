"""Whatever happens to either log: the partition stops or goes on; once accepted, what the source has is mirrored."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from mirror.offsets import map_ledger
from mirror.offsets.entries import GapKind, GapStatus, Writer
from tests.mirror.worker.histories import LOCAL_PRODUCER, Life, Twins, finish
from tests.worlds import first_worlds


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_ledger, "PACKED_BLOCKS_MIN", 1)
    monkeypatch.setattr(map_ledger, "PAGE_INTERVALS_MAX", 12)


RARELY = st.integers(0, 7).map(lambda drawn: drawn == 7)


class Histories(RuleBasedStateMachine):
    """The model is only this: what the source has is at the target, where the map says, before the position."""

    @initialize(shared=st.booleans(), epochs_hold=st.booleans())
    def begin(self, shared: bool, epochs_hold: bool) -> None:
        """Without epochs contents decide: where only markers were lost there is nothing that could tell."""
        self.epochs_hold = epochs_hold
        self.twins = Twins(shared)
        self.life: Life | None = None
        self.written = 0
        self.kinds: list[GapKind] = []
        self.others_wrote = False

    def new_values(self, count: int) -> range:
        self.written += count
        return range(self.written - count, self.written)

    # -- the source

    @rule(count=st.integers(1, 6), holes=st.sampled_from([0, 0, 0, 2]))
    def write_at_source(self, count: int, holes: int) -> None:
        self.twins.source.write(self.new_values(count), holes=holes)

    @rule()
    def mark_at_source(self) -> None:
        if self.epochs_hold:
            self.twins.source.mark(Writer(50, 0))

    @rule(
        lost=st.integers(0, 30),
        epochs=st.sampled_from(["go on", "are used again", "are lost"]),
        refill=st.lists(st.integers(1, 8), max_size=4),
    )
    def source_loses_its_end(self, lost: int, epochs: str, refill: list[int]) -> None:
        self.life = None  # the source went down for it, and its connections with it
        source = self.twins.source
        source.cut(max(source.start, source.end - lost))
        if epochs != "are used again" or self.epochs_hold:
            source.elect()
        if epochs == "are lost" and not self.epochs_hold:
            source.forget_epochs()
        for count in refill:
            source.write(self.new_values(count))

    @rule(kept=st.integers(0, 40), really=RARELY, inside=st.booleans())
    def retention_at_source(self, kept: int, really: bool, inside: bool = False) -> None:
        if really:
            self.twins.source.delete_to(max(self.twins.source.start, self.twins.source.end - kept), inside=inside)
            self.life = None

    @rule(really=RARELY)
    def source_is_recreated(self, really: bool) -> None:
        if really:
            self.twins.source.recreate()
            self.life = None

    # -- the target

    @rule(lost=st.integers(1, 30))
    def target_loses_its_end(self, lost: int) -> None:
        target = self.twins.target
        target.cut(max(target.start, target.end - lost))
        self.life = None

    @precondition(lambda self: self.life is not None and not self.life.landed and self.life.replicator.ready)
    @rule(lost=st.integers(1, 5))
    def target_loses_its_end_under_a_session(self, lost: int) -> None:
        """The next batch in it lands before the known end."""
        assert self.life is not None
        target, known_end = self.twins.target, self.life.replicator.end.target_next
        target.cut(max(target.start, target.end - lost))
        if target.end < known_end:  # and not only what its own clients wrote behind that
            self.life.produce(1)
            self.life.acknowledge(1)
            assert self.life.replicator.gap is not None
            self.life.write_state(99)
            self.life = None

    @rule(really=RARELY)
    def target_is_recreated(self, really: bool) -> None:
        if really:
            self.twins.target.recreate()
            self.life = None

    @rule(kept=st.integers(0, 9), really=RARELY, inside=st.booleans())
    def retention_at_target(self, kept: int, really: bool, inside: bool = False) -> None:
        if really:
            self.life = None
            self.twins.target.delete_to(max(self.twins.target.start, self.twins.target.end - kept), inside=inside)

    @rule(count=st.integers(1, 3), really=RARELY)
    def write_at_target(self, count: int, really: bool) -> None:
        if (self.life is None and really) or self.twins.shared:
            self.twins.target.write(self.new_values(count), LOCAL_PRODUCER)
            self.others_wrote = True

    # -- the mirror

    @rule(fences=st.integers(0, 3), accepts=st.booleans())
    def start(self, fences: int, accepts: bool) -> None:
        for _ in range(fences):
            self.twins.fence()
        if accepts and self.twins.open_gap() is not None:
            self.kinds.append(self.twins.accept())
        self.open()

    def open(self) -> None:
        opening, writer = finish(self.twins.open())
        self.life = Life(self.twins, opening, writer) if opening.gap is None else None
        assert self.others_wrote or opening.gap is None or opening.gap.kind is not GapKind.FOREIGN_WRITER, opening.gap
        if self.life is not None:
            assert self.twins.open_gap() is None
            self.twins.check_copies(self.life.replicator.map, opening.position)

    @rule(deletes=st.booleans(), really=RARELY)
    def is_mirrored_anew(self, deletes: bool, really: bool) -> None:
        """And what was there before is deleted, or is not yet."""
        if really:
            self.twins.ask_anew()
            self.open()
            if deletes and (from_there := self.twins.mirrored_anew_from()) is not None:
                self.life = None
                self.twins.target.delete_to(from_there, inside=True)

    @precondition(lambda self: self.life is not None)
    @rule(
        steps=st.lists(st.tuples(st.sampled_from(["fetch", "write", "produce", "ack"]), st.integers(1, 4)), max_size=9)
    )
    def live(self, steps: list[tuple[str, int]]) -> None:
        assert self.life is not None
        for step, count in steps:
            match step:
                case "fetch":
                    self.life.fetch(count)
                case "write":
                    self.life.write_state(count)
                case "produce":
                    self.life.produce(count)
                case _:
                    self.life.acknowledge(count)

    @precondition(lambda self: self.life is not None)
    @rule()
    def checkpoint(self) -> None:
        assert self.life is not None
        self.life.checkpoint()

    @precondition(lambda self: self.life is not None)
    @rule()
    def tidy(self) -> None:
        assert self.life is not None
        self.life.tidy()

    @rule(batches=st.lists(st.integers(1, 9), max_size=6))
    def write_and_catch_up(self, batches: list[int]) -> None:
        for count in batches:
            self.twins.source.write(self.new_values(count))
        if self.life is None:
            self.open()
        if self.life is not None:
            self.life.mirror_all()

    def teardown(self) -> None:
        """An operator accepts what is open, one after the other; then all that the source has is at the target."""
        if not hasattr(self, "twins"):
            return
        for _ in range(12):
            if self.twins.open_gap() is not None:
                self.twins.accept()
            self.open()
            if self.life is None:
                continue
            self.life.mirror_all()
            if self.life.replicator.gap is None:
                break
            self.life.write_state(99)
        else:
            raise AssertionError(f"it never goes on: {self.twins.open_gap()}")
        assert self.life.replicator.position == self.twins.source.end
        self.twins.check_copies(self.life.replicator.map, self.twins.source.end)
        opening, _ = finish(self.twins.open())
        assert opening.gap is None, opening.gap
        assert opening.position == self.twins.source.end, "nothing would be mirrored twice"


def test_once_accepted_every_record_of_the_source_is_at_the_target() -> None:
    thorough = settings(
        max_examples=first_worlds(200, of=400), stateful_step_count=40, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Histories, settings=thorough)


def begun(*, shared: bool = False, epochs_hold: bool = True) -> Histories:
    histories = Histories()
    histories.begin(shared=shared, epochs_hold=epochs_hold)
    return histories


def stopped_at(histories: Histories) -> tuple[GapKind, int, int]:
    histories.open()
    gap = histories.twins.open_gap()
    assert gap is not None, "it went on"
    return gap.kind, gap.source_from, gap.source_to


def test_as_many_fences_as_records_were_lost_do_not_hide_the_loss() -> None:
    histories = begun()
    histories.write_and_catch_up([3, 2])
    end = histories.twins.target.end
    histories.target_loses_its_end(lost=2)
    while histories.twins.target.end <= end:
        histories.twins.fence()
    assert stopped_at(histories) == (GapKind.TARGET_TRUNCATED, 5, 3)
    histories.teardown()


def test_a_cut_below_the_last_checkpoint_is_seen_by_the_sequences() -> None:
    """The first batch was lost, the second landed in its place: nothing but its sequence says so."""
    histories = begun()
    histories.write_at_source(1, 0)
    histories.start(0, False)
    histories.write_at_source(1, 0)
    histories.live([("fetch", 2), ("write", 9), ("produce", 1), ("ack", 1)])
    histories.target_loses_its_end_under_a_session(lost=1)
    assert stopped_at(histories)[:2] == (GapKind.TARGET_TRUNCATED, 0)
    histories.teardown()


def test_epochs_tell_where_no_copy_is_left_to_compare() -> None:
    histories = begun()
    histories.write_and_catch_up([4, 4])
    histories.twins.target.delete_to(histories.twins.target.end)
    histories.source_loses_its_end(4, "go on", [8])
    assert stopped_at(histories) == (GapKind.TRUNCATED_END, 8, 4)
    histories.teardown()


def test_epochs_that_deny_what_was_mirrored_are_overruled_by_copies_that_agree() -> None:
    histories = begun()
    histories.write_and_catch_up([4, 4])
    # A restored site that does not know the leaders of its log any more, and has the log.
    histories.twins.source.epochs.truncate_from_end(4)
    histories.twins.source.epochs.assign(9, 4)
    assert finish(histories.twins.open())[0].gap is None


def test_a_source_that_was_cut_and_overtaken_in_one_epoch_is_not_blamed_on_the_target() -> None:
    """A broker that is back before its controller missed it keeps its epoch: epochs vouch for what is not there."""
    histories = begun()
    histories.write_and_catch_up([4, 4])
    histories.twins.source.cut(4)
    histories.twins.source.write(range(1000, 1006))
    assert stopped_at(histories) == (GapKind.TRUNCATED_END, 8, 4)
    histories.teardown()


def test_without_epochs_and_copies_all_that_the_source_has_is_mirrored_again() -> None:
    """What cannot be known is not guessed: nothing is left out for it."""
    histories = begun(epochs_hold=False)
    histories.write_and_catch_up([4, 4])
    histories.twins.target.delete_to(histories.twins.target.end)
    histories.source_loses_its_end(6, "are lost", [])
    assert stopped_at(histories) == (GapKind.TRUNCATED_END, 8, 0)
    histories.teardown()


def test_where_the_target_s_retention_took_markers_and_records_nobody_guesses_how_many() -> None:
    histories = begun()
    histories.write_and_catch_up([2])
    histories.write_at_source(3, 0)
    histories.live([("fetch", 1), ("write", 9), ("produce", 1)])  # landed, and no checkpoint says so
    histories.life = None
    histories.write_at_source(4, 0)
    for _ in range(3):
        histories.twins.fence()
    histories.twins.target.delete_to(histories.twins.target.end)
    assert stopped_at(histories)[0] is GapKind.TARGET_NOT_EMPTY
    histories.teardown()
    assert len(histories.twins.target.records()) == 7  # consented to: three of them had landed before


def test_intervals_that_a_cut_target_does_not_reach_are_not_believed_again() -> None:
    histories = begun(epochs_hold=False)
    histories.write_and_catch_up([1])
    histories.start(0, False)
    histories.write_and_catch_up([1])
    histories.target_loses_its_end(4)
    histories.open()
    histories.retention_at_source(0, True)
    histories.write_at_source(1, 0)
    histories.target_loses_its_end(1)
    histories.start(0, True)
    histories.teardown()


def test_a_target_that_was_emptied_does_not_hide_behind_the_source_s_epochs() -> None:
    histories = begun()
    histories.twins.target.write(histories.new_values(1), LOCAL_PRODUCER)
    histories.start(0, False)
    histories.write_and_catch_up([1])
    histories.target_loses_its_end(3)
    assert stopped_at(histories) == (GapKind.TARGET_TRUNCATED, 1, 0)
    histories.teardown()


def test_a_source_that_got_back_what_it_had_lost_goes_on_by_itself() -> None:
    """The partition stood still; then the very log that was mirrored is back, and the accepted gap is not there."""
    histories = begun()
    histories.write_and_catch_up([4, 4])
    kept = list(histories.twins.source.batches), histories.twins.source.end
    histories.source_loses_its_end(4, "are used again", [1])
    assert stopped_at(histories) == (GapKind.TRUNCATED_END, 8, 4)
    source = histories.twins.source
    source.batches, source.end = kept
    source.forget_epochs()
    histories.start(0, True)
    assert histories.life is not None
    assert histories.life.replicator.position == 8
    (gap,) = histories.twins.folding.entries().gaps.values()
    assert gap.status is GapStatus.GONE
    histories.teardown()


def test_an_accepted_gap_that_became_another_needs_another_consent() -> None:
    histories = begun()
    histories.write_and_catch_up([4, 4])
    histories.source_loses_its_end(4, "go on", [8])
    assert stopped_at(histories)[0] is GapKind.TRUNCATED_END
    histories.twins.accept()
    histories.source_is_recreated(True)
    histories.write_at_source(2, 0)
    assert stopped_at(histories)[0] is GapKind.RECREATED
    histories.teardown()
    statuses = {gap.kind: gap.status for gap in histories.twins.folding.entries().gaps.values()}
    assert statuses == {GapKind.TRUNCATED_END: GapStatus.GONE, GapKind.RECREATED: GapStatus.PASSED}


def test_what_a_source_cut_off_inside_of_a_batch_stays_gone_when_retention_keeps_the_batch() -> None:
    """It is mirrored from inside of the batch, and by what comes later nothing before that is asked of the target."""
    histories = begun(epochs_hold=False)
    histories.write_at_source(2, 0)
    histories.retention_at_source(1, True, inside=True)
    histories.write_and_catch_up([])
    histories.retention_at_source(1, True)
    assert histories.twins.source.start == 1
    histories.write_and_catch_up([1])
    assert [record.value for record in histories.twins.target.records()] == [b"1", b"2"]
    histories.teardown()


@pytest.mark.parametrize("accepted_before", [False, True])
def test_a_target_with_others_records_does_not_hide_what_a_source_has_since_it_lost_its_end(
    accepted_before: bool,
) -> None:
    """Both gaps are accepted: what the source has behind where the logs part is mirrored, and not left out."""
    histories = begun()
    histories.write_and_catch_up([2])
    if not accepted_before:
        histories.source_loses_its_end(2, "go on", [2])
    for _ in range(3):
        histories.twins.fence()
    histories.twins.target.delete_to(histories.twins.target.end)  # nothing says how many of them were records
    histories.open()
    if accepted_before:
        assert histories.twins.accept() is GapKind.TARGET_NOT_EMPTY
        histories.source_loses_its_end(2, "go on", [2])
    histories.teardown()
    assert [record.value for record in histories.twins.target.records()] == [b"2", b"3"]
