"""What one command reads of the target again and again, each time on from where it stopped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from failover.journal.log import OperationsReader, transactional_id
from failover.journal.topic import WHERE
from failover.journal.values import OperationLog
from failover.limits import READ_AHEAD_S
from mirror.api import Link, MirrorError, StateReaders

Journals: TypeAlias = dict[str, OperationsReader]
"""The operations of sites, by their names. Who asks of many links has one for all of them: each asks the same sites."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Of one target. `completed`: links by their names, as both sites completed them at the last look. `elsewhere`: the
    operations of other sites: each link of a move asks for them, in a few seconds.
    """

    operations: OperationsReader = field(default_factory=OperationsReader)
    elsewhere: Journals = field(default_factory=dict)
    states: StateReaders = field(default_factory=StateReaders)
    completed: dict[str, Link] = field(default_factory=dict)

    @classmethod
    def among(cls, journals: Journals, target: str) -> Readers:
        """Of the target of this name, of who asks of many links."""
        return cls(journals.setdefault(target, OperationsReader()), journals)

    async def operations_at(self, site: Cluster) -> dict[str, OperationLog]:
        """Of another site. Raises ClientError."""
        return await self.elsewhere.setdefault(site.site.name, OperationsReader()).read(site)

    async def begin(self, link: Link, target: Cluster) -> None:
        """Read what the looks will ask for, as far as it can be had in READ_AHEAD_S: it is long where there were many
        operations, and whoever waits for a source to answer has the time. So it has to connect to who is written to.
        """
        with suppress(ClientError, MirrorError, TimeoutError):  # who needs it asks again, and is told
            async with timeout(READ_AHEAD_S):
                reading = both(self.operations.read(target), self.states.of(link).read(target))
                await both(reading, target.coordinators("transaction", _transactional_ids(link)))
                written = [
                    WHERE,
                    *(TopicPartition(link.state_topic, unit.state_partition) for unit in link.each_unit()),
                ]
                leaders = (await target.by_leader(written)).keys() - {NO_LEADER}
                await side_by_side(target.connection(leader, "produce") for leader in sorted(leaders))


def _transactional_ids(link: Link) -> list[str]:
    """Of the transactions of a move: who coordinates them is known then before they begin."""
    units = link.each_unit()
    journal = transactional_id(link.source.name, link.target.name)
    return [journal, units[0].groups_transactional_id, *(unit.transactional_id for unit in units)]
