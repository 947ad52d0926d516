"""The group coordinators of this broker, and what befalls them all."""

from __future__ import annotations

from broker.coordination.coordinators import Coordinators
from broker.groups.coordinator import GroupCoordinator


class GroupCoordinators(Coordinators[GroupCoordinator]):
    def end_transaction(self, partition: int, producer_id: int, commit: bool, end_offset: int) -> None:
        """A marker was written right before `end_offset` of that partition of `__consumer_offsets`.

        One that is being read comes to the marker by itself, after all that stands before it. Taken at once it would
        end an earlier transaction of the producer, whose own marker is not read yet.
        """
        coordinator = self.partition(partition)
        if coordinator is not None and coordinator.log.is_read:
            coordinator.offsets.end_transaction(producer_id, commit=commit, end_offset=end_offset)

    def forget_topic(self, topic: str) -> None:
        """See `GroupCoordinator.forget_topic`."""
        self.tell_all(lambda at: at.forget_topic(topic))
