"""The simulation bites: each of these bugs, planted into the broker's code, is found within a thousand seeds."""

from __future__ import annotations

from typing import Any

import pytest

from broker.log.store import LogStore
from broker.replication import following
from broker.replication.leading import Leading
from broker.replication.throttling import ReplicationQuota
from broker.topics import reading
from broker.topics.partition import Partition
from broker.wire.messages.fetch import EpochEndOffset, FetchPartition
from tests.broker.plants import (
    Plant,
    acknowledges_before_it_is_replicated,
    expands_too_early,
    truncates_by_high_watermark,
)
from tests.broker.replication.simulation.seeds import WORLDS
from tests.broker.replication.simulation.world import World

SEEDS = 1000


def does_not_compare_the_last_epoch(patch: pytest.MonkeyPatch) -> None:
    asked = following._Followed.asked

    def planted(self: Any) -> FetchPartition:
        one = asked(self)
        one.last_fetched_epoch = -1
        return one

    patch.setattr(following._Followed, "asked", planted)


def counts_an_expansion_when_it_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "maximal_isr", property(lambda self: self.isr))


def counts_a_shrink_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "maximal_isr", property(lambda self: self.isr if self.pending is None else self.pending))


def counts_a_position_of_another_log(patch: pytest.MonkeyPatch) -> None:
    """The follower's offset is from an old epoch: it has as many records, of which some are others."""
    divergence = reading._divergence

    def planted(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
        found = divergence(partition, asked)
        if found is not None and asked.fetch_offset <= partition.log.log_end_offset:
            for node_id in (1, 2, 3):
                leading = partition.leading
                if leading is not None and leading.follower(node_id) is not None and asked.fetch_offset:
                    partition.follower_fetched(node_id, asked.fetch_offset, 0, 0.0)
        return found

    patch.setattr(reading, "_divergence", planted)


def a_new_leader_has_acknowledged_all_it_has(patch: pytest.MonkeyPatch) -> None:
    begin = Leading.__init__

    def planted(self: Leading, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **{**kwargs, "high_watermark": kwargs["log_end_offset"]})

    patch.setattr(Leading, "__init__", planted)


def remembers_epochs_that_wrote_nothing(patch: pytest.MonkeyPatch) -> None:
    """The leader says again and again where they part, and nothing is left to be cut."""
    patch.setattr(LogStore, "forget_epochs_from", lambda _self, _offset: None)


def acknowledges_in_another_epoch(patch: pytest.MonkeyPatch) -> None:
    """Whoever led, lost the records and leads again counts them by the offsets that others have now."""

    def planted(self: Partition, offset: int, leader_epoch: int) -> bool:
        return self.leading is not None and self.leading.high_watermark >= offset

    patch.setattr(Partition, "is_replicated", planted)


def answers_fetches_of_another_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """A request that was long on its way counts where the follower was once, and may not be any more. That takes a
    follower that is in sync all the while: where sessions do not end, and nobody is held back, it is met often enough.
    """
    patch.setattr(Partition, "check_leader_epoch", lambda _self, _epoch: None)
    patch.setattr(World, "out", lambda *_given: None)
    patch.setattr(ReplicationQuota, "is_exceeded", lambda *_given: False)


# Not in the list, because it does no harm: a follower that applies an answer of an older leader epoch to a log that
# ends as it did when it asked. Its next fetch names the epoch of the last record, and what the leader has not is cut
# again; it counts nowhere before, as positions are taken from fetches alone.
PLANTS: tuple[Plant, ...] = (
    truncates_by_high_watermark,
    does_not_compare_the_last_epoch,
    expands_too_early,
    counts_an_expansion_when_it_is_written,
    counts_a_shrink_before_it_is_written,
    acknowledges_before_it_is_replicated,
    counts_a_position_of_another_log,
    a_new_leader_has_acknowledged_all_it_has,
    remembers_epochs_that_wrote_nothing,
    acknowledges_in_another_epoch,
    answers_fetches_of_another_leader_epoch,
)

FIRST_SEEDS: dict[Plant, int] = {counts_a_shrink_before_it_is_written: 200}
"""One that few worlds meet is looked for near a seed that has it."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    first = FIRST_SEEDS.get(plant, 0)
    found = WORLDS.first_finding(range(first, first + SEEDS))
    assert found is not None
    print(f"seed {found[0]}: {found[1]}")
