"""What somebody decided to leave at a source is told by each move to a target that does not get it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from deploy.cli.failback_end import tell_end
from deploy.cli.failover_tables import show_plan, show_result, summary
from deploy.cli.terminal import ExitCode
from failover.failback.plan import BackLink, plan_failback
from failover.failback.stranding import Stranded
from failover.observing.left_ranges import left_ranges
from failover.observing.snapshot import LeftRange
from failover.planning.plan import plan_failover, plan_switchover
from mirror.api import Gap, GapKind, GapStatus, Link, LinkCondition, LinkRun, RunState, promote_link
from tests.deploy.cli.test_stranded import NEWER, SHARED, STRANDED, WHERE, Operator, operator
from tests.deploy.cli.test_told_plans import MIRRORED_NOW, as_result, told
from tests.mirror.harness import running, some_records, wait_for_records, write

__all__ = ["operator"]

LEFT = LeftRange("flights", 0, 20, 27, 7, 1_700_000_000_000, "by link resume")
SEEN = replace(MIRRORED_NOW, left_at_source=(LEFT,))
STAYS = "stay at east alone, as was decided at "


def stranded(first: int, end: int, status: GapStatus = GapStatus.PASSED, at_ms: int = 5) -> Gap:
    return Gap("flights", 0, GapKind.STRANDED, first, end, 0, status, at_ms, "by stranded leave")


def test_each_offset_is_left_once_and_what_retention_took_is_left_no_more() -> None:
    view = replace(MIRRORED_NOW.partitions[0], topic="flights", partition=0, source_start=15)
    gaps = [stranded(30, 40), stranded(10, 20), stranded(10, 22, at_ms=6), stranded(2, 9)]
    found = [(one.first_offset, one.end_offset, one.decided_at_ms) for one in left_ranges(gaps, [view])]
    assert found == [(15, 20, 5), (20, 22, 6), (30, 40, 5)]
    for gone in (replace(view, is_gone_at_source=True), replace(view, is_source_recreated=True)):
        assert left_ranges(gaps, [gone]) == ()


def test_neither_a_plan_nor_a_result_says_that_all_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """It said "nothing is lost: west has all that east has", and "only at the source: 0 records"."""
    plan = plan_switchover(SEEN)
    show_plan(plan)
    said = told(capsys)
    assert f"7 records in 1 partition {STAYS}2023-11-14T22:13:20.000Z (by link resume)" in said
    assert "beside what was left there before, nothing is lost: west has all else that east has" in said
    assert "farshore stranded list --link east-west" in said
    assert "from link east-west, and has them where they were replayed since, which was not looked at. " in said
    assert "--policy append`, brings what of them was not replayed before, and nothing twice, there" in said
    read = replace(SEEN, left_at_source=(replace(LEFT, may_be_replayed=False),))
    show_plan(plan_switchover(read))
    assert "from link east-west, and nobody has replayed them there. " in told(capsys)

    result = replace(as_result(plan), left_at_source=SEEN.left_at_source)
    show_result(result)
    shown = capsys.readouterr()
    said = " ".join(shown.err.split())
    assert "Only at the source: none beside what was left there before\n" in shown.out
    assert f"7 records in 1 partition {STAYS}" in said
    assert "beside what was left there before, only at the source: 0 " in said
    assert STAYS in summary(result)


def test_of_what_was_not_read_it_is_said_how_much_it_is_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    uncounted = replace(LEFT, partition=1, first_offset=0, end_offset=90, records=None, reason="by stranded leave")
    seen = replace(SEEN, left_at_source=(LEFT, uncounted))
    show_plan(plan_failover(seen, allow_data_loss=True, even_if_source_answers=True))
    said = told(capsys)
    assert "at most 97 records in 2 partitions (by their offsets: they were not read) stay at east alone" in said
    assert "as was decided more than once, the last time at 2023-11-14T22:13:20.000Z" in said


def test_a_failback_says_at_its_end_what_does_not_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    """It ended verified without a word of it."""
    link = Link("west-east", Site("west", "w:1"), Site("east", "e:1"), ("flights",))
    back = BackLink("east-west", LinkCondition.RUNNING, None, left=(LEFT,))
    run = LinkRun(RunState.PROMOTED, "one", 5)
    plan = plan_failback(Stranded("west-east", "west", "east", 0, ()), run, (back,), "folder", same_names=True)
    result = dict.fromkeys(("stranded_since", "role_in_the_way", "stranded_at_target"), ())
    assert tell_end(link, plan, {"switchover_exit_code": 0, **result}) == ExitCode.DONE
    assert f"7 records in 1 partition {STAYS}" in told(capsys)


def test_a_failback_has_it_in_its_plan(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    operator.run("link resume --link east-west --stranded leave --yes")

    async def leave_west() -> None:
        async with Cluster(operator.back.target) as east:
            await promote_link(operator.back, east, "back-1")

    asyncio.run(leave_west())
    back = json.loads(operator.run("failback --link west-east --dry-run -o json", ExitCode.REFUSED).stdout)
    assert [(one["records"], one["reason"]) for one in back["left_at_target"]] == [(STRANDED, "by link resume")]
    shown = operator.run("failback --link west-east --dry-run", ExitCode.REFUSED).stdout
    assert f"7 records in 1 partition {STAYS}" in " ".join(shown.split())


def test_a_switchover_reads_how_many_records_were_left_by_the_resumption_before(operator: Operator) -> None:
    asyncio.run(operator.lose_east())
    operator.run("link resume --link east-west --stranded leave --yes")

    async def go_on() -> None:
        async with Cluster(operator.link.source) as east, Cluster(operator.link.target) as west:
            await write(east, WHERE, some_records(3_000, 2))
            async with running(operator.link):
                await wait_for_records(west, WHERE, SHARED + NEWER + 2)

    asyncio.run(go_on())
    plan = json.loads(operator.run("switchover --link east-west --dry-run -o json").stdout)
    (left,) = plan["snapshot"]["left_at_source"]
    assert (left["topic"], left["records"], left["reason"]) == (WHERE.topic, STRANDED, "by link resume")
    moved = operator.run("switchover --link east-west --yes -o json")
    result = json.loads(moved.stdout)
    assert (result["verified"], result["left_at_source"]) == (True, [left])
    assert f"7 records in 1 partition {STAYS}" in result["summary"]
    assert f"7 records in 1 partition {STAYS}" in " ".join(moved.stderr.split())
