"""`farshore stranded`: what only a link's source has, since its target was promoted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.deciding import are_clients_at_target, steps_to_decide
from deploy.cli.failback_words import lacks_line, told_partings
from deploy.cli.failover_tables import tell_next
from deploy.cli.lines import filled
from deploy.cli.next_steps import look_at_links_back
from deploy.cli.parameters import Duration
from deploy.cli.resuming import Resuming, amid_no_move, refuse_amid_move
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import (
    LINK_HELP,
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    progress,
    run_async,
    yes_option,
)
from deploy.cli.waits import told_if_long
from failover.failback.export import MANIFEST, Manifest, export_stranded, read_manifest
from failover.failback.replay import Replayed, check_left, replay
from failover.failback.stranding import (
    Stranded,
    check_settled,
    count_in,
    leave_at_source,
    read_stranded,
    unshown_starts,
)
from failover.observing.partings import target_lacks
from failover.observing.unshown import FEWER_IN_SYNC, TO_BE_SHOWN, TO_BE_TOLD, told_in_doubt, told_unshown, told_untold
from mirror.api import TailReader
from mirror.link import Link
from mirror.offsets.entries import LinkRun
from mirror.offsets.state import read_entries
from mirror.worker.declared import complete_link
from mirror.worker.parted import PartingKind, that_are_missing

COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records", "first_timestamp", "last_timestamp", "left")

RANGE_COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records", "size_bytes")


@click.group("stranded")
def stranded_group() -> None:
    """Records that only a link's source has, since its target was promoted: list, export, leave, replay."""


@stranded_group.command("list")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(0),
    default="30s",
    show_default=True,
    help="How long to read at the source; what is not read then is said.",
)
@output_option
@click.pass_obj
def list_command(context: AppContext, link_name: str | None, timeout_ms: int, output: str) -> None:
    """List per partition what stands at the source behind the last mirrored record, counted by reading it.

    Transactions' markers, aborted records and what came from the target do not count. Of a link that is not promoted it
    has what was left before: what else its source has is lag. Exit code 4 where it is not known
    whether there are more: the logs could not be compared, or nobody is shown what a leader has, or told whether it has
    any; and where the target lacks records of its own that the source has from it, and no link brings.
    """
    link = context.link(link_name)
    found = with_lacks(link, look(link, timeout_ms / 1000))
    looking = look_at_links_back(link, context.links(), are_asked=bool(found.undecided))
    back, conditions = run_async(looking)
    links, is_promoted = context.links(), found.is_promoted
    where = partial(are_clients_at_target, link, links)
    at_target = run_async(with_both_sites(link, where)) if found.undecided else None
    steps = steps_to_decide(link, found, back.links, conditions, links, is_promoted=is_promoted, at_target=at_target)
    if output != Output.TABLE:
        emit({**to_document(found), "next": steps}, output)
    else:
        print_table(to_document(found.tails), COLUMNS, "")
        click.echo(filled(in_words(found)))
        for line in (*parting_lines(found), *cut_lines(found), *unshown_lines(found)):
            click.echo(filled(line))
        tell_next(steps)
    raise SystemExit(exit_code_of(found))


def exit_code_of(found: Stranded) -> ExitCode:
    """Of a list: that there are some is what was asked for, and no finding."""
    is_more_unknown = found.not_compared or found.untold_ends or unshown_starts(found.undecided)
    return ExitCode.FINDINGS if is_more_unknown or found.target_lacks else ExitCode.DONE


