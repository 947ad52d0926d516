"""Who takes a link over, or promotes its target, takes back what a hanging worker has staged, and refuses the rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.group_transactions import Staged, add_groups_to_txn, stage_offsets
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.producers import ProducerIdAndEpoch, end_txn, init_producer_id
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.fence import fence_groups
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("sites")
    with FarshoreBroker(folder / "east") as east, FarshoreBroker(folder / "west") as west:
        yield east.bootstrap, west.bootstrap


@dataclass
class Hanging:
    """A worker that hangs amid its commit: the group is staged, and it goes on whenever it is told to."""

    link: Link
    target: Cluster
    where: TopicPartition
    group: str
    writer: ProducerIdAndEpoch

    async def stage(self, offset: int) -> object:
        txn = self.link.groups_transactional_id
        await add_groups_to_txn(self.target, txn, self.writer, [self.group])
        offsets = {self.group: {self.where: CommittedOffset(offset)}}
        return (await stage_offsets(self.target, txn, self.writer, offsets))[self.group]

    async def commits_nothing_more(self) -> None:
        with pytest.raises(KafkaError) as refused:
            await self.stage(6)
        codes = [refused.value.code]
        with pytest.raises(KafkaError) as refused:
            await end_txn(self.target, self.link.groups_transactional_id, self.writer, commit=True)
        assert {*codes, refused.value.code} <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


async def hanging(stack: AsyncExitStack, brokers: tuple[str, str]) -> tuple[Hanging, Cluster]:
    tag = uuid.uuid4().hex[:8]
    east, west = Site("east", brokers[0]), Site("west", brokers[1])
    link = Link(f"l-{tag}", east, west, (f"t-{tag}",), groups=(f"g-{tag}",))
    source = await stack.enter_async_context(Cluster(east))
    target = await stack.enter_async_context(Cluster(west))
    where = TopicPartition(f"t-{tag}", 0)
    await make_topic(source, where.topic)
    await write(source, where, some_records(0, 10))
    async with running(link):
        await wait_for_records(target, where, 10)

        async def has_looked() -> bool:
            return (await read_entries(link, target)).groups.looked_at_ms is not None

        await eventually(has_looked, "a pass over the groups, which its state says before anything is committed")
    await commit_offsets(target, f"g-{tag}", {where: CommittedOffset(2)})
    worker = Hanging(link, target, where, f"g-{tag}", await fence_groups(target, link))
    assert await worker.stage(5) == Staged(True, None)
    return worker, source


async def test_a_promotion_takes_back_what_is_staged(brokers: tuple[str, str]) -> None:
    """When it has returned the groups are as they stay, so that a failover may look at them."""
    async with AsyncExitStack() as stack:
        worker, _ = await hanging(stack, brokers)
        await promote_link(worker.link, worker.target, "op")
        found = await committed_offsets(worker.target, worker.group)
        assert found[worker.where].offset == 2
        await worker.commits_nothing_more()
        assert await committed_offsets(worker.target, worker.group) == found


@pytest.mark.parametrize("how", ["promotion", "takeover"])
async def test_groups_that_were_taken_out_of_the_file_are_fenced_as_they_were_moved(
    brokers: tuple[str, str], how: str
) -> None:
    """An old worker, of when the file named them, committed what it had staged after a promotion had returned."""
    async with AsyncExitStack() as stack:
        worker, _ = await hanging(stack, brokers)
        without = replace(worker.link, groups=())
        if how == "promotion":
            await promote_link(without, worker.target, "op")
        else:
            async with running(without) as told:
                await told.wait_for(Event.STARTED)
        await worker.commits_nothing_more()
        assert (await committed_offsets(worker.target, worker.group))[worker.where].offset == 2


async def test_a_link_that_never_had_groups_asks_for_no_fence_of_them(brokers: tuple[str, str]) -> None:
    """It may lack the right to."""
    tag = uuid.uuid4().hex[:8]
    link = Link(f"l-{tag}", Site("east", brokers[0]), Site("west", brokers[1]), (f"t-{tag}",))
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, f"t-{tag}")
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
        await promote_link(link, target, "op")
        assert (await init_producer_id(target, link.groups_transactional_id)).producer_epoch == 0


async def test_a_takeover_takes_back_what_is_staged_and_goes_on_with_the_group(brokers: tuple[str, str]) -> None:
    async with AsyncExitStack() as stack:
        worker, source = await hanging(stack, brokers)
        async with running(worker.link) as told:
            await told.wait_for(Event.STARTED)
            await worker.commits_nothing_more()
            assert (await committed_offsets(worker.target, worker.group))[worker.where].offset == 2
            await commit_offsets(source, worker.group, {worker.where: CommittedOffset(7)})

            async def moved() -> bool:
                at = (await committed_offsets(worker.target, worker.group))[worker.where].offset
                return at >= 7

            await eventually(moved, "the successor to move the group")
