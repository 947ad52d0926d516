"""Moving the groups of one link: their offsets are written down as the link's own, committed, and that is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.groups import commit_offsets_of_groups, committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.errors import TakenOver
from failover.moves import GroupMove, MoveKind
from failover.patience import patiently
from failover.sites import Sites
from mirror.api import (
    Change,
    GroupSyncs,
    LinkFenced,
    MovedPair,
    StateEntries,
    StateLog,
    moved_groups,
    with_entries,
)

Write = Callable[[Sequence[Change]], Awaitable[None]]
"""Writes to the link's state, and returns when it is acknowledged; refused where somebody took the link over."""


class KeptGroups:
    """What the link's state says of groups, in the hands of the operation that fenced it."""

    def __init__(self, sites: Sites, log: StateLog) -> None:
        self._sites = sites
        self._log = log
        self._failed = False

    async def read(self) -> GroupSyncs:
        """Raises ClientError."""
        return (await patiently(self._entries)).groups

    async def write(self, entries: Sequence[Change]) -> None:
        """Again, while brokers take over from one that went. Raises TakenOver where anybody has taken the link over
        since it was fenced, also this operation's next machine; ClientError.
        """
        try:
            await patiently(partial(self._write, entries))
        except LinkFenced as error:
            raise TakenOver(self._sites.link.name) from error

    async def _write(self, entries: Sequence[Change]) -> None:
        if self._failed:
            self._log = await self._log.renewed()
        self._failed = True
        await self._log.append(entries)
        self._failed = False

    async def _entries(self) -> StateEntries:
        return await self._sites.readers.states.of(self._sites.link).read(self._sites.target, only=())


_Stand = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


async def move_groups(
    target: Cluster, moves: tuple[GroupMove, ...], known: GroupSyncs, write: Write, now_ms: int
) -> tuple[GroupMove, ...]:
    """Commit each group's offsets at the target, all of a group in one request, the groups side by side -> the moves as
    they were made: one that was killed may have made them before, and applications read on from there.

    `known`: what the link's state says of groups. Raises ClientError, where it is not known which were committed, and
    what `write` raises; where the first writing does nothing was committed.
    """
    groups = {move.group for move in moves if move.commits}
    stand, _untold = split_failures(await committed_offsets_of_groups(target, sorted(groups)))
    made: list[GroupMove] = []
    by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for move in moves:
        where = TopicPartition(move.target_topic, move.partition)
        there = stand.get(move.group, {}).get(where)
        made.append(now := move.of_one_at(there.offset if there is not None else None))
        if now.commits and now.target_offset is not None and now.group in stand:
            by_group.setdefault(now.group, {})[where] = CommittedOffset(now.target_offset, now.metadata)
    pairs = _pairs(made, stand)
    ahead = moved_groups(known, pairs, now_ms, is_done=False)
    # Something is written in any case: it is refused where the link was taken over since it was fenced.
    await write(ahead or [known.times])
    # Whom a consumer keeps from it, say, the check will find.
    refused = await commit_offsets_of_groups(target, by_group)
    done = {group: of_group for group, of_group in pairs.items() if group not in refused}
    behind = moved_groups(with_entries(known, ahead), done, now_ms, is_done=True)
    with suppress(ClientError):  # all stands, and so do the pairs
        if behind:
            await write(behind)
    return tuple(made)


def _pairs(moves: Iterable[GroupMove], stand: _Stand) -> dict[str, dict[tuple[str, int], MovedPair]]:
    """What the link's state is to say of each move that is known to mean the same place at both sites.

    Where only the source has writers a group that is ahead was not brought there by the link, nor is the end of what
    was mirrored what it had read; where both have, a pass over groups counts them as read at the target, too.
    """
    pairs: dict[str, dict[tuple[str, int], MovedPair]] = {}
    for move in moves:
        is_same = move.kind in (MoveKind.TRANSLATED, MoveKind.ALREADY_THERE)
        is_known = is_same or (move.turn and move.kind in (MoveKind.AHEAD, MoveKind.AT_END))
        if not is_known or move.source_offset is None or move.target_offset is None:
            continue
        if move.commits and move.group not in stand:
            continue  # nothing is committed of it
        there = stand.get(move.group, {}).get(TopicPartition(move.target_topic, move.partition))
        stood_at = (there.offset if there is not None else None) if move.commits else move.target_offset
        pair = MovedPair(move.source_offset, move.target_offset, stood_at, move.turn)
        pairs.setdefault(move.group, {})[move.topic, move.partition] = pair
    return pairs
