"""Partitions whose metadata are older than their logs: what replicas tell of these is worked off."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.cluster.orders import ReplicaLog
from broker.controller.errors import ReignOver
from broker.errors import BrokerError
from broker.wire.vocabulary import TopicPartition

if TYPE_CHECKING:
    from broker.controller.reign import Reign

log = logging.getLogger(__name__)

HINDERED: Final = (
    "%s is led by nobody: its logs are of a later day than the metadata, and %s; put back what ZooKeeper had last, "
    "start who is missing, or give up what others have: elect a leader among those that run (unclean)"
)


async def compare(reign: Reign, node: int, logs: Mapping[TopicPartition, ReplicaLog]) -> None:
    """What a broker told of its logs: none is led by metadata that are older. Raises ReignOver."""
    try:
        async with reign.turn_to_write():
            reign.announce(await reign.write(reign.cluster.take_logs(node, logs)))
            for where in logs:
                if (hindrance := reign.cluster.hindrance(where)) is not None:
                    log.error(HINDERED, where, hindrance)
    except ReignOver:
        raise
    except BrokerError as error:
        log.warning("what broker %d has was not taken into account: %s", node, error)
