"""Two brokers with two links between them: what the tests of a whole site's move share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.wire.site_role import SiteStanding
from broker.wire.vocabulary import TopicPartition
from failover.journal.log import load_operations
from failover.journal.values import OperationLog
from failover.observing.sites import Sites
from mirror.link import Link
from mirror.offsets.state import read_entries
from tests.broker.running import running_broker
from tests.failover.stage import now_ms
from tests.mirror.harness import (
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)

FLIGHTS = (TopicPartition("flights", 0), TopicPartition("flights", 1))
ORDERS = (TopicPartition("orders", 0),)
RECORDS = 40
READ: Mapping[str, Mapping[TopicPartition, int]] = {
    "analysts": {FLIGHTS[0]: 7, FLIGHTS[1]: RECORDS, ORDERS[0]: 11},
    "billing": {ORDERS[0]: 23},
}
"""Per group how far it has read at the source."""


@dataclass
class SiteStage:
    """Both sites; `flights` and `orders` are the links, each with the topic of its name."""

    flights: Link
    orders: Link
    source: Cluster
    target: Cluster

    @property
    def links(self) -> tuple[Link, Link]:
        return self.flights, self.orders

    @property
    def sites(self) -> list[Sites]:
        return [Sites(link, self.source, self.target, (), now_ms) for link in self.links]

    async def log(self, operation_id: str) -> OperationLog:
        return (await load_operations(self.target))[operation_id].whole()

    async def next_record(self, cluster: Cluster, group: str, at: TopicPartition) -> tuple[object, ...]:
        """The content of the record that the group reads next."""
        found = (await committed_offsets(cluster, group))[at]
        async for record in read_records(cluster, at, found.offset, found.offset + 1000):
            return tuple(record)[1:]
        return ()

    async def next_records(self, cluster: Cluster) -> dict[tuple[str, TopicPartition], tuple[object, ...]]:
        """Of each group in each partition."""
        return {(group, at): await self.next_record(cluster, group, at) for group, read in READ.items() for at in read}

    async def state_of(self, link: Link) -> tuple[str, str]:
        run = (await read_entries(link, self.target)).run
        return (run.state.value, run.operation_id) if run is not None else ("running", "")

    async def until_state(self, link: Link, state: str) -> None:
        async def is_there() -> bool:
            return (await self.state_of(link))[0] == state

        await eventually(is_there, f"{link.name} to be {state}")


@asynccontextmanager
async def two_links(folder: Path) -> AsyncIterator[SiteStage]:
    """Records and groups at the source; nothing is mirrored yet."""
    async with running_broker(folder / "east") as east, running_broker(folder / "west") as west:
        flights = link_between(east, west, ["flights"], name="east-west-flights", groups=(".*",))
        orders = replace(flights, name="east-west-orders", topics=("orders",))
        async with (
            Cluster(flights.source, client_id="farshore-test") as source,
            Cluster(flights.target, client_id="farshore-test") as target,
        ):
            await make_topic(source, "flights", len(FLIGHTS))
            await make_topic(source, "orders", len(ORDERS))
            for number, at in enumerate((*FLIGHTS, *ORDERS)):
                await write(source, at, some_records(number * 1000, RECORDS))
            for group, read in READ.items():
                await commit_offsets(source, group, {at: CommittedOffset(offset) for at, offset in read.items()})
            yield SiteStage(flights, orders, source, target)


@asynccontextmanager
async def both_mirrored(stage: SiteStage) -> AsyncIterator[None]:
    """A worker runs both links while the context is open; enters when records and groups are there."""
    async with running(*stage.links):
        for at in (*FLIGHTS, *ORDERS):
            await wait_for_records(stage.target, at, RECORDS)
        await eventually(lambda: _groups_are_there(stage), "the groups at the target")
        yield


async def _groups_are_there(stage: SiteStage) -> bool:
    return all([set(await committed_offsets(stage.target, group)) == set(read) for group, read in READ.items()])


def refuses(standing: SiteStanding | None) -> tuple[bool, bool]:
    """Whether writes to flights are refused, and to orders."""
    assert standing is not None
    return standing.refuses("flights"), standing.refuses("orders")
