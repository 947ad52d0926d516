"""Where the metadata are older than the logs, the logs show who has all that was acknowledged, or that nobody has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.metadata import BrokerRegistration, LiveBroker, PartitionState, TopicState
from broker.cluster.orders import ReplicaLog
from broker.controller.cluster import Cluster
from broker.controller.elections import Liveness
from broker.controller.undecided import hindrance, most_complete, parted, undecided
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from tests.broker.replicas.test_manager import topic

NODES = (1, 2, 3)
EVERYBODY = Liveness(frozenset(NODES))
T0 = TopicPartition("t", 0)
OLDER = PartitionState(1, 4, NODES, NODES, version=7)
"""As an older copy of the metadata has it."""
UNDECIDED = replace(OLDER, leader=NO_LEADER, leader_epoch=9, isr=())


class History:
    """One partition as replication makes it, without a fault in the metadata: records are (epoch, number)."""

    def __init__(self) -> None:
        self.logs: dict[int, list[tuple[int, int]]] = {node: [] for node in NODES}
        self.begun: dict[int, int] = {}
        """The newest epoch that a node led, which may have no record."""
        self.high_watermarks = dict.fromkeys(NODES, 0)
        self.isr = set(NODES)
        self.epoch = 0
        self.leader = 1
        self.start = 0
        self.heard: set[int] = set()
        self.acknowledged: list[tuple[int, int]] = []
        self._numbers = 0

    def elect(self, node: int) -> None:
        if node in self.isr:
            self.epoch, self.leader, self.heard = self.epoch + 1, node, set()
            self.begun[node] = self.epoch
            self.start = len(self.logs[node])

    def append(self, node: int) -> None:
        self._numbers += 1
        self.logs[self.leader].append((self.epoch, self._numbers))

    def fetch(self, node: int) -> None:
        own, led = self.logs[node], self.logs[self.leader]
        same = next((i for i, (a, b) in enumerate(zip(own, led, strict=False)) if a != b), min(len(own), len(led)))
        self.logs[node] = led[: same + 2]
        self.begun.pop(node, None) if node != self.leader else None
        self.heard.add(node)
        self._advance()
        self.high_watermarks[node] = min(self.high_watermarks[self.leader], len(self.logs[node]))

    def drop(self, node: int) -> None:
        if node != self.leader and node in self.isr:
            self.isr.discard(node)
            self._advance()

    def take_in(self, node: int) -> None:
        behind = max(self.start, self.high_watermarks[self.leader])
        if node in self.heard and len(self.logs[node]) >= behind:
            self.isr.add(node)

    def crash(self, node: int) -> None:
        """The high watermark that it finds on its disk is an older one."""
        self.high_watermarks[node] //= 2

    def _advance(self) -> None:
        if self.isr - {self.leader} <= self.heard:
            reached = min(len(self.logs[node]) for node in self.isr)
            if reached > len(self.acknowledged):
                self.acknowledged = self.logs[self.leader][:reached]
            self.high_watermarks[self.leader] = max(self.high_watermarks[self.leader], reached)

    def told(self, node: int) -> ReplicaLog:
        log, epochs = self.logs[node], dict[int, int]()
        for offset, (epoch, _) in enumerate(log):
            epochs.setdefault(epoch, offset)
        if (begun := self.begun.get(node, -1)) > max(epochs, default=-1):
            epochs[begun] = len(log)
        latest = max(epochs, default=0)
        return ReplicaLog(latest, tuple(epochs.items()), len(log), min(self.high_watermarks[node], len(log)))


ACTIONS = st.sampled_from(["append", "append", "fetch", "fetch", "fetch", "elect", "drop", "take_in", "crash"])


@given(st.lists(st.tuples(ACTIONS, st.sampled_from(NODES)), max_size=80))
def test_of_one_history_who_leads_has_all_that_was_acknowledged(actions: list[tuple[str, int]]) -> None:
    history = History()
    for what, node in actions:
        if what != "fetch" or node != history.leader:
            getattr(history, what)(node)
    logs = {node: history.told(node) for node in NODES}
    state = undecided(OLDER, logs.values())
    assert state.leader_epoch > max(log.leader_epoch for log in logs.values())
    after = most_complete(state, logs, EVERYBODY, unclean=False)
    lengths = {len(log) for log in history.logs.values()}
    if 0 in lengths and len(lengths) > 1:
        assert after is state, "a log without any record may be in place of one that was lost"
        after = most_complete(state, logs, EVERYBODY, unclean=True)
    assert after.leader in NODES
    assert (after.leader_epoch, after.isr) == (state.leader_epoch + 1, (after.leader,))
    assert history.logs[after.leader][: len(history.acknowledged)] == history.acknowledged


def log(*epochs: tuple[int, int], end: int, high_watermark: int = 0) -> ReplicaLog:
    return ReplicaLog(epochs[-1][0] if epochs else -1, epochs, end, high_watermark)


LATEST = log((0, 0), (4, 80), (8, 100), end=150, high_watermark=140)
BEHIND = log((0, 0), (4, 80), end=100, high_watermark=90)


def test_who_is_away_is_waited_for_and_unclean_goes_on_without() -> None:
    told = {1: BEHIND, 2: LATEST}
    two = Liveness(frozenset((1, 2)))
    assert most_complete(UNDECIDED, told, two, unclean=False) is UNDECIDED
    assert "replicas [3] have not told" in (hindrance(UNDECIDED, told) or "")
    assert most_complete(UNDECIDED, told, EVERYBODY, unclean=True) is UNDECIDED, "3 is there, and about to tell"
    after = most_complete(UNDECIDED, told, two, unclean=True)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 10)
    assert most_complete(UNDECIDED, {**told, 3: BEHIND}, EVERYBODY, unclean=False) == after


def test_a_replica_that_is_added_is_not_waited_for() -> None:
    moving = replace(UNDECIDED, replicas=(4, *NODES), adding_replicas=(4,))
    told = {1: BEHIND, 2: LATEST, 3: BEHIND}
    assert most_complete(moving, told, EVERYBODY, unclean=False).leader == 2


def test_what_was_acknowledged_by_the_older_metadata_is_not_dropped_either() -> None:
    """Replica 2 was away, and 1 and 3 went on by the older copy, which gave out later epochs than theirs."""
    since = log((0, 0), (4, 80), (5, 100), end=120, high_watermark=120)
    told = {1: since, 2: LATEST, 3: since}
    assert most_complete(UNDECIDED, told, EVERYBODY, unclean=False) is UNDECIDED
    assert "replica 1 from offset 100 on other records" in (hindrance(UNDECIDED, told) or "")
    assert most_complete(UNDECIDED, told, Liveness(frozenset((1, 3))), unclean=True).leader == 1, "by who is stopped"


def test_without_any_record_nobody_has_less() -> None:
    told = dict.fromkeys(NODES, log((8, 0), end=0))
    assert most_complete(UNDECIDED, told, EVERYBODY, unclean=False).leader == 1


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (BEHIND, LATEST, 100),
        (LATEST, BEHIND, 100),
        (log((0, 0), (4, 80), (5, 100), end=120), LATEST, 100),
        (log((0, 0), (4, 80), end=130), LATEST, 100),
        (log((3, 70), end=130), log((0, 0), (4, 80), end=150), 0),
        (log((4, 90), end=130), LATEST, 100),
        (log((8, 120), end=130), LATEST, 130),
        (log((0, 0), end=50), log((8, 60), end=90), 50),
        (log(end=0), LATEST, 0),
    ],
)
def test_where_two_logs_part(one: ReplicaLog, other: ReplicaLog, common: int) -> None:
    assert parted(one, other) == common


# -- as the controller works it off ----------------------------------------------------------------------------------


def cluster_of(state: PartitionState, *nodes: int, **configs: str) -> Cluster:
    told: TopicState = topic(state, **configs)
    return Cluster({"t": told}, {node: LiveBroker(BrokerRegistration(node, ()), 100 + node) for node in nodes})


def written(cluster: Cluster, state: PartitionState) -> PartitionState:
    cluster.take({T0: replace(state, version=state.version + 1)})
    found = cluster.state(T0)
    assert found is not None
    return found


def test_a_log_of_a_later_epoch_ends_the_leadership_and_all_logs_decide() -> None:
    cluster = cluster_of(OLDER, *NODES)
    asked = cluster.take_logs(2, {T0: LATEST})[T0]
    assert (asked.leader, asked.isr, asked.leader_epoch) == (NO_LEADER, (), 9)
    state = written(cluster, asked)
    assert state.is_undecided
    assert cluster.elections({T0: state}) == {}, "what was told before is not what is there now"
    assert cluster.take_logs(2, {T0: replace(LATEST, leader_epoch=9)}) == {}
    assert cluster.hindrance(T0) is None, "the others are about to tell"
    assert cluster.take_logs(1, {T0: replace(BEHIND, leader_epoch=9)}) == {}
    elected = cluster.take_logs(3, {T0: replace(BEHIND, leader_epoch=9)})[T0]
    assert (elected.leader, elected.isr, elected.leader_epoch) == (2, (2,), 10)
    written(cluster, elected)
    assert cluster.logs == {}
    assert cluster.take_logs(1, {T0: replace(BEHIND, leader_epoch=9)}) == {}, "an answer that was long on its way"


def test_a_still_later_epoch_is_gone_above() -> None:
    cluster = cluster_of(UNDECIDED, *NODES)
    assert cluster.take_logs(3, {T0: replace(LATEST, leader_epoch=30)})[T0].leader_epoch == 31


def test_what_a_broker_told_in_an_earlier_life_does_not_count() -> None:
    cluster = cluster_of(UNDECIDED, *NODES)
    for node in (1, 2):
        cluster.take_logs(node, {T0: replace(LATEST, leader_epoch=9)})
    brokers = cluster.brokers
    cluster.take_brokers({n: b for n, b in brokers.items() if n != 1})
    assert cluster.take_logs(3, {T0: replace(LATEST, leader_epoch=9)}) == {}
    assert "replicas [1] have not told" in (cluster.hindrance(T0) or "")
    cluster.take_brokers(brokers)
    assert cluster.elections({T0: UNDECIDED}) == {}
    assert cluster.take_logs(1, {T0: replace(BEHIND, leader_epoch=9)})[T0].leader == 2


def test_by_command_and_by_configuration_it_goes_on_with_those_that_are_there() -> None:
    told = {2: {T0: replace(LATEST, leader_epoch=9)}, 1: {T0: replace(BEHIND, leader_epoch=9)}}
    cluster = cluster_of(UNDECIDED, 1, 2)
    for node, logs in told.items():
        assert cluster.take_logs(node, logs) == {}
    wanted, refused = cluster.asked_elections([T0], unclean=True)
    assert (wanted[T0].leader, refused) == (2, {})
    assert cluster.asked_elections([T0], unclean=False) == ({}, {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
    unclean = cluster_of(UNDECIDED, 1, 2, **{"unclean.leader.election.enable": "true"})
    assert unclean.take_logs(1, told[1]) == {}
    assert unclean.take_logs(2, told[2])[T0].leader == 2


def test_brokers_that_come_and_go_elect_nobody_of_an_undecided_partition() -> None:
    cluster = cluster_of(UNDECIDED, *NODES)
    assert cluster.elections_after_taking_over() == {}
    assert cluster.elections_for_leaving(1) == {}
    assert cluster.preferred_elections([T0]) == {}
    cluster.take_brokers({2: cluster.brokers[2]})
    assert cluster.elections(cluster.elected(), frozenset({2})) == {}
