"""A drill against living sites: what it finds comes true, and it changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.client.producers import ProducerIdAndEpoch
from broker.client.site_role import set_site_role, site_standing
from broker.client.topics import list_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from failover.drilling.drill import AuditNote, LinkDrill
from failover.drilling.looks import drill_link
from failover.observing.open_transactions import PendingOffsets, watch_pending
from failover.planning.gates import RefusalReason
from failover.planning.plan import plan_failover
from mirror.api import HeartbeatWatch
from tests.broker.faults import Faults, injected
from tests.failover.observing.test_leaderless_source import GONE, IMPATIENT, half_gone
from tests.failover.observing.test_pending_offsets import pending_at, pending_at_source
from tests.failover.stage import GROUP, PARTITIONS, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, some_records, write
from tests.mirror.transactions import append_unasked, transactional


async def drilled(stage: Stage) -> LinkDrill:
    return await drill_link(stage.link, HeartbeatWatch(stage.target.clock), AuditNote(), now_ms)


async def all_ends(cluster: Cluster) -> dict[TopicPartition, int]:
    topics = await list_topics(cluster)
    return await log_end_offsets(
        cluster, [TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions]
    )


async def test_what_a_drill_says_is_what_a_failover_finds(tmp_path: Path) -> None:
    async with two_sites(tmp_path, site_start_frozen=True) as stage:
        async with mirrored(stage):

            async def is_ready() -> bool:
                return (await drilled(stage)).is_ready

            await eventually(is_ready, "a drill without a finding")
            await commit_offsets(stage.source, "far", {PARTITIONS[0]: CommittedOffset(9_999, "")})

            async def finds_the_group() -> bool:
                return [(f.kind, f.subject) for f in (await drilled(stage)).findings] == [("group_unknown", "far")]

            await eventually(finds_the_group, "the group that stands nowhere to be found")
        await write(stage.source, PARTITIONS[1], some_records(7_000, 5))
        before = await all_ends(stage.source), await all_ends(stage.target)
        found = await drilled(stage)
        assert (await all_ends(stage.source), await all_ends(stage.target)) == before
        assert found.source_answers
        assert {group.group: group.unknown_partitions for group in found.groups} == {GROUP: 0, "far": 1}
        plan = plan_failover(
            await stage.without_source.look_past_source(), allow_data_loss=True, even_if_source_answers=False
        )
        assert [(refusal.reason, refusal.subject) for refusal in plan.refusals] == [
            (RefusalReason.GROUP_NOT_MOVABLE, "far")
        ]
        assert found.loss is not None
        assert (found.loss.offsets, found.loss.seen_at_ms) == (plan.loss.offsets, plan.loss.seen_at_ms)
        assert found.lag_records == 5


@pytest.mark.parametrize("site", ["source", "target"])
async def test_a_look_that_fails_at_a_site_that_answers_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    async with two_sites(tmp_path, site_start_frozen=True) as stage, mirrored(stage):

        async def is_ready() -> bool:
            return (await drilled(stage)).is_ready

        await eventually(is_ready, "a drill without a finding")
        east, west = faults = Faults(), Faults()
        (east if site == "source" else west).groups[(ApiKey.OFFSET_FETCH, GROUP)] = ErrorCode.GROUP_AUTHORIZATION_FAILED
        with injected(monkeypatch, dict(zip(stage.brokers, faults, strict=True))):
            found = await drilled(stage)
        told = [(f.kind, f.subject) for f in found.findings if GROUP in f.detail]
        named = ("not_looked_at", stage.link.name) if site == "source" else ("group_unanswered", GROUP)
        assert (found.is_ready, told) == (False, [named])
        assert found.loss is not None


async def test_what_a_source_that_is_there_in_part_still_tells_is_in_a_drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition that did not answer, and nothing that only the source knows was told."""
    for where in ("failover.drilling.looks", "mirror.status"):
        monkeypatch.setattr(f"{where}.STATUS_LIMITS", IMPATIENT)
    async with half_gone(tmp_path, monkeypatch, has_leader=False) as stage:
        living = next(at for at in PARTITIONS if at != GONE)
        await commit_offsets(stage.source, "late", {living: CommittedOffset(3, "")})
        found = await drilled(stage)
    told = {(one.kind, one.subject): one for one in found.findings}
    assert {("group_not_carried", "late"), ("returns_active", "east")} <= told.keys()
    text = told["not_looked_at", stage.link.name].detail
    assert text.startswith("not all of east could be looked at: what it did not tell is as west keeps it")
    assert found.loss is not None