@stranded_group.command("export")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="DIR",
    help="A folder that is not there.",
)
@click.option("--left", is_flag=True, help="Instead those of which it was decided that they stay at the source.")
@output_option
@click.pass_obj
def export_command(context: AppContext, link_name: str | None, folder: Path, left: bool, output: str) -> None:
    """Write the batches of stranded records to files, as they stand in the source's log, with a manifest.

    Of records that were decided to stay at the source nothing is written, so that no replay brings them unasked.
    When it returns they are on the disk. Nothing changes at either site.
    """
    link = context.link(link_name)
    manifest = export(link, folder, left=left)
    if output != Output.TABLE:
        emit(manifest, output)
        return
    print_table(to_document(manifest.ranges), RANGE_COLUMNS, "")
    count, where = counted(manifest.records, "record"), counted(len(manifest.ranges), "range")
    click.echo(filled(f"{count} in {where} saved to {folder}; {MANIFEST} there has the SHA-256 of each"))


def export(link: Link, folder: Path, *, left: bool) -> Manifest:
    """What only the source has, in files: what nobody decided about, or what was `left` there. Raises CommandRefused,
    FailoverError.
    """

    async def job(source: Cluster | None, target: Cluster) -> Manifest:
        reader, found = await read_shown(link, source, target)
        tails = [tail for tail in found.tails if tail.left] if left else found.undecided
        if not found.tails and not found.is_promoted:
            raise CommandRefused(in_words(found), "only what a promoted link left behind is saved", ExitCode.REFUSED)
        if not tails and found.tails:
            decided, hint = ("never", "leave out --left") if left else ("already", "add --left to save it")
            raise CommandRefused(
                f"of all that {link.source.name} alone has it was {decided} decided to stay there", hint
            )
        return await export_stranded(reader, tails, folder, target.clock.now_ms())

    return run_async(with_both_sites(link, job, is_told=True))


@stranded_group.command("leave")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@dry_run_option("what would stay at the source")
@yes_option
@output_option
@click.pass_obj
def leave_command(context: AppContext, link_name: str | None, dry_run: bool, yes: bool, output: str) -> None:
    """Decide that stranded records stay at the source: no link brings them, and no group is to read them next.

    The link stays promoted; when it is resumed it goes on behind them.
    """
    link = context.link(link_name)
    refuse_amid_move(link)
    seen = run_async(_run_of(link))
    found = look(link)
    tails = found.undecided
    if not found.tails and not found.is_promoted:  # of what was left before it is so, as was asked for
        text = (
            f"only what a promoted link left behind is decided about; `farshore status --link {link.name}` has its lag"
        )
        raise CommandRefused(in_words(with_lacks(link, found)), text, ExitCode.REFUSED)
    check_settled(tails, link.source)
    for line in unshown_lines(found):
        click.echo(filled(line), err=True)
    if dry_run or not tails:
        if tails or output != Output.TABLE:
            emit(tails, output, columns=COLUMNS)
        if output == Output.TABLE:
            found = with_lacks(link, found)
            click.echo(filled(in_words(found) + ("" if tails else ": there is nothing to decide")))
        return
    question = f"Let link {link.name} never bring them to {link.target.name}?"
    confirm_plan(tails, yes, question=question, columns=COLUMNS)

    async def leave() -> None:
        async with Cluster(link.target, client_id="farshore-cli") as target:
            check = partial(Resuming(link, seen, "", amid_failback=True).check, None, target)
            await leave_at_source(link, target, tails, "by stranded leave", check)

    run_async(leave())
    if output != Output.TABLE:
        emit([replace(tail, left=True) for tail in tails], output)
        return
    where = counted(len({tail.where for tail in tails}), "partition")
    click.echo(
        filled(
            f"decided: {counted(count_in(tails) or 0, 'record')} in {where} of {link.source.name} stay there; link "
            f"{link.name} does not bring them to {link.target.name}. `farshore stranded list --link {link.name}` has "
            "them, as left"
        )
    )


async def _run_of(link: Link) -> LinkRun | None:
    async with Cluster(link.target, client_id="farshore-cli") as target:
        return (await read_entries(link, target, only=())).run


