"""What came to a leader of the source behind the fence and its followers have not got: told, though nobody is shown it.

Its producer (acks=1) was told that it is kept, and every consumer is shown it when the followers ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from broker.wire.vocabulary import DEBUGGING_CONSUMER, TopicPartition
from failover.errors import NotDrained
from failover.failback.stranding import look_for_stranded
from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.losses.stranded import CountedNone, StrandedRange, stranded_ranges
from failover.planning.plan import plan_switchover
from failover.running.draining import settle
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from tests.broker.faults import Faults, injected
from tests.failover.on_its_way import hold_drain, replicate
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import contents, eventually, read_all, some_records, wait_for_records, write

FIRST = PARTITIONS[0]
UNSHOWN = StrandedRange(*FIRST, RECORDS, RECORDS + 1, None, is_shown=False)


def _untold(where: TopicPartition, end: int) -> StrandedRange:
    return StrandedRange(*where, end, end, None, is_shown=False, is_end_told=False)


def _leader(stage: Stage) -> Partition:
    return stage.brokers[0].require_partition(*FIRST)


@asynccontextmanager
async def _switched(stage: Stage, behind_fence: Callable[[], Awaitable[None]]) -> AsyncIterator[OperationResult]:
    """`behind_fence` is done as soon as that stands."""

    async def is_fenced() -> bool:
        logs = (await load_operations(stage.target)).values()
        done = (e.detail["step"] for log in logs for e in log.entries if e.event == Event.DONE)
        return OperationStep.FENCE in done

    async def go_on() -> None:
        await eventually(is_fenced, "the fence")
        await behind_fence()

    async with mirrored(stage):
        going = asyncio.create_task(go_on())
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        await going
        yield result


async def test_a_record_that_nobody_is_shown_yet_is_a_finding_and_is_counted_when_its_followers_are_back(
    tmp_path: Path,
) -> None:
    """The switchover ended with nothing found; a moment later the source had a record that its target never gets."""
    async with two_sites(tmp_path) as stage, _switched(stage, lambda: hold_drain(stage)) as result:
        assert result.verified
        assert result.stranded == (UNSHOWN,)
        assert result.has_findings
        replicate(_leader(stage))
        await wait_for_records(stage.source, FIRST, RECORDS + 1)
        assert (await look_for_stranded(stage.link, stage.source, stage.target)).records == 1
        (late,) = (await read_all(stage.source, FIRST))[RECORDS:]
        assert late.value == b"late"
        assert contents([late])[0] not in contents(await read_all(stage.target, FIRST))


async def test_one_that_its_followers_get_meanwhile_is_counted(tmp_path: Path) -> None:
    """As with acks=all, whoever writes: it is on its way for milliseconds."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        await hold_drain(stage)
        asyncio.get_running_loop().call_later(0.3, replicate, _leader(stage))
        found = await stranded_ranges(stage.link, stage.source, stage.target, seen)
        assert found == (StrandedRange(*FIRST, RECORDS, RECORDS + 1, 1),)


async def test_what_everybody_is_shown_is_counted_beside_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        await write(stage.source, FIRST, some_records(70_000, 2))
        await hold_drain(stage)
        assert await stranded_ranges(stage.link, stage.source, stage.target, seen) == (
            StrandedRange(*FIRST, RECORDS, RECORDS + 2, 2),
            StrandedRange(*FIRST, RECORDS + 2, RECORDS + 3, None, is_shown=False),
        )


async def test_one_that_its_leader_loses_meanwhile_is_not_there(tmp_path: Path) -> None:
    """Another leader has not got it, and nobody ever is shown it."""

    def lose() -> None:
        _leader(stage).log.truncate_to(RECORDS)
        replicate(_leader(stage))

    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        await hold_drain(stage)
        asyncio.get_running_loop().call_later(0.3, lose)
        assert await stranded_ranges(stage.link, stage.source, stage.target, seen) == ()


