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
from broker.controller import controller, elections, queues, reign, topics
from broker.controller.cluster import BrokersChanged, Cluster
from broker.controller.elections import Liveness
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


BUGS: tuple[Plant, ...] = (
    no_fence,
    same_epoch,
    out_of_sync,
    in_sync_without_a_folder,
    restart_not_seen,
    brokers_of_the_election_only,
    new_before_complete,
)


@pytest.mark.parametrize("plant", BUGS)
async def test_it_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            await live_through(seed)
        except Violation:
            return
    pytest.fail(f"{plant.__name__} was not found with {SEEDS} seeds")