@stranded_group.command("replay")
@click.option("--link", "link_name", metavar="LINK", help=LINK_HELP)
@click.option(
    "--from", "folder", required=True, type=click.Path(path_type=Path), metavar="DIR", help="What export wrote."
)
@click.option(
    "--policy",
    required=True,
    type=click.Choice(["append"]),
    help="append: behind what the target's partitions have, each record with a header that says where it came from.",
)
@dry_run_option("what would be appended")
@yes_option
@output_option
@click.pass_obj
def replay_command(
    context: AppContext, link_name: str | None, folder: Path, policy: str, dry_run: bool, yes: bool, output: str
) -> None:
    """Bring exported records to the link's target, which is the active site now. Run again it repeats nothing."""
    link = context.link(link_name)
    if not (folder / MANIFEST).exists():
        text = f"{folder} has no {MANIFEST}: it is no export, or one that was cut short"
        raise CommandRefused(text, "name the folder that `farshore stranded export --to` wrote", ExitCode.USAGE)
    manifest = read_manifest(folder)

    async def check() -> None:
        async with Cluster(link.target, client_id="farshore-cli") as target:
            await amid_no_move(link, target)
            check_left(await read_entries(link, target), manifest)

    run_async(check())
    plan = {"policy": policy, "target": link.target.name, "records": manifest.records, "ranges": manifest.ranges}
    if dry_run and output != Output.TABLE:
        emit(plan, output)
        return
    count = counted(manifest.records, "record")
    print_table(to_document(manifest.ranges), RANGE_COLUMNS, "", to_stderr=not dry_run)
    if dry_run:
        click.echo(f"{count} would be appended at {link.target.name}, but for those that an earlier run brought")
        tell_twice(link, manifest.records, to_stderr=False)
        return
    tell_twice(link, manifest.records)
    confirm_plan(None, yes, question=f"Append {count} at {link.target.name}?")
    with progress() as bars:
        bar = bars.add_task("replayed", total=manifest.records)

        async def bring() -> Replayed:
            async with Cluster(link.target, client_id="farshore-cli") as target:
                await amid_no_move(link, target)
                check_left(await read_entries(link, target), manifest)  # somebody may have let the link run meanwhile
                return await replay(link, target, manifest, folder, lambda records: bars.advance(bar, records))

        done = run_async(bring())
    emit(done, output)


def tell_twice(link: Link, records: int, *, to_stderr: bool = True) -> None:
    """What a replay means for the site whose records they are: what it gets back of the target has them, too. With
    prefixed names nothing comes back under the name that it has there.
    """
    if records and link.topic_names == "same":
        text = (
            f"unless {link.source.name} begins with empty disks, its log has them still, and a failback, or any link "
            f"from {link.target.name}, brings the copies there: then {link.source.name} has "
            f"{counted(records, 'record')} twice, and groups that stand before both read them twice"
        )
        click.echo(filled(text), err=to_stderr)


def look(link: Link, within_s: float | None = None) -> Stranded:
    """What only the source has; `within_s` as of `read_stranded`. Raises CommandRefused where the source does not
    answer.
    """

    async def job(source: Cluster | None, target: Cluster) -> Stranded:
        return (await read_shown(link, source, target, within_s))[1]

    return run_async(with_both_sites(link, job, is_told=True))


def with_lacks(link: Link, found: Stranded) -> Stranded:
    """With what the target lacks of its own, for who tells that. Raises as `look`."""

    async def job(source: Cluster | None, target: Cluster) -> Stranded:
        if source is None:
            raise no_answer(link)
        lacks = await target_lacks(await complete_link(link, source, target), source, target)
        return replace(found, target_lacks=lacks)

    async def compare() -> Stranded:
        async with told_if_long(f"comparing what {link.source.name} and {link.target.name} have"):
            return await with_both_sites(link, job)

    return run_async(compare())


