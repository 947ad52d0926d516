"""What the target lacks, as far as the source can still be read."""

from __future__ import annotations

from contextlib import suppress

from broker.client.errors import ClientError
from broker.wire.vocabulary import TopicPartition
from failover.counting import count_losses, with_edges
from failover.losses import Certainty, PartitionLoss, state_loss, with_returns
from failover.sites import Sites
from failover.snapshot import Snapshot
from failover.stranded import carried_counter


async def stated_losses(sites: Sites, snapshot: Snapshot) -> tuple[PartitionLoss, ...]:
    """What the target lacks, counted, and with first and last timestamps, where the source can still be read."""
    losses = tuple(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
    if sites.source is None:
        return losses
    returned = {TopicPartition(view.topic, view.partition): view.returned_at_most for view in snapshot.partitions}
    shared = {where for where, at_most in returned.items() if at_most != 0}
    carried = None
    if any(loss.offsets for loss in losses if TopicPartition(loss.topic, loss.partition) in shared):
        with suppress(ClientError):  # then those are not counted
            carried = await carried_counter(sites.link, sites.source, sites.target)
    counted = await count_losses(sites.source, losses, shared, carried)
    counted = tuple(with_returns(loss, returned[TopicPartition(loss.topic, loss.partition)]) for loss in counted)
    dated = [loss for loss in counted if loss.records != 0 and loss.certainty is Certainty.EXACT]
    edges = {(loss.topic, loss.partition): loss for loss in await with_edges(sites.source, dated)}
    return tuple(edges.get((loss.topic, loss.partition), loss) for loss in counted)
