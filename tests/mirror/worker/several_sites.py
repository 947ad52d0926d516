"""Links between several sites, and what of their records came where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker.client.cluster import Cluster
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.topology import connect
from mirror.link import Link
from tests.mirror.harness import read_all, wait_for_records, write

FLIGHTS = TopicPartition("flights", 0)


def alone(sites: Mapping[str, Cluster], source: str, target: str, topics: str = ".*", **more: Any) -> Link:
    """A link as a file declares it that knows of no other link."""
    ends = (sites[source].site, sites[target].site)
    return Link(f"{source}-{target}", *ends, (topics,), **more)


async def write_values(cluster: Cluster, prefix: str, count: int, where: TopicPartition = FLIGHTS) -> None:
    for start in range(0, count, 10):
        await write(cluster, where, [Record(i, 1, None, b"%s-%d" % (prefix.encode(), start + i)) for i in range(10)])


async def values(cluster: Cluster, where: TopicPartition = FLIGHTS) -> Counter[bytes | None]:
    return Counter(record.value for record in await read_all(cluster, where))


def expected(*prefixes: str, count: int = 100) -> Counter[bytes | None]:
    return Counter(b"%s-%d" % (prefix.encode(), at) for prefix in prefixes for at in range(count))


async def settled(cluster: Cluster, wanted: Counter[bytes | None], where: TopicPartition = FLIGHTS) -> None:
    await wait_for_records(cluster, where, wanted.total())
    assert await values(cluster, where) == wanted


def declared(links: list[Link]) -> list[Link]:
    """The links as one file with all of them declares them."""
    return list(connect(links))