async def test_of_a_cluster_that_tells_nobody_how_far_its_logs_go_what_it_shows_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        with injected(monkeypatch, {stage.brokers[0]: tells_nobody()}):
            assert await stranded_ranges(stage.link, stage.source, stage.target, seen) == ()
            await write(stage.source, FIRST, some_records(70_000, 2))
            found = await stranded_ranges(stage.link, stage.source, stage.target, seen)
            assert found == (StrandedRange(*FIRST, RECORDS, RECORDS + 2, 2),)


async def test_of_a_cluster_that_ends_connections_at_such_a_question_what_it_shows_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy may: that was an error, and what everybody is shown was not counted."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        await write(stage.source, FIRST, some_records(70_000, 2))
        with injected(monkeypatch, {stage.brokers[0]: ends_connections()}):
            found = await stranded_ranges(stage.link, stage.source, stage.target, seen)
            assert await stranded_ranges(stage.link, stage.source, stage.target, seen, lambda _topic: True) == found[:1]
        assert found == (
            StrandedRange(*FIRST, RECORDS, RECORDS + 2, 2),
            _untold(FIRST, RECORDS + 2),
            _untold(PARTITIONS[1], RECORDS),
        )


async def test_along_a_link_that_was_moved_before_a_source_that_does_not_tell_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups were moved from it, which a drain of the same source would have refused."""

    async def nothing() -> None:
        pass

    async with two_sites(tmp_path) as stage, _switched(stage, nothing):
        await hold_drain(stage)
        with injected(monkeypatch, {stage.brokers[0]: ends_connections()}), pytest.raises(NotDrained) as refused:
            await settle(stage.sites, 0.0, CountedNone())
        assert "east does not say how far its logs of flights-0, flights-1 go" in str(refused.value)
        assert "reach them itself" in refused.value.hint
        with injected(monkeypatch, {stage.brokers[0]: tells_nobody()}):
            await settle(stage.sites, 0.0, CountedNone())


async def test_what_a_leader_told_once_is_not_forgotten_where_it_ceases_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment later it was asked anew in vain, and what it had told of was taken for nothing."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        seen = await stage.sites.look()
        await hold_drain(stage)
        with injected(monkeypatch, {stage.brokers[0]: ends_connections(from_question=2)}):
            assert await stranded_ranges(stage.link, stage.source, stage.target, seen) == (UNSHOWN,)


async def test_along_a_link_that_was_moved_before_it_is_waited_for(tmp_path: Path) -> None:
    async def nothing() -> None:
        pass

    async with two_sites(tmp_path) as stage, _switched(stage, nothing):
        await hold_drain(stage)
        with pytest.raises(NotDrained) as refused:
            await settle(stage.sites, 1.5, CountedNone())
        assert "it is not known whether east alone has records of" in str(refused.value)
        assert f"{TOPIC}-0 from offset {RECORDS} on" in str(refused.value)
        assert "bring back the brokers that have replicas of it" in refused.value.hint
        _leader(stage).log.truncate_to(RECORDS)
        replicate(_leader(stage))
        await settle(stage.sites, 5.0, CountedNone())


def ends_connections(from_question: int = 1) -> Faults:
    """As a proxy that lets no such request through, from that one on."""
    questions = count(1)

    def end(request: object) -> None:
        if getattr(request, "replica_id", None) == DEBUGGING_CONSUMER and next(questions) >= from_question:
            raise ConnectionResetError

    return Faults(moments={ApiKey.LIST_OFFSETS: end})


def tells_nobody() -> Faults:
    """As a cluster without replicas of Kafka's kind: such a request is refused for good."""

    def refuse(request: object) -> None:
        if getattr(request, "replica_id", None) == DEBUGGING_CONSUMER:
            for topic in getattr(request, "topics", ()):
                for asked in topic.partitions:
                    asked.timestamp = -77

    return Faults(moments={ApiKey.LIST_OFFSETS: refuse})
