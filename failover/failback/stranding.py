"""The stranded tails of a link: looked at, and what the answer means for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.errors import StrandedUnknown, TailEndUnknown
from failover.freezing.choice import Freezing
from failover.observing.transaction_ends import how_they_end, told_starts
from failover.observing.unshown import FEWER_IN_SYNC, TO_BE_SHOWN, TO_BE_TOLD, told_unshown, told_untold
from mirror.api import Link, RunState, SourceParting, StrandedTail, TailReader, leave_stranded, resume_link

Report: TypeAlias = Callable[[int, int], None]
Check: TypeAlias = Callable[[], Awaitable[None]]
"""Raises where what is about to be changed is another machine's by now."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """What only the source has. `records`: of all tails, None where those of one are not known, or there may be more.
    `partings`: where the source has not what was mirrored from it. `target_lacks`: records of the target's own that it
    has no more, and the source has from it, by who asked for them: no tail has these, and no link brings them.
    `may_be_brought`: what nobody is shown, and a link back may be writing: whose it is nobody can say, and nothing is
    refused for it. `untold_ends`: of which the source does not say now whether there is more that nobody is shown; one
    that tells nobody has none of these.
    Not `is_promoted`: `tails` are those that were left once; what else the source has beyond what was mirrored is lag,
    and was not looked at.
    """

    link: str
    source: str
    target: str
    records: int | None
    tails: tuple[StrandedTail, ...]
    partings: tuple[SourceParting, ...] = ()
    target_lacks: tuple[SourceParting, ...] = ()
    is_promoted: bool = True
    untold_ends: tuple[TopicPartition, ...] = ()
    may_be_brought: tuple[StrandedTail, ...] = ()

    @property
    def not_compared(self) -> tuple[SourceParting, ...]:
        """Where it is not known whether the source's log is the one that was mirrored: it may have more there."""
        return tuple(one for one in self.partings if not one.is_known)

    @property
    def undecided(self) -> tuple[StrandedTail, ...]:
        """Those of which nobody said that they stay at the source."""
        return tuple(tail for tail in self.tails if not tail.left)

    @property
    def undecided_records(self) -> int | None:
        """Of these, as `records`."""
        return None if self.not_compared or self.untold_ends else count_in(self.undecided)

    @property
    def left_records(self) -> int | None:
        """Of those that somebody decided to leave there, an earlier failback say; None: not known."""
        return count_in(tail for tail in self.tails if tail.left)

    @property
    def cut(self) -> tuple[StrandedTail, ...]:
        """Those that were not read to their end in the time that there was."""
        return tuple(tail for tail in self.tails if tail.read_to is not None)

    @property
    def behind_newer(self) -> tuple[StrandedTail, ...]:
        """Of those: that the link, if it went on, would bring to the target behind newer records."""
        return tuple(tail for tail in self.undecided if tail.target_wrote)


async def look_for_stranded(link: Link, source: Cluster, target: Cluster) -> Stranded:
    """As `read_stranded`, for who wants no more than what it found."""
    return (await read_stranded(link, source, target))[1]


async def read_stranded(
    link: Link,
    source: Cluster,
    target: Cluster,
    report: Report = lambda _read, _there: None,
    within_s: float | None = None,
) -> tuple[TailReader, Stranded]:
    """Read what stands behind the last mirrored record -> the reader, which knows the way to the batches, and what it
    found; `report` gets the offsets that were read and those there are. `within_s`: for who decides nothing by it, and
    is told what was not read in that time. Raises ClientError, MirrorError, CorruptBatch.
    """
    until_s = None if within_s is None else asyncio.get_running_loop().time() + within_s
    reader = TailReader(link, source, target)
    run = await reader.look()
    tails = await reader.tails(report, until_s)
    found = Stranded(link.name, link.source.name, link.target.name, count_in(tails), tails, reader.partings)
    is_promoted = run is not None and run.state is RunState.PROMOTED
    found = replace(found, is_promoted=is_promoted)
    found = replace(found, untold_ends=reader.untold_ends, may_be_brought=reader.may_be_brought)
    is_known = found.is_promoted and not found.not_compared and not found.untold_ends
    return reader, found if is_known else replace(found, records=None)


