"""What becomes of stranded records when their promoted link is let run: decided, and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import click

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.lines import filled
from deploy.cli.stranded import COLUMNS, in_words, look
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import CommandRefused, ExitCode, Output, run_async
from failover.failback.copies import copies_among
from failover.failback.stranding import Stranded, check_settled, count_in
from failover.observing.unshown import TO_BE_TOLD, told_untold
from mirror.api import Link, LinkCondition, StrandedTail
from mirror.resumption import ResumePlan


class StrandedWay(StrEnum):
    """What becomes of stranded records when their link goes on."""

    LEAVE = "leave"
    """All of them stay at the source, also where the target has nothing newer."""
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class TailsGoing:
    """Of what only the source of a promoted link has. `leaves`: what stays there by this decision; `brings`: what the
    link brings to the target, behind what is there; None: the source could not be asked. `copies`: so many of either
    were replayed at the source, and the target has them in its own log; None: that cannot be told.
    """

    leaves: tuple[StrandedTail, ...] = ()
    brings: tuple[StrandedTail, ...] | None = ()
    copies: int | None = 0


def stranded_in_the_way(link: Link, plan: ResumePlan, way: StrandedWay | None) -> TailsGoing:
    """What becomes of the tails when the promoted link goes on. Whoever said that they stay gets none appended, also
    none where the target has nothing newer. Raises CommandRefused (exit 3) where nobody said what becomes of records
    that would come behind newer ones, StrandedUnknown.
    """
    going = _going(link, plan, way)

    async def look_for_copies(source: Cluster | None, target: Cluster) -> int | None:
        tails = (*going.leaves, *(going.brings or ()))
        return None if source is None else await copies_among(link, source, target, tails)

    if not going.leaves and not going.brings:
        return going
    return replace(going, copies=run_async(with_both_sites(link, look_for_copies)))


def _going(link: Link, plan: ResumePlan, way: StrandedWay | None) -> TailsGoing:
    if plan.condition is not LinkCondition.PROMOTED:
        return TailsGoing()
    if way is StrandedWay.APPEND:
        return TailsGoing(brings=_to_append(link))
    found = look_or_refuse(link)
    if found.untold_ends:
        hint = f"{TO_BE_TOLD}; or append whatever it has: add --stranded append"
        raise CommandRefused(
            f"{told_untold(found.source, found.untold_ends)}. Nothing was changed", hint, ExitCode.REFUSED
        )
    if way is StrandedWay.LEAVE:
        check_settled(found.undecided, link.source)
        return TailsGoing(found.undecided)
    if found.behind_newer:
        raise CommandRefused(f"{_asked_about(link, found)}. Nothing was changed", _ways(link), ExitCode.REFUSED)
    return TailsGoing(brings=found.undecided)


def _asked_about(link: Link, found: Stranded) -> str:
    """What would come behind newer records; and the rest, which the answer is about, too."""
    source, target, behind = link.source.name, link.target.name, found.behind_newer
    has = f"{source} has {_in_partitions(behind)} that {target} lacks"
    has = in_words(found) if found.not_compared else has
    text = f"{has}, and {target} has newer ones: link {link.name} would append them there"
    others = [tail for tail in found.undecided if tail not in behind]
    return (
        f"{text}; {_in_partitions(others)} more, where it has nothing newer, go the way you choose" if others else text
    )


def _in_partitions(tails: Sequence[StrandedTail]) -> str:
    count, where = count_in(tails), counted(len({tail.where for tail in tails}), "partition")
    told = "records, how many is not known," if count is None else counted(count, "record")
    return f"{told} in {where}"


def _to_append(link: Link) -> tuple[StrandedTail, ...] | None:
    """Of a source that is away, or does not tell all, whatever it has is appended: that was consented to."""
    try:
        return look(link).undecided
    except (CommandRefused, FarshoreError) as error:
        text = error.message if isinstance(error, CommandRefused) else str(error)
        click.echo(f"note: what {link.source.name} alone has could not be counted: {text}", err=True)
        return None


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


def tell_tails(link: Link, going: TailsGoing, output: str, *, to_stderr: bool = False) -> None:
    """What stays, and what comes behind what is there; a document on stdout has it itself."""
    if not to_stderr and output != Output.TABLE:
        return
    source, target = link.source.name, link.target.name
    for tails, what in ((going.leaves, f"stay at {source} alone"), (going.brings or (), f"are appended at {target}")):
        if tails:
            print_table(to_document(tails), COLUMNS, "", to_stderr=to_stderr)
            count = count_in(tails)
            told = "records that are not known" if count is None else counted(count, "record")
            where = counted(len({tail.where for tail in tails}), "partition")
            click.echo(f"{told} of {where} {what}", err=to_stderr)
    if going.copies:
        text = f"{going.copies} of these are copies that were replayed at {source} of what {target} has in its own log"
        click.echo(filled(f"{text}: appended, they are there twice" if going.brings else text), err=to_stderr)
    elif going.copies is None:
        text = f"whether copies are among these, replayed at {source} of what {target} has in its own log, is not known"
        click.echo(filled(text), err=to_stderr)
