"""Who goes on at the source behind the moves: by its members, or by what it commits, which alone gives away a consumer
that joined no group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, split_failures
from broker.client.first_offsets import open_offsets, with_first_offsets
from broker.client.groups import list_groups, stable_offsets_of_groups
from broker.client.model import CommittedOffset
from failover.losses.stranded import source_partitions
from failover.observing.contact import SiteFinding
from failover.observing.looking import is_asked
from failover.observing.snapshot import Snapshot
from failover.planning.moves import GroupMove, MoveKind
from mirror.api import Link, Written, complete_link, read_entries

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LateCommit:
    """A group's offset at the source is `found_offset` by now, and its move was made from `moved_offset` (None: the
    group had none there). `found_offset` None: another is in a transaction that has not ended.
    """

    group: str
    topic: str
    partition: int
    moved_offset: int | None
    found_offset: int | None


@dataclass(frozen=True, slots=True)
class SourceReader:
    """A group with so many consumers at a source that was left; None: it answers, and does not tell."""

    group: str
    members: int | None


def source_readers(after: Snapshot) -> tuple[SourceReader, ...]:
    """Of a look behind the fence. Whom a source that is only partly there does not tell, none of it serves. Pure."""
    is_whole = after.source_finding is SiteFinding.ALIVE
    reading = [one for one in after.groups if one.source_members or (one.source_members is None and is_whole)]
    return tuple(SourceReader(one.group, one.source_members) for one in reading)


def as_asked(moves: Iterable[GroupMove], behind_fence: Snapshot) -> tuple[GroupMove, ...]:
    """The moves, as made from where that look saw groups at the source, of those that may have been decided on when it
    could not be asked: it came back, and what groups had committed there before it went is no reading since. Pure.
    """
    found = {
        (group.group, at.topic, at.partition): at.source_offset
        for group in behind_fence.groups
        for at in group.partitions
    }
    return tuple(
        replace(move, source_offset=found.get((move.group, move.topic, move.partition)))
        if move.source_offset is None
        else move
        for move in moves
    )


async def late_commits(
    link: Link,
    clusters: tuple[Cluster, Cluster],
    asked_groups: Collection[str],
    moves: Collection[GroupMove],
    left_groups: Collection[str],
) -> tuple[LateCommit, ...]:
    """As `late_commits_told`, of all groups. Raises ClientError where one is not told of."""
    late, untold = await late_commits_told(link, clusters, asked_groups, moves, left_groups)
    if untold is not None:
        raise untold
    return late


async def late_commits_told(
    link: Link,
    clusters: tuple[Cluster, Cluster],
    asked_groups: Collection[str],
    moves: Collection[GroupMove],
    left_groups: Collection[str],
) -> tuple[tuple[LateCommit, ...], ClientError | None]:
    """What groups committed at the source since their `moves` were made, and why not all is told, if it is not.
    `clusters`: source and target.

    `asked_groups`: only these (empty: all that the link selects); one that was moved also where no broker lists it, as
    its coordinator is away. What a link back committed there, because the group went on at the target, does not count;
    nor what is unknown of `left_groups`, which may stay. Raises ClientError where nothing can be told.
    """
    source, target = clusters
    offsets, untold = await committed_at_source(link, source, {move.group for move in moves}, asked_groups)
    carried = [  # read behind the offsets: what stood there by then was announced before
        {name: entry.written for name, entry in (await read_entries(back, source)).groups.by_group.items()}
        for back in (await complete_link(link, source, target)).reverse_links
    ]
    late = compare(offsets, moves, left_groups)
    return tuple(one for one in late if not any(_is_carried(one, written) for written in carried)), untold


async def committed_at_source(
    link: Link, source: Cluster, known: Collection[str], asked_groups: Collection[str]
) -> tuple[dict[tuple[str, str, int], CommittedOffset | None], ClientError | None]:
    """By group, topic and partition what groups have committed in the link's topics; None: one is pending there, be it
    the group's first. Beside it why some group is not told of, or not wholly. `known`: groups that are asked also where
    no broker lists them. Raises ClientError where the topics are not told.
    """
    (listed, opened), partitions = await both(
        both(_or_error(list_groups(source)), _or_error(open_offsets(source))), source_partitions(link, source)
    )
    untold = [one for one in (listed, opened) if isinstance(one, ClientError)]
    names = {*known} if isinstance(listed, ClientError) else {*listed, *known}
    asked = sorted(name for name in names if is_asked(link, name, asked_groups))
    found, failures = split_failures(await stable_offsets_of_groups(source, asked))
    untold += failures.values()
    if not isinstance(opened, ClientError):
        found, failures = split_failures(await with_first_offsets(source, found, partitions, opened))
        untold += failures.values()
    places = frozenset(partitions)
    offsets = {
        (group, at.topic, at.partition): None if at in of_group.pending else of_group.offsets[at]
        for group, of_group in sorted(found.items())
        for at in sorted((of_group.offsets.keys() | of_group.pending) & places)
    }
    return offsets, untold[0] if untold else None


async def _or_error(asking: Awaitable[T]) -> T | ClientError:
    try:
        return await asking
    except ClientError as error:
        return error


def compare(
    offsets: Mapping[tuple[str, str, int], CommittedOffset | None],
    moves: Iterable[GroupMove],
    left_groups: Collection[str],
) -> Iterable[LateCommit]:
    """The offsets, by group, topic and partition, that no move was made from; None: one is pending. Pure."""
    by_place = {(move.group, move.topic, move.partition): move for move in moves}
    for place, committed in offsets.items():
        move = by_place.get(place)
        if place[0] in left_groups and (move is None or move.kind is MoveKind.UNKNOWN):
            continue
        moved_offset = move.source_offset if move is not None else None
        if committed is None:
            yield LateCommit(*place, moved_offset, None)
        elif committed.offset != moved_offset:
            yield LateCommit(*place, moved_offset, committed.offset)


def _is_carried(late: LateCommit, written: Mapping[str, Mapping[tuple[str, int], Written]]) -> bool:
    back = written.get(late.group, {}).get((late.topic, late.partition))
    return back is not None and late.found_offset is not None and back.stands(late.found_offset)
