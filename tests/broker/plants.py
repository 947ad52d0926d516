"""Bugs that are planted into the brokers' code in more than one simulation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.cluster.metadata import PartitionState
from broker.replication.leading import Leading
from broker.topics.partition import Partition

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledges_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Partition, offset: int, leader_epoch: int) -> bool:
        return self.log.log_end_offset >= offset

    patch.setattr(Partition, "is_replicated", planted)


def truncates_by_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: what a follower's high watermark has not reached may be acknowledged all the same."""
    follow = Partition.follow

    def planted(self: Partition, state: PartitionState) -> None:
        follow(self, state)
        self.log.truncate_to(max(self.log.high_watermark, self.log.log_start_offset))

    patch.setattr(Partition, "follow", planted)


def expands_too_early(patch: pytest.MonkeyPatch) -> None:
    """Who fetches is in sync."""

    def planted(self: Leading, node_id: int) -> frozenset[int] | None:
        if self.pending is not None or node_id in self.isr or self._followers[node_id].end_offset < 0:
            return None
        return self.isr | {node_id}

    patch.setattr(Leading, "expand", planted)