async def test_a_transaction_that_holds_up_the_link_is_in_a_drill(tmp_path: Path) -> None:
    """It was ready, with a lag of 0, beside a loss of all that stands behind the transaction."""
    async with two_sites(tmp_path, site_start_frozen=True) as stage, mirrored(stage):
        append_unasked(stage.brokers[0], PARTITIONS[1], transactional(ProducerIdAndEpoch(4_711, 0)))
        await write(stage.source, PARTITIONS[1], some_records(7_000, 40))
        found = await drilled(stage)
    assert (found.lag_records, found.is_ready) == (0, False)
    assert ("transaction_open", "flights-1") in [(one.kind, one.subject) for one in found.findings]
    assert any(one.next_step.endswith("says whose it is") for one in found.findings)


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_source_that_would_come_back_active_is_found(tmp_path: Path, is_held: bool) -> None:
    """Nobody can tell it of the failover while it is down: its clients would write beside those of the target."""
    async with two_sites(tmp_path, site_start_frozen=is_held) as stage:
        async with mirrored(stage):
            found = await drilled(stage)
        told = [(one.kind, one.subject, one.detail) for one in found.findings if one.kind == "returns_active"]
        text = "east would come back active behind a failover, and take writes beside west (broker 1)"
        assert told == ([] if is_held else [("returns_active", "east", text)])
        standing = await site_standing(stage.source)
        await set_site_role(stage.source, SiteRole.STANDBY, "it was left", standing)
        again = await drilled(stage)
        assert "returns_active" not in {one.kind for one in again.findings}, "that role it keeps"


@pytest.mark.parametrize("as_kafka", [False, True])
async def test_offsets_that_stay_in_a_transaction_are_found_before_a_switchover_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_kafka: bool
) -> None:
    """The drill was ready, and the switchover was refused in the end. Kafka tells a group's first pending offset only
    to who names its partition.
    """
    if as_kafka:
        monkeypatch.setattr("broker.handlers.offset_fetch._all", lambda offsets: sorted(offsets.committed))
    async with two_sites(tmp_path, site_start_frozen=True) as stage, mirrored(stage):

        async def is_ready() -> bool:
            return (await drilled(stage)).is_ready

        await eventually(is_ready, "a drill without a finding")
        async with (
            pending_at_source(stage),
            pending_at_source(stage, "first") as producer,
            pending_at(stage.link.target, GROUP),
        ):
            found = await drilled(stage)
            held = [one for one in found.findings if one.kind == "group_pending"]
            assert [(one.subject, "transaction at west" in one.detail) for one in held] == [(GROUP, True)]
            assert found.pending_groups == (GROUP, "first")
            of_them = [one for one in found.findings if one.kind == "offsets_pending"]
            assert [one.subject for one in of_them] == [GROUP, "first"]
            assert "transaction at east" in of_them[0].detail
            assert "kafka-transactions.sh" in of_them[0].next_step
            await producer.abort_transaction()
            left = {(one.kind, one.subject) for one in (await drilled(stage)).findings}
            assert left == {("group_pending", GROUP), ("offsets_pending", GROUP)}


async def test_who_commits_in_one_transaction_after_the_other_is_no_finding() -> None:
    """Such a group has offsets pending in many a look; nothing is waited for where none has."""
    looks = iter([{"app", "stuck"}, {"stuck", "other"}, {"app", "stuck"}])
    asked: list[frozenset[str]] = []

    async def look(groups: frozenset[str]) -> frozenset[str]:
        asked.append(groups)
        return frozenset(next(looks, {"stuck"}))

    first = frozenset({"app", "stuck"})
    assert await watch_pending(first, look, 1.0) == PendingOffsets(first, frozenset({"stuck"}))
    assert len(asked) >= 3
    assert [sorted(each) for each in asked[1:3]] == [["app", "stuck"], ["stuck"]], "of those"
    assert await watch_pending((), look, 3_600.0) == PendingOffsets()