async def read_shown(
    link: Link, source: Cluster | None, target: Cluster, within_s: float | None = None
) -> tuple[TailReader, Stranded]:
    """As `read_stranded`, with a bar. Raises CommandRefused where the source does not answer."""
    if source is None:
        raise no_answer(link)
    with progress() as bars:
        bar = bars.add_task(f"read at {link.source.name}", total=None)
        return await read_stranded(
            link, source, target, lambda read, there: bars.update(bar, total=there, completed=read), within_s
        )


def no_answer(link: Link) -> CommandRefused:
    """What is said where the source must be asked, and does not answer."""
    text = f"site {link.source.name} does not answer: only it knows what it has"
    return CommandRefused(text, "try again when it answers")


def in_words(found: Stranded) -> str:
    """One line; of those that nobody decided about, and of the others."""
    total = len(found.tails)
    lacks = lacks_line(found.target_lacks, found.target) if found.target_lacks else ""
    if found.not_compared:
        places = "; ".join(f"{one.where}: {one.in_words(found.source)}" for one in found.not_compared)
        return f"what {found.source} alone has is not known: {places}{f'; {lacks}' if lacks else ''}"
    if not found.is_promoted:
        stay = f"; {counted(total, 'range')} of before stay at {found.source}, as was decided" if total else ""
        return (
            f"link {found.link} is not promoted: what {found.source} has beyond what was mirrored is its lag, of which "
            f"`farshore status` tells, and not this{stay}{f'; {lacks}' if lacks else ''}"
        )
    if not total:
        shown = "" if not found.may_be_brought and not found.untold_ends else ", of what everybody is shown"
        return lacks or f"{found.source} has no record that {found.target} lacks{shown}"
    count = (
        "records, how many is not known (an open transaction, what nobody is shown yet, or no known end),"
        if found.records is None
        else ""
    )
    count = count or counted(found.records or 0, "record")
    if found.cut:
        least = sum(tail.records_at_least or tail.records or 0 for tail in found.tails)
        count = f"at least {counted(least, 'record')}"
    is_left = found.undecided != found.tails
    more = f"; {_left_in_words(found)} decided about before, and stay at {found.source}" if is_left else ""
    return f"{found.source} alone has {count} in {counted(total, 'range')}{more}{f'; {lacks}' if lacks else ''}"


def cut_lines(found: Stranded) -> Iterable[str]:
    """How far was read where the time was over, and how it is read to the end."""
    if found.cut:
        places = ", ".join(f"{tail.where} until offset {tail.read_to} of {tail.end_offset}" for tail in found.cut)
        yield f"not all was read in the time: {places}; a longer --timeout reads further"


def unshown_lines(found: Stranded) -> Iterable[str]:
    """What nobody can count yet, and what has it shown; and where it is not known whether there is any."""
    if starts := unshown_starts(found.may_be_brought):
        yield told_in_doubt(starts)
    if found.untold_ends:
        yield f"{told_untold(found.source, found.untold_ends)}; {TO_BE_TOLD}"
    if starts := unshown_starts(found.undecided):
        yield f"{told_unshown(starts)}; {TO_BE_SHOWN}. {FEWER_IN_SYNC}"


def _left_in_words(found: Stranded) -> str:
    ranges = len(found.tails) - len(found.undecided)
    if not found.undecided:
        return "all of these were"
    records = "records of these" if found.left_records is None else f"{counted(found.left_records, 'record')} of these"
    return f"{records}, in {counted(ranges, 'range')}, were"


def parting_lines(found: Stranded) -> Iterable[str]:
    """Where the source has not what was mirrored from it: what the target alone has, as `status` says it, and what is
    there no more.
    """
    if missing := [one for one in that_are_missing(found.partings) if one.is_known]:
        what = f"{found.target} alone has records that {found.source} had, and no link brings them"
        yield f"{what}: {told_partings(missing, found.source)}"
    for one in found.partings:
        if one.kind is PartingKind.GONE and one not in missing:
            yield f"{one.where}: {one.in_words(found.source)}"
