"""`farshore status`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from broker.base.clock import SystemClock
from broker.base.durations import human_seconds
from deploy.cli.lines import filled_for_people, next_line, with_command
from deploy.cli.parameters import Duration
from deploy.cli.streams import is_gone
from deploy.cli.tables import counted
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, Output, emit, output_option, run_async
from deploy.cli.until import Goal, GoalOption
from mirror.heartbeat import HeartbeatWatch
from mirror.limits import STATUS_REFRESH_INTERVAL_MS
from mirror.link import Link
from mirror.link_finding import LinkFinding
from mirror.offsets.state import StateReaders
from mirror.status import LinkStatus, link_statuses

LINK_COLUMNS = (
    "link",
    "condition",
    "partitions",
    "lag_records",
    "lag_bytes",
    "lag_seconds",
    "heartbeat_age_seconds",
    "groups",
    "groups_waiting",
)
FINDING_COLUMNS = ("kind", "topic", "partition", "detail")
GAP_COLUMNS = ("topic", "partition", "kind", "status", "source_from", "source_to", "at")
LAG_COLUMNS = (
    "topic",
    "partition",
    "mirrored_offset",
    "source_end_offset",
    "lag_records",
    "lag_bytes",
    "lag_seconds",
)
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@click.command("status")
@click.option("--link", "link_name", metavar="LINK", help="Only this link.")
@click.option("--all", "every_partition", is_flag=True, help="Show partitions without a finding, and past gaps, too.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until interrupted.")
@click.option(
    "--until",
    "goal",
    type=GoalOption(),
    help="Wait until every link is `healthy` (no finding; a lag is none), or its `lag<5s`.",
)
@click.option(
    "--timeout", "timeout_ms", type=Duration(1), default="60s", show_default=True, help="How long --until waits."
)
@output_option
@click.pass_obj
def status(
    context: AppContext,
    link_name: str | None,
    every_partition: bool,
    watch: bool,
    goal: Goal | None,
    timeout_ms: int,
    output: str,
) -> None:
    """Links, their lag in records, bytes and seconds, their groups, and what needs a decision.

    Exit code 4 when there is a finding, and when --until was not reached in time.
    """
    if watch and goal is not None:
        raise click.UsageError("--watch never ends and --until does: give one of them")
    links = (context.link(link_name),) if link_name else context.links()
    if goal is not None and not links:
        raise click.UsageError("--until waits for links, and the file has none")
    heartbeats = HeartbeatWatch(SystemClock())
    if watch:
        run_async(_watch(links, heartbeats, output, every_partition), service=True)
        return
    if goal is not None:
        statuses, reached = run_async(_wait(links, heartbeats, goal, timeout_ms))
        show(statuses, output, every_partition)
        if not reached:
            text = f"not {goal.text} after {human_seconds(timeout_ms / 1000)}: {goal.missing(statuses)}"
            raise CommandRefused(text, goal.hint(statuses, context.links()), ExitCode.FINDINGS)
        return
    statuses = run_async(link_statuses(links, heartbeats))
    show(statuses, output, every_partition)
    raise SystemExit(ExitCode.FINDINGS if any(found.findings for found in statuses) else ExitCode.DONE)


async def _watch(links: Sequence[Link], heartbeats: HeartbeatWatch, output: str, every_partition: bool) -> None:
    readers = StateReaders()
    while not is_gone(sys.stdout):
        statuses = await link_statuses(links, heartbeats, readers)
        if output == Output.TABLE and sys.stdout.isatty():
            click.echo(CLEAR_SCREEN, nl=False)
        show(statuses, output, every_partition)
        await asyncio.sleep(STATUS_REFRESH_INTERVAL_MS / 1000)


async def _wait(
    links: Sequence[Link], heartbeats: HeartbeatWatch, goal: Goal, timeout_ms: int
) -> tuple[list[LinkStatus], bool]:
    """Look until the goal is reached or the time is over -> the last look, and whether it is."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    told, readers = "", StateReaders()
    while True:
        statuses = await link_statuses(links, heartbeats, readers)
        if goal.reached(statuses):
            return statuses, True
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            return statuses, False
        if (waiting := goal.waiting(statuses)) != told:
            click.echo(filled_for_people(waiting), err=True)
            told = waiting
        await asyncio.sleep(min(left_s, STATUS_REFRESH_INTERVAL_MS / 1000))


def show(statuses: Sequence[LinkStatus], output: str, every_partition: bool) -> None:
    """Print them: as tables the links first, then what needs attention, and the rest only when it is asked for."""
    if output != Output.TABLE:
        emit(list(statuses), output)
        return
    emit(list(statuses), output, columns=LINK_COLUMNS)
    for found in statuses:
        if found.trouble:
            click.echo(filled_for_people(f"{found.link}: {found.trouble}"), err=True)
        if found.split is not None and found.split.tails:
            tell_tails(found, len(found.split.tails))
        if found.findings:
            emit(list(found.findings), output, columns=FINDING_COLUMNS, title=f"findings of {found.link}")
            tell_next_steps(found.findings)
        if every_partition and found.gaps:
            emit(list(found.gaps), output, columns=GAP_COLUMNS, title=f"gaps of {found.link}")
        if every_partition and (rows := [*found.lags_unknown, *found.partition_lags]):
            emit(rows, output, columns=LAG_COLUMNS, title=f"partitions of {found.link}")


def tell_tails(found: LinkStatus, partitions: int) -> None:
    """What was lost with the source, and is there: no finding, as somebody decided to take over without it, and nothing
    that is healthy is less so. But whoever decides nothing about it forgets it.
    """
    told = tails_text(found.link, found.source, found.target, partitions)
    click.echo(with_command(told, f"farshore stranded list --link {found.link}"))


def tails_text(link: str, source: str, target: str, partitions: int, records: str = "records") -> str:
    where = counted(partitions, "partition")
    told = f"{link}: in {where} {source} alone has {records} from before {target} took over"
    return f"{told}, and nobody decided about them"


def tell_next_steps(findings: Sequence[LinkFinding]) -> None:
    """Each once, and each in a line of its own: a table would fold what is there to be copied."""
    for step in dict.fromkeys(finding.next_step for finding in findings if finding.next_step):
        click.echo(next_line(step))
