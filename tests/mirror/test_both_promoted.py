"""A link and its link back are promoted, both: neither mirrors, and that is found, with what goes on from there."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.offsets.operations import pause_link, restart_link, resume_link
from mirror.status import link_status
from monitoring.metrics.observation import Board
from monitoring.metrics.watch import LinkWatch
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.failback.test_promoted_later import FIRST, Machines, bring_news
from tests.mirror.harness import some_records, write

BOTH = LinkFindingKind.BOTH_PROMOTED
SPLIT = (LinkFindingKind.SPLIT_BRAIN, LinkFindingKind.TWO_ACTIVE, LinkFindingKind.LEFT_BEHIND)


async def findings(link: Link) -> list[LinkFinding]:
    return list((await link_status(link, HeartbeatWatch(SystemClock()))).findings)


async def of_kind(link: Link, kind: LinkFindingKind) -> list[LinkFinding]:
    return [finding for finding in await findings(link) if finding.kind is kind]


async def is_shown(link: Link) -> bool:
    watch = LinkWatch(link, Board(), SystemClock())
    try:
        split = (await watch.look()).split
    finally:
        await watch.close()
    assert split is not None
    return split.both_promoted


async def close(lost: Lost) -> None:
    east = lost.stage.source
    await set_site_role(east, SiteRole.STANDBY, "a test", await site_standing(east), [FIRST.topic])


async def test_behind_a_way_back_the_link_that_is_to_run_again_says_that_neither_does(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 31, (0, 0), (3, 0)) as lost, AsyncExitStack() as stack:
        assert not await of_kind(lost.there, BOTH), "the link back is there, and was not promoted"
        await bring_news(lost)
        await Machines(stack).promote(lost.back, "switchover-1", 0)
        (found,) = await of_kind(lost.there, BOTH)
        assert found.detail == (
            f"link {lost.back.name} was promoted since, so neither mirrors: what is written at east does not come to "
            "west"
        )
        assert found.next_step == f"farshore link resume --link {lost.there.name}"
        assert await is_shown(lost.there)
        assert not await of_kind(lost.back, BOTH), "one of them is to run, and the other is not"
        assert not await is_shown(lost.back)
        drill = await drill_link(
            lost.there, HeartbeatWatch(SystemClock()), AuditNote(), SystemClock().now_ms, (lost.there, lost.back)
        )
        assert ("both_promoted", found.next_step) in [(each.kind, each.next_step) for each in drill.findings]
        await resume_link(lost.there, lost.stage.target, "resume-1")
        assert not await of_kind(lost.there, BOTH)
        assert not await is_shown(lost.there)


async def test_where_nobody_knew_of_the_other_both_say_so_and_neither_is_called_the_active_site(
    tmp_path: Path,
) -> None:
    """Each said that the other one is to stand by."""
    async with lost_and_back(tmp_path, 32, (6, 0), (3, 0)) as lost, AsyncExitStack() as stack:
        await write(lost.stage.source, FIRST, some_records(70_000, 2))
        await Machines(stack).promote(lost.back, "failover-2", 0, source_lives=False)
        for link, other in ((lost.there, lost.back), (lost.back, lost.there)):
            (found,) = await of_kind(link, BOTH)
            assert found.detail == (
                f"link {other.name} is promoted, too, and nothing says which was later: neither mirrors, and either "
                "site may take writes"
            )
            assert await is_shown(link)
            assert {each.next_step for each in await findings(link)} == {
                "choose the site that stays (`farshore site role`); is it east: farshore site standby --site west "
                f"--topic flights, then farshore link resume --link {lost.there.name}; is it west: farshore site "
                f"standby --site east --topic flights, then farshore link resume --link {lost.back.name}"
            }
        assert {each.kind for each in await findings(lost.there)} >= {
            BOTH,
            LinkFindingKind.TWO_ACTIVE,
            LinkFindingKind.SPLIT_BRAIN,
        }
        await close(lost)
        await resume_link(lost.back, lost.stage.source, "resume-1")
        left = {each.kind for each in await findings(lost.there)}
        assert left == {LinkFindingKind.SPLIT_BRAIN}, "what was written at both sites is told until it is decided about"


async def test_behind_a_decision_the_link_back_is_left_behind_and_no_split_is_told_of_it(tmp_path: Path) -> None:
    """It was: both sites were written to since it was promoted, and it was to be closed at the site that stays."""
    async with lost_and_back(tmp_path, 33, (0, 0), (3, 0)) as lost, AsyncExitStack() as stack:
        east, west, machines = lost.stage.source, lost.stage.target, Machines(stack)
        await bring_news(lost)
        await machines.promote(lost.back, "switchover-1", 0)
        await resume_link(lost.there, west, "resume-1")
        await machines.promote(lost.there, "failover-2", 0)
        await close(lost)
        for site, first, count in ((west, 80_000, 4), (east, 81_000, 2)):
            await write(site, FIRST, some_records(first, count))
        assert {each.kind for each in await findings(lost.there)} == {LinkFindingKind.SPLIT_BRAIN}
        await resume_link(lost.there, west, "resume-2")
        for _ in range(2):  # what a link does later takes nothing of that back
            (found,) = await findings(lost.back)
            assert (found.kind, found.next_step) == (
                LinkFindingKind.LEFT_BEHIND,
                f"farshore link resume --link {lost.back.name} --stranded append",
            )
            assert found.detail.startswith(
                f"clients went to west along link {lost.there.name} since, and this link was not let run: 4 of its own "
                "at west"
            )
            assert not await is_shown(lost.back)
            await restart_link(lost.there, west, "restart-1")
            await pause_link(lost.there, west, "pause-1")
        await resume_link(lost.back, east, "resume-3")
        assert not {each.kind for each in await findings(lost.back)} & {BOTH, *SPLIT}
