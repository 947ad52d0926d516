"""What farshore itself keeps at a target, on fewer disks than the site could give it: a drill tells that."""

from __future__ import annotations

from collections.abc import Iterable

from broker.client.cluster import Cluster
from broker.client.durable_topics import FewReplicas, few_replicas
from failover.drilling.findings import DrillFinding
from failover.journal.topic import OPERATIONS_TOPIC
from mirror.api import PRODUCERS_TOPIC, Link


async def look_for_few_replicas(link: Link, target: Cluster) -> tuple[FewReplicas, ...]:
    """Those that the link needs, of which it is known. Raises ClientError."""
    acls = [link.acls_topic] if link.sync_acls else []
    return await few_replicas(target, [link.state_topic, link.ends_topic, *acls, PRODUCERS_TOPIC, OPERATIONS_TOPIC])


def of_few_replicas(found: Iterable[FewReplicas], target: str) -> Iterable[DrillFinding]:
    """As findings of a drill."""
    for one in found:
        replicas = "replica" if one.replicas == 1 else "replicas"
        text = (
            f"farshore's own topic has {one.replicas} {replicas} at {target}, which has brokers for {one.wanted}: what "
        )
        text += "is in it is lost with their disks"
        yield DrillFinding("few_replicas", one.topic, text, one.command)
