"""What is seen at the two sites, as it is, and which partitions' offsets mean nothing there any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from failover.observing.last_seen import last_seen
from failover.observing.snapshot import GroupPartitionView
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import plan_switchover
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import read_entries
from tests.broker.faults import Faults, injected
from tests.failover.stage import (
    GROUP,
    PARTITIONS,
    RECORDS,
    TOPIC,
    Stage,
    metadata_of,
    mirrored,
    now_ms,
    reading,
    two_sites,
)
from tests.mirror.harness import make_topic, some_records, write

LATER = 3


async def test_both_sites_as_they_are(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[0], some_records(5000, LATER))
        entries = await read_entries(stage.link, stage.target)
        before_ms = now_ms()
        both, alone = await stage.sites.look(), await stage.without_source.look()
        past = await stage.sites.look_past_source()
        gone = await stage.without_source.look_past_source()
        assert all(before_ms <= seen.taken_at_ms <= now_ms() for seen in (both, alone, past, gone))
        assert replace(past, taken_at_ms=0, last_look=None) == replace(both, taken_at_ms=0)
        assert past.last_look is not None, "who fails over from a source that lives is told how fast it grows"
        assert replace(gone, taken_at_ms=0) == replace(alone, taken_at_ms=0)

        assert (both.link, both.source, both.target) == (stage.link.name, "east", "west")
        assert (both.source_answers, alone.source_answers) == (True, False)
        assert (both.link_state, both.operation_id, both.interrupted) == ("running", "", False)
        for seen, ends in ((both, (RECORDS + LATER, RECORDS)), (alone, (None, None))):
            assert [(view.topic, view.partition) for view in seen.partitions] == list(PARTITIONS)
            assert tuple(view.source_end for view in seen.partitions) == ends
            for view in seen.partitions:
                assert (view.target_topic, view.seen_source_end, view.mirrored_source_next) == (TOPIC, RECORDS, RECORDS)
                assert view.target_end is not None
                assert view.target_end >= RECORDS
                at = (view.topic, view.partition)
                written = entries.checkpoints[at]
                youngest = written.source_timestamp_ms  # -1 until a batch has landed
                assert view.seen_timestamp_ms == (youngest if youngest >= 0 else None)
                observed = (await load_observation(stage.link, stage.target)).ends
                last = last_seen(written, observed[TopicPartition(*at)] if seen is alone else None)
                assert last is not None
                assert view.seen_at_ms == last.at_ms
                assert (view.trusted, view.has_local_writers) == (True, False)
        assert [view.source_start for view in both.partitions] == [0, 0]
        (group,) = both.groups
        assert (group.group, group.source_state, group.target_state) == (GROUP, "Empty", "Empty")
        assert (group.source_members, group.target_members) == (0, 0)
        at_target = await stage.group_at(stage.target)  # behind the fence's markers there
        assert group.partitions == tuple(
            GroupPartitionView(*at, TOPIC, offset, at_target[at], at_target[at], metadata_of(at))
            for at, offset in zip(PARTITIONS, (20, 30), strict=True)
        )
        (kept,) = alone.groups
        assert kept.partitions == tuple(
            GroupPartitionView(*at, TOPIC, None, None, at_target[at], metadata_of(at), brought_offset=at_target[at])
            for at in PARTITIONS
        )


@pytest.mark.parametrize("site", ["source", "target"])
async def test_offsets_of_a_topic_that_was_made_anew_are_not_trusted(tmp_path: Path, site: str) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        assert [view.trusted for view in (await stage.sites.look()).partitions] == [True, True]
        await recreate(stage.source if site == "source" else stage.target)
        assert await trusted(stage) == [False, False]


async def recreate(cluster: Cluster) -> None:
    assert not await delete_topics(cluster, [TOPIC])
    await make_topic(cluster, TOPIC, len(PARTITIONS))


async def trusted(stage: Stage) -> list[bool]:
    snapshot = await stage.sites.look()
    assert [at.translated_offset for group in snapshot.groups for at in group.partitions] == [None, None]
    return [view.trusted for view in snapshot.partitions]


async def test_a_group_that_never_committed_and_cannot_be_described_is_not_known_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        east, refused = Faults(), ErrorCode.GROUP_AUTHORIZATION_FAILED
        async with reading(stage.link.source.bootstrap_servers, "newcomers"):
            told = plan_switchover(await stage.sites.look()).refusals
            east.groups[(ApiKey.DESCRIBE_GROUPS, "newcomers")] = refused
            with injected(monkeypatch, {stage.brokers[0]: east}):
                untold = plan_switchover(await stage.sites.look()).refusals
        assert told == (GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, "newcomers"),)
        assert untold == (GateRefusal(RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE, "newcomers"),)