def count_in(tails: Iterable[StrandedTail]) -> int | None:
    """The records of all, None where one is not known."""
    total = 0
    for tail in tails:
        if tail.records is None:
            return None
        total += tail.records
    return total


def check_settled(tails: Sequence[StrandedTail], source: Site) -> None:
    """Raise StrandedUnknown where a transaction is open at the `source`: its records come to be, or do not, when it
    ends; or where nobody is shown what is there; TailEndUnknown where the end of a tail is not known.
    """
    for tail in tails:
        if not tail.is_end_known:
            raise TailEndUnknown(
                f"what only the source has of {tail.where} ends at an offset that nobody knows: the source became the "
                "active site again, or may have, and no batch of a link back says from where on"
            )
    if starts := open_starts(tails):
        raise StrandedUnknown(f"a transaction is open in {told_starts(starts)}", hint=how_they_end(source, starts))
    if starts := unshown_starts(tails):
        raise StrandedUnknown(told_unshown(starts), hint=f"{TO_BE_SHOWN}. {FEWER_IN_SYNC}")


def open_starts(tails: Iterable[StrandedTail]) -> dict[TopicPartition, int]:
    """Where transactions are open in these, or before them: by partition the offset that one begins at."""
    return {tail.where: tail.open_from for tail in tails if tail.open_from is not None}


def unshown_starts(tails: Iterable[StrandedTail]) -> dict[TopicPartition, int]:
    """By partition from which offset on nobody is shown what is there."""
    return {tail.where: tail.first_offset for tail in tails if not tail.is_shown}


async def leave_at_source(
    link: Link, target: Cluster, tails: Sequence[StrandedTail], reason: str, check: Check | None = None
) -> None:
    """They stay there: the link goes on behind them. `check`: as of a promotion. Raises StrandedUnknown, MirrorError,
    ClientError.
    """
    check_settled(tails, link.source)
    if tails:
        await leave_stranded(link, target, [tail.as_left(target.clock.now_ms(), reason) for tail in tails], check)


class RoleInTheWay(StrEnum):
    """Why a link is not let run at the end of a way back, by what its sites' brokers say."""

    SOURCE_CLOSED = "source_closed"
    """It refuses writes to topics of the link: it is not the active site."""
    BOTH_OPEN = "both_open"
    """The target takes writes, too; of a link that runs nobody would see that."""


def role_in_the_way(roles: Freezing) -> RoleInTheWay | None:
    """None too where a site's brokers refuse nobody (Apache Kafka). Pure."""
    source, target = roles.source, roles.target
    if source is not None and not source.is_as(source.opened("", roles.topics)):
        return RoleInTheWay.SOURCE_CLOSED
    if target is not None and not target.covers(roles.topics):
        return RoleInTheWay.BOTH_OPEN
    return None


async def resume_settled(
    link: Link, source: Cluster, target: Cluster, operation_id: str, check: Check | None = None
) -> tuple[StrandedTail, ...]:
    """Let the link run again, unless it would bring what nobody decided about behind newer records: then it stays as it
    is -> those, none where it runs. Who wrote at the source until that was frozen left some. `check`: as of a
    promotion.

    Raises StrandedUnknown where the source does not say how far its logs go; ClientError, MirrorError, CorruptBatch.
    """
    found = await look_for_stranded(link, source, target)
    if found.untold_ends:
        raise StrandedUnknown(told_untold(found.source, found.untold_ends), hint=TO_BE_TOLD)
    tails = found.behind_newer
    if not tails:
        await resume_link(link, target, operation_id, check=check)
    return tails
