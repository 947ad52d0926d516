"""The simulation bites: each of these bugs, planted into the brokers' code, is found within a thousand seeds."""

from __future__ import annotations

from typing import Any

import pytest

from broker.broker import Broker
from broker.cluster.metadata import PartitionState
from broker.cluster.orders import Order
from broker.controller import cluster as knowledge
from broker.controller import elections
from broker.coordination.internal_log import StateLog
from broker.handlers import produce
from broker.replicas.manager import ReplicaManager
from broker.topics.partition import Partition
from tests.broker.plants import (
    Plant,
    acknowledges_before_it_is_replicated,
    expands_too_early,
    truncates_by_high_watermark,
)
from tests.broker.simulation.seeds import CONTROLLERS_DEPOSED, SESSIONS_END, STATES_PUT_BACK, WORLDS
from tests.broker.worlds import Worlds

SEEDS = 1000


def refuses_what_others_may_have(patch: pytest.MonkeyPatch) -> None:
    """As Kafka does: NOT_LEADER_OR_FOLLOWER for a batch that was appended before another led."""
    patch.setattr(produce, "_code_after_append", lambda error: error.error_code)


def a_coordinator_tells_what_is_not_replicated(patch: pytest.MonkeyPatch) -> None:
    async def planted(_self: StateLog, *_given: Any) -> None:
        pass

    patch.setattr(StateLog, "replicated", planted)
    patch.setattr(StateLog, "all_replicated", planted)


def leads_when_its_session_is_over(patch: pytest.MonkeyPatch) -> None:
    """By what it is told alone: others may lead meanwhile, and readers are shown less than others were."""
    patch.setattr(Broker, "check_leading", lambda _self: None)


def takes_orders_of_who_was_controller_once(patch: pytest.MonkeyPatch) -> None:
    def planted(self: ReplicaManager, order: Order) -> None:
        self.controller_epoch = order.controller_epoch

    patch.setattr(ReplicaManager, "_check", planted)


def elects_who_is_not_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Whoever lives, at once."""
    chosen = elections._changed

    def planted(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
        other = next((node for node in state.replicas if node not in isr), None)
        return chosen(state, leader, isr) if other is None or leader < 0 else chosen(state, other, (other,))

    patch.setattr(elections, "_changed", planted)


def elects_by_the_metadata_alone(patch: pytest.MonkeyPatch) -> None:
    """In the next epoch of the state, whatever the logs say."""
    patch.setattr(Partition, "check_not_behind", lambda _self, _state: None)


def elects_above_all_logs_whoever_was_in_sync_once(patch: pytest.MonkeyPatch) -> None:
    """The epochs are right, and who leads is not asked what he has."""

    def planted(state: PartitionState, _logs: object, brokers: elections.Liveness, *, unclean: bool) -> PartitionState:
        there = [node for node in state.replicas if node in brokers.live]
        return elections._changed(state, there[0], (there[0],)) if there else state

    patch.setattr(knowledge, "most_complete", planted)


PLANTS: tuple[tuple[Plant, Worlds], ...] = (
    (acknowledges_before_it_is_replicated, WORLDS),
    (refuses_what_others_may_have, WORLDS),
    (truncates_by_high_watermark, WORLDS),
    (a_coordinator_tells_what_is_not_replicated, WORLDS),
    (elects_who_is_not_in_sync, WORLDS),
    (leads_when_its_session_is_over, SESSIONS_END),
    (takes_orders_of_who_was_controller_once, CONTROLLERS_DEPOSED),
    (elects_by_the_metadata_alone, STATES_PUT_BACK),
    (elects_above_all_logs_whoever_was_in_sync_once, STATES_PUT_BACK),
)
RARE: tuple[tuple[Plant, Worlds], ...] = ((expands_too_early, WORLDS),)
"""What it does harm with takes a hundred seeds and more to meet."""
FIRST_SEEDS: dict[Plant, int] = {
    takes_orders_of_who_was_controller_once: 144,
    a_coordinator_tells_what_is_not_replicated: 20,
    leads_when_its_session_is_over: 15,
}
"""One that few worlds meet is looked for near a seed that has it: a seed takes most of a second."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("plant", "worlds"),
    [*PLANTS, *(pytest.param(*each, marks=pytest.mark.slow) for each in RARE)],
    ids=lambda given: given.name if isinstance(given, Worlds) else given.__name__,
)
def test_a_planted_bug_is_found(plant: Plant, worlds: Worlds) -> None:
    first = FIRST_SEEDS.get(plant, 0)
    found = worlds.first_finding_of(plant, range(first, first + SEEDS))
    assert found is not None
    print(f"seed {found[0]}: {found[1]}")
