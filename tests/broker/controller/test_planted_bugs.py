"""Bugs that a controller could have, planted one at a time: `test_cluster_of_brokers` finds each within few seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest

from broker.cluster.metadata import Controller, LiveBroker, PartitionState
from broker.cluster.zookeeper import topics as znodes
from broker.cluster.zookeeper.session import Operation, ZooKeeper
from broker.controller import cluster as knowledge
from broker.controller import controller, elections, queues, reassigning, reign, topics
from broker.controller.cluster import BrokersChanged, Cluster
from broker.controller.elections import Liveness
from broker.controller.reassignment import Assignment
from broker.wire.vocabulary import TopicPartition
from tests.broker.controller.checked_zookeeper import Violation
from tests.broker.controller.test_cluster_of_brokers import live_through

SEEDS = 150

Plant = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """A deposed controller writes on."""

    async def unfenced(zk: ZooKeeper, controller: Controller, operations: Sequence[Operation]) -> list[Any]:
        return await zk.multi(operations)

    patch.setattr(znodes, "fenced", unfenced)


def same_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new leader in the epoch of the one before."""

    def changed(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
        return replace(state, leader=leader, isr=isr)

    patch.setattr(elections, "_changed", changed)


def out_of_sync(patch: pytest.MonkeyPatch) -> None:
    """Whoever is there may lead."""

    def unclean(state: PartitionState, brokers: Liveness, restarted: Set[int], *, unclean: bool) -> PartitionState:
        return elections.after_brokers_changed(state, brokers, unclean=True)

    patch.setattr(knowledge, "after_restarts", unclean)


def in_sync_without_a_folder(patch: pytest.MonkeyPatch) -> None:
    """A new partition counts all its replicas as in sync, whether they have made it or not."""

    def all_of_them(state: PartitionState, ready: Set[int]) -> PartitionState:
        return replace(state, leader=state.replicas[0], leader_epoch=0, isr=state.replicas)

    patch.setattr(topics, "first_leader", all_of_them)


def restart_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A broker that is back before anybody looked counts as never gone."""
    seen = Cluster.take_brokers

    def take(self: Cluster, now: Mapping[int, LiveBroker]) -> BrokersChanged:
        changed = seen(self, now)
        return BrokersChanged(changed.came - changed.restarted, changed.gone, frozenset())

    patch.setattr(Cluster, "take_brokers", take)


def brokers_of_the_election_only(patch: pytest.MonkeyPatch) -> None:
    """Brokers that come later are given nothing."""
    patch.setattr(controller, "WATCHED", tuple(kind for kind in reign.WATCHED if kind.name != "BROKERS"))


def new_before_complete(patch: pytest.MonkeyPatch) -> None:
    """A broker that was just told to make a partition takes it for a stray when it is told what is its own."""
    begin = queues.BrokerQueue.__init__

    def early(self: queues.BrokerQueue, *given: Any) -> None:
        begin(self, *given)
        self._begun.set()

    patch.setattr(queues.BrokerQueue, "__init__", early)


def gone_before_the_others_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Replicas go as soon as the new ones are assigned."""

    def at_once(state: PartitionState) -> Assignment | None:
        target = tuple(node for node in state.replicas if node not in state.removing_replicas)
        return Assignment(target) if elections.is_reassigned(state) else None

    patch.setattr(reassigning, "arrived", at_once)


def forgotten_by_the_next_controller(patch: pytest.MonkeyPatch) -> None:
    """A reassignment ends with the controller that began it."""
    begin = Cluster.__init__

    def begun(self: Cluster, *given: Any) -> None:
        begin(self, *given)
        self.reassigned = set()

    patch.setattr(Cluster, "__init__", begun)


def called_off_and_kept(patch: pytest.MonkeyPatch) -> None:
    """Replicas that were being added, or were to go, keep their folders."""
    patch.setattr(reassigning, "removal_orders", lambda *given: {})


def still_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Replicas go while they are in the ISR."""

    def with_all(state: PartitionState, dropped: Set[int], brokers: Liveness) -> PartitionState | None:
        return elections.in_new_epoch(state, state.isr, brokers)

    patch.setattr(knowledge, "without", with_all)


def in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """Its leader is not asked to look anew: it writes who goes into the ISR again, and never learns who comes."""

    async def as_they_are(reign: reign.Reign, dropped: object) -> set[TopicPartition]:
        return set()

    patch.setattr(reassigning, "_begin_epochs", as_they_are)


def gone_on_with_in_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """A controller that died between the two writes of a reassignment: the next one orders what is assigned, in the
    leader epoch of before, and the leader has heard it all.
    """

    async def as_it_was(reign: reign.Reign) -> None:
        reign.announce(reign.cluster.reassigned)
        await reassigning.settle(reign)

    patch.setattr(controller, "resume", as_it_was)


BUGS: tuple[Plant, ...] = (
    no_fence,
    same_epoch,
    out_of_sync,
    in_sync_without_a_folder,
    restart_not_seen,
    brokers_of_the_election_only,
    new_before_complete,
)


BUGS_OF_REASSIGNMENTS: tuple[Plant, ...] = (
    gone_before_the_others_are_in_sync,
    forgotten_by_the_next_controller,
    called_off_and_kept,
    still_in_sync,
    in_the_same_epoch,
    gone_on_with_in_the_same_epoch,
)


FIRST_SEEDS: dict[Plant, int] = {gone_before_the_others_are_in_sync: 52, gone_on_with_in_the_same_epoch: 331}
"""One that takes a death at one of few places is looked for near a seed that has it."""


@pytest.mark.parametrize("plant", [*BUGS, *BUGS_OF_REASSIGNMENTS])
async def test_it_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first = FIRST_SEEDS.get(plant, 0)
    for seed in range(first, first + SEEDS):
        try:
            await live_through(seed, operated=plant in BUGS_OF_REASSIGNMENTS)
        except Violation:
            return
    pytest.fail(f"{plant.__name__} was not found with {SEEDS} seeds")
