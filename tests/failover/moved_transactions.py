"""Groups of a world of moves that read in transactions: what they commit counts when the transaction ends, if ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokafka import TopicPartition as ConsumedPartition

from broker.client.groups import stable_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.offset_fetch import GroupOffsets
from broker.wire.vocabulary import TopicPartition
from tests.failover.failback.stage import transaction
from tests.failover.moved_sites import Site
from tests.mirror.harness import eventually


@dataclass(frozen=True)
class Transaction:
    """It has `held_s` from when it committed the group's offsets until it ends, and `commits` them then, or not."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset]
    held_s: float = 0.0
    commits: bool = True

    async def live(self, site: Site, is_pending: asyncio.Event, ended: Callable[[], None]) -> None:
        """To its end, and until that shows in the group."""
        places = {ConsumedPartition(*where): committed.offset for where, committed in self.offsets.items()}
        async with transaction(site.bootstrap, f"reads-{self.group}") as producer:
            await producer.send_offsets_to_transaction(places, self.group)
            is_pending.set()
            await asyncio.sleep(self.held_s)
            await (producer.commit_transaction() if self.commits else producer.abort_transaction())
        await eventually(lambda: self._is_settled(site), f"the end of a transaction of {self.group}")
        if self.commits:
            ended()

    async def _is_settled(self, site: Site) -> bool:
        found = (await stable_offsets_of_groups(site.cluster, [self.group]))[self.group]
        return isinstance(found, GroupOffsets) and not found.pending
