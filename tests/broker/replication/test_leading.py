"""A leader's view of its replicas: what is acknowledged is at every replica that could lead next."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.cluster.metadata import PartitionState
from broker.replication.leading import NOWHERE, Leading

NODES = (1, 2, 3)
LAG_MS = 1000.0


def leading(*, isr: tuple[int, ...] = NODES, end: int = 10, high_watermark: int = 4, now_ms: float = 0.0) -> Leading:
    state = PartitionState(1, 5, NODES, isr)
    return Leading(1, state, log_end_offset=end, high_watermark=high_watermark, now_ms=now_ms)


def fetch(leader: Leading, node_id: int, offset: int, *, end: int = 10, now_ms: float = 0.0) -> bool:
    return leader.fetched(node_id, offset, log_start_offset=0, log_end_offset=end, now_ms=now_ms)


def test_the_only_replica_acknowledges_at_once() -> None:
    only = Leading(1, PartitionState(1, 0, (1,), (1,)), log_end_offset=0, high_watermark=0, now_ms=0)
    assert only.advance(7)
    assert only.high_watermark == 7
    assert only.knows_end


def test_the_high_watermark_is_the_lowest_end_of_those_in_sync() -> None:
    leader = leading()
    assert not fetch(leader, 2, 10)
    assert fetch(leader, 3, 8)
    assert leader.high_watermark == 8
    assert not fetch(leader, 3, 6), "a follower that lost its end takes nothing back"
    assert leader.high_watermark == 8


def test_one_that_has_not_fetched_in_this_epoch_has_nothing() -> None:
    leader = leading()
    follower = leader.follower(2)
    assert follower is not None
    assert follower.end_offset == NOWHERE
    assert leader.high_watermark == 4


def test_a_new_leader_tells_no_end_before_it_reached_the_start_of_its_epoch() -> None:
    leader = leading()
    fetch(leader, 2, 10)
    fetch(leader, 3, 9)
    assert not leader.knows_end
    fetch(leader, 3, 10)
    assert leader.knows_end


def test_who_keeps_up_with_a_growing_log_is_in_sync_though_it_never_has_all() -> None:
    leader = leading()
    for step in range(20):
        now_ms = step * LAG_MS / 2
        fetch(leader, 2, 10 + step, end=11 + step, now_ms=now_ms)
        assert leader.shrink(11 + step, LAG_MS, now_ms) in (None, frozenset({1, 2}))
    assert leader.shrink(31, LAG_MS, 9.5 * LAG_MS) == frozenset({1, 2}), "3 never came"


def test_who_has_all_stays_however_long_nothing_comes() -> None:
    leader = leading()
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.shrink(10, LAG_MS, 1e9) is None
    assert leader.shrink(11, LAG_MS, 1e9) == frozenset({1})


def test_a_shrink_counts_when_it_is_written_and_not_before() -> None:
    leader = leading()
    fetch(leader, 2, 10)
    wanted = leader.shrink(10, LAG_MS, 2 * LAG_MS)
    assert wanted == frozenset({1, 2})
    leader.begin_change(wanted)
    assert not leader.advance(10), "3 may be in sync, and elected"
    assert leader.shrink(10, LAG_MS, 9 * LAG_MS) is None, "one change at a time"
    assert leader.written(PartitionState(1, 5, NODES, (1, 2), version=1), 10, 0)
    assert leader.high_watermark == 10


def test_an_expansion_counts_from_when_it_is_asked_for() -> None:
    leader = leading(isr=(1, 2))
    fetch(leader, 2, 10)
    assert leader.expand(3) is None, "it has not fetched"
    fetch(leader, 3, 9)
    assert leader.expand(3) is None, "it lacks what was acknowledged"
    fetch(leader, 3, 10)
    wanted = leader.expand(3)
    assert wanted == frozenset(NODES)
    leader.begin_change(wanted)
    fetch(leader, 2, 20, end=20)
    assert leader.high_watermark == 10
    assert leader.isr == frozenset({1, 2})
    leader.written(PartitionState(1, 5, NODES, (1, 2)), 20, 0)
    assert leader.high_watermark == 20, "it was refused"


def test_who_has_the_high_watermark_but_not_the_start_of_the_epoch_stays_out() -> None:
    """What lies between may have been acknowledged by the leader before, which knew more."""
    leader = leading(isr=(1, 2), high_watermark=4)
    fetch(leader, 3, 4)
    assert leader.expand(3) is None


def test_too_few_in_sync() -> None:
    leader = leading(isr=(1, 2))
    assert leader.may_append(2)
    assert not leader.may_append(3)
    leader.begin_change(frozenset(NODES))
    assert not leader.may_append(3), "not until it is known"
    assert leader.has_enough_in_sync(3), "but what is before the high watermark is at three"
    assert leader.may_append(2)
    only = Leading(1, PartitionState(1, 0, (1,), (1,)), log_end_offset=0, high_watermark=0, now_ms=0)
    assert only.may_append(2), "there cannot be more than there are replicas"


def test_the_low_watermark_is_that_of_all_in_sync() -> None:
    leader = leading()
    for node_id, start in ((2, 3), (3, 5)):
        leader.fetched(node_id, 10, log_start_offset=start, log_end_offset=10, now_ms=0)
    assert leader.low_watermark(7) == 3


class Elections(RuleBasedStateMachine):
    """Logs as lists of (epoch, number), leaders elected from the ISR that is written, zombies that go on leading, and
    changes of the ISR of which the outcome is told late or never.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, list[tuple[int, int]]] = {node: [] for node in NODES}
        self.state = PartitionState(1, 0, NODES, NODES, version=0)
        # All who think that they lead: of several epochs, at several brokers.
        self.leaders: dict[int, Leading] = {}
        self.versions: dict[int, int] = {}
        self.asked: dict[int, PartitionState] = {}
        self.acknowledged: list[tuple[int, int]] = []
        self.now_ms = 0.0
        self.number = 0
        # The newest leader epoch that each has heard of.
        self.known = dict.fromkeys(NODES, 0)
        self._begin()

    def _begin(self) -> None:
        leader = self.state.leader
        end = len(self.logs[leader])
        high_watermark = max([0, *(one.high_watermark for node, one in self.leaders.items() if node == leader)])
        self.leaders[leader] = Leading(
            leader, self.state, log_end_offset=end, high_watermark=high_watermark, now_ms=self.now_ms
        )
        self.known[leader] = self.state.leader_epoch
        self.versions[leader] = self.state.version

    @rule(data=st.data(), count=st.integers(1, 2))
    def append(self, data: st.DataObject, count: int) -> None:
        node = data.draw(st.sampled_from(sorted(self.leaders)))
        leader = self.leaders[node]
        for _ in range(count):
            self.number += 1
            self.logs[node].append((leader.epoch, self.number))
        leader.advance(len(self.logs[node]))

    @rule(data=st.data(), times=st.integers(1, 3), wait_ms=st.sampled_from([1, 700]))
    def fetch(self, data: st.DataObject, times: int, wait_ms: int) -> None:
        """By one that knows of no newer leader. What it is given it takes at the next time: each answer may be lost."""
        to = data.draw(st.sampled_from(sorted(self.leaders)))
        leader = self.leaders[to]
        free = [node for node in NODES if node != to and self.known[node] <= leader.epoch]
        if not free:
            return
        node = data.draw(st.sampled_from(free))
        self.now_ms += wait_ms
        self.leaders.pop(node, None)
        self.known[node] = leader.epoch
        log, theirs = self.logs[node], self.logs[to]
        for _ in range(times):
            same = 0
            while same < min(len(log), len(theirs)) and log[same] == theirs[same]:
                same += 1
            del log[same:]
            leader.fetched(node, same, log_start_offset=0, log_end_offset=len(theirs), now_ms=self.now_ms)
            log.extend(theirs[same : same + 2])

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.leaders)))
        leader = self.leaders[node]
        ways = [leader.expand(other) for other in NODES if other != node]
        wanted = [isr for isr in [*ways, leader.shrink(len(self.logs[node]), LAG_MS, self.now_ms)] if isr is not None]
        if not wanted:
            return
        isr = data.draw(st.sampled_from(wanted))
        leader.begin_change(isr)
        self.asked[node] = replace(
            self.state, leader=node, leader_epoch=leader.epoch, isr=tuple(sorted(isr)), version=self.versions[node]
        )

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), told=st.booleans())
    def write(self, data: st.DataObject, told: bool) -> None:
        node = data.draw(st.sampled_from(sorted(self.asked)))
        asked = self.asked[node]
        if asked.version == self.state.version:
            self.state = replace(asked, version=asked.version + 1)
        if told:
            del self.asked[node]
            if node in self.leaders and self.state.leader_epoch == self.leaders[node].epoch:
                self.versions[node] = self.state.version
                self.leaders[node].written(self.state, len(self.logs[node]), self.now_ms)

    @precondition(lambda self: self.state.leader_epoch < 8)
    @rule(data=st.data(), leaves=st.booleans())
    def elect(self, data: st.DataObject, leaves: bool) -> None:
        leader = data.draw(st.sampled_from(self.state.isr))
        isr = tuple(node for node in self.state.isr if node == leader or not leaves)
        self.state = replace(
            self.state, leader=leader, leader_epoch=self.state.leader_epoch + 1, isr=isr, version=self.state.version + 1
        )
        self._begin()

    @invariant()
    def nothing_acknowledged_is_above_a_later_leaders_log(self) -> None:
        for node, leader in self.leaders.items():
            end = leader.high_watermark
            assert end <= len(self.logs[node])
            news = self.logs[node][:end]
            shared = min(len(news), len(self.acknowledged))
            assert news[:shared] == self.acknowledged[:shared]
            if len(news) > shared:
                self.acknowledged = list(news)
        for node in self.state.isr:
            assert self.logs[node][: len(self.acknowledged)] == self.acknowledged, "it may be elected"

    @invariant()
    def the_isr_is_of_the_replicas(self) -> None:
        for leader in self.leaders.values():
            assert leader.maximal_isr <= set(NODES)


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=60, stateful_step_count=40)
