"""What the tests of operations share: two brokers, a running mirror, a group, operations as the commands run them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer

from broker.base.clock import Clock
from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.values import Event, OperationLog
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.plan import OperationPlan
from failover.running.groups_stand import Tell, tell_nobody
from failover.running.link_run import LinkMove
from failover.running.opening import Opening
from failover.running.operation import carry_out
from failover.running.result import OperationResult
from mirror.link import Link
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import load_link_state
from mirror.worker.limits import WorkerLimits
from tests.broker.running import running_server
from tests.mirror.harness import (
    QUICK,
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)

TOPIC = "flights"
GROUP = "analysts"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
RECORDS = 50
FIRST_TIMESTAMP_MS = 1_700_000_000_000


def now_ms() -> int:
    return round(time.time() * 1000)


RARE = replace(QUICK, group_sync_interval_ms=600_000)
"""One pass over groups, and no other while the test runs: nobody but an operation moves them."""


@dataclass
class Stage:
    """Both sites. `source` is None once it is gone."""

    link: Link
    source: Cluster
    target: Cluster
    operations: int = field(default=0)
    brokers: tuple[Broker, ...] = ()
    """Of the source and of the target."""

    @property
    def sites(self) -> Sites:
        return Sites(self.link, self.source, self.target, (), now_ms)

    @property
    def without_source(self) -> Sites:
        return replace(self.sites, source=None)

    async def journal(self) -> OperationJournal:
        self.operations += 1
        between = (self.link.source.name, self.link.target.name)
        writer, _ = await claim(self.target, between, lambda _: None)
        return OperationJournal(self.target, f"operation-{self.operations}", "tests", writer, between)

    async def log(self, operation_id: str) -> OperationLog:
        return (await load_operations(self.target))[operation_id].whole()

    async def run(
        self, plan: OperationPlan, sites: Sites, drain_timeout_s: float = 20.0, tell: Tell = tell_nobody
    ) -> OperationResult:
        assert plan.refusals == ()
        journal = await self.journal()
        (result,) = await carry_out([LinkMove(plan, sites)], journal, opening(plan), drain_timeout_s, tell=tell)
        return result

    async def group_at(self, cluster: Cluster) -> dict[TopicPartition, int]:
        return {at: found.offset for at, found in (await committed_offsets(cluster, GROUP)).items()}

    async def next_record(self, cluster: Cluster, at: TopicPartition) -> tuple[object, ...]:
        """The content of the record that the group reads next."""
        offset = (await self.group_at(cluster))[at]
        async for record in read_records(cluster, at, offset, offset + 1000):
            return tuple(record)[1:]
        return ()


@asynccontextmanager
async def two_sites(folder: Path, **of_source: Any) -> AsyncIterator[Stage]:
    """Two brokers, a topic of two partitions with records, a group with offsets; nothing is mirrored yet. `of_source`:
    fields of its BrokerConfig.
    """
    async with running_server(folder / "east", **of_source) as east, running_server(folder / "west") as west:
        link = replace(link_between(east.address, west.address, [TOPIC]), groups=(".*",))
        async with (
            Cluster(link.source, client_id="farshore-test") as source,
            Cluster(link.target, client_id="farshore-test") as target,
        ):
            await make_topic(source, TOPIC, len(PARTITIONS))
            for number, at in enumerate(PARTITIONS):
                await write(source, at, some_records(number * 1000, RECORDS))
            await commit_group(source, 20, 30)
            yield Stage(link, source, target, brokers=(east.broker, west.broker))


def opening(plan: OperationPlan) -> Opening:
    """As the command writes it."""
    snapshot = plan.snapshot
    intent = Intent(plan.operation, (snapshot.link,), snapshot.source, snapshot.target)
    return Opening(Event.PLANNED, {"intent": intent.document(), "who": "tests"})


def metadata_of(at: TopicPartition) -> str:
    """What the group writes beside its offsets."""
    return f"read by analyst {at.partition}"


async def commit_group(cluster: Cluster, *offsets: int) -> None:
    await commit_offsets(
        cluster,
        GROUP,
        {at: CommittedOffset(offset, metadata_of(at)) for at, offset in zip(PARTITIONS, offsets, strict=True)},
    )


@asynccontextmanager
async def mirrored(stage: Stage, limits: WorkerLimits = QUICK, clock: Clock | None = None) -> AsyncIterator[None]:
    """A worker runs while the context is open; enters when records, group, checkpoints and a look are there."""
    async with running(stage.link, limits=limits, clock=clock):
        for at in PARTITIONS:
            await wait_for_records(stage.target, at, RECORDS)
        await eventually(lambda: _all_recorded(stage), "group offsets, checkpoints and a look at the target")
        yield


async def _all_recorded(stage: Stage) -> bool:
    state = await load_link_state(stage.link, stage.target)
    ends = await log_end_offsets(stage.source, PARTITIONS)
    seen = {at: state.entries.checkpoints[at].source_end_offset for at in PARTITIONS if at in state.entries.checkpoints}
    looked = {at: end.end for at, end in (await load_observation(stage.link, stage.target)).ends.items()}
    return (
        len(await stage.group_at(stage.target)) == len(PARTITIONS) and seen == ends and looked.items() >= ends.items()
    )


@asynccontextmanager
async def reading(bootstrap_servers: str, group: str = GROUP, topic: str = TOPIC) -> AsyncIterator[None]:
    """An unmodified consumer of the group that has been given its partitions."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        await consumer.getmany(timeout_ms=5000, max_records=1)
        assert len(consumer.assignment()) == len(consumer.partitions_for_topic(topic) or ()) > 0
        yield
    finally:
        await consumer.stop()
