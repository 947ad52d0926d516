"""`farshore stranded`: what only a link's source has, since its target was promoted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import (
    LINK_HELP,
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    emit,
    output_option,
    run_async,
)
from failover.failback.stranding import Stranded, check_settled, look_for_stranded
from mirror.api import StrandedTail
from mirror.link import Link
from mirror.resumption import ResumePlan
from mirror.status import LinkCondition

COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records", "first_timestamp", "last_timestamp", "left")


class StrandedWay(StrEnum):
    """What becomes of stranded records when their link goes on."""

    LEAVE = "leave"
    APPEND = "append"


@click.group("stranded")
def stranded_group() -> None:
    """Records that only a link's source has, since its target was promoted: list, export, replay."""


@stranded_group.command("list")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@output_option
@click.pass_obj
def list_command(context: AppContext, link_name: str | None, output: str) -> None:
    """List per partition what stands at the source behind the last mirrored record, counted by reading it.

    Transactions' markers, aborted records and what came from the target do not count.
    """
    link = context.link(link_name)
    found = look(link)
    if output != Output.TABLE:
        emit(found, output)
        return
    print_table(to_document(found.tails), COLUMNS, "")
    click.echo(in_words(found))


def look(link: Link) -> Stranded:
    """What only the source has. Raises CommandRefused where it does not answer."""

    async def job(source: Cluster | None, target: Cluster) -> Stranded | None:
        return await look_for_stranded(link, source, target) if source is not None else None

    found = run_async(with_both_sites(link, job))
    if found is None:
        text = f"site {link.source.name} does not answer: only it knows what it has"
        raise CommandRefused(text, "try again when it answers")
    return found


def in_words(found: Stranded) -> str:
    """One line; of those that nobody decided about, and of the others."""
    total = len(found.tails)
    if not total:
        return f"{found.source} has no record that {found.target} lacks"
    count = "records that are not counted, since a transaction is open there," if found.records is None else ""
    count = count or counted(found.records or 0, "record")
    left = total - len(found.undecided)
    more = f"; of {left} it was decided that they stay at {found.source}" if left else ""
    return f"{found.source} alone has {count} in {counted(total, 'range')}{more}"


def stranded_in_the_way(link: Link, plan: ResumePlan, way: StrandedWay | None) -> Sequence[StrandedTail]:
    """The tails that are to stay at the source when the promoted link goes on. Raises CommandRefused (exit 3) where
    nobody said what becomes of records that would come behind newer ones, StrandedUnknown.
    """
    if plan.condition is not LinkCondition.PROMOTED or way is StrandedWay.APPEND:
        return ()
    behind = look_or_refuse(link).behind_newer
    if way is StrandedWay.LEAVE:
        check_settled(behind)
        return behind
    if behind:
        records, partitions = sum(tail.records or 0 for tail in behind), counted(len(behind), "partition")
        text = (
            f"{link.source.name} has {counted(records, 'record')} in {partitions} that {link.target.name} lacks, "
            f"and {link.target.name} has newer ones: link {link.name} would append them there. Nothing was changed"
        )
        raise CommandRefused(text, _ways(link), ExitCode.REFUSED)
    return ()


def look_or_refuse(link: Link) -> Stranded:
    """As `look`, as a gate (exit 3)."""
    try:
        return look(link)
    except CommandRefused as refused:
        hint = f"{refused.hint}; or append whatever it has, when it is back: add --stranded append"
        raise CommandRefused(f"{refused.message}. Nothing was changed", hint, ExitCode.REFUSED) from refused


def _ways(link: Link) -> str:
    name = link.name
    return (
        f"see them: farshore stranded list --link {name}; then go on without them: "
        f"farshore link resume --link {name} --stranded leave; or with them: --stranded append"
    )
