"""Moving the groups of one link: their offsets are written down as the link's own, committed, and that is noted.

They are committed as a pass over groups commits them, in a transaction of the writer that the link's fence gave: once
another machine has fenced the link, what this one staged is taken back, and it stages no more, however long it hung
(docs/adr/0029-an-operations-commits-are-fenced.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both, split_failures
from broker.client.group_commits import commit_offsets_of_groups
from broker.client.group_transactions import held_offsets
from broker.client.groups import committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.producers import ProducerIdAndEpoch
from broker.wire.vocabulary import TopicPartition
from failover.errors import FenceShrank, TakenOver
from failover.journal.log import FENCED
from failover.limits import DRAIN_POLL_S, FENCED_TRIES_MAX, HELD_S, NOTED_S
from failover.observing.sites import Sites
from failover.planning.moves import GroupMove, MoveKind
from failover.running.patience import patiently
from mirror.api import (
    GROUPS_PER_TRANSACTION,
    Change,
    Commits,
    Due,
    GroupSyncs,
    Link,
    LinkFenced,
    MovedPair,
    OffsetsHeld,
    Promotion,
    RunState,
    StateEntries,
    StateLog,
    VoidGroup,
    commit_groups,
    fence_groups,
    find_places,
    moved_groups,
    until_counted,
    with_entries,
)

Read = Callable[[], Coroutine[Any, Any, GroupSyncs]]
"""What the link's state says of groups."""
Write = Callable[[Sequence[Change]], Awaitable[None]]
"""Writes to the link's state, and returns when it is acknowledged; refused where somebody took the link over."""


class KeptGroups:
    """What the link's state says of groups, in the hands of the operation that fenced it."""

    def __init__(self, sites: Sites, log: StateLog) -> None:
        self._sites = sites
        self._log = log

    async def read(self) -> GroupSyncs:
        """Raises ClientError."""
        return (await patiently(partial(_entries, self._sites))).groups

    async def write(self, entries: Sequence[Change]) -> None:
        """Again, while brokers take over from one that went. Raises TakenOver where anybody has taken the link over
        since it was fenced, also this operation's next machine; ClientError.
        """
        try:
            await patiently(partial(self._write, entries))
        except LinkFenced as error:
            raise TakenOver(self._sites.link.name) from error

    async def _write(self, entries: Sequence[Change]) -> None:
        await self._log.settle()
        await self._log.append(entries)


async def _entries(sites: Sites) -> StateEntries:
    return await sites.readers.states.of(sites.link).read(sites.target, only=())


async def promoted_again(
    sites: Sites, operation_id: str, first: Promotion | None, promote: Callable[[], Awaitable[Promotion]] | None
) -> Promotion | None:
    """By `promote`, where a worker took the link over which this operation has promoted; None: it was somebody else.
    Raises FenceShrank, and what `promote` does.
    """
    state = await patiently(partial(_entries, sites))
    run, owner = state.run, state.owner
    is_own = run is not None and (run.state, run.operation_id) == (RunState.PROMOTED, operation_id)
    if first is None or promote is None or not is_own or owner is None or not owner.is_worker:
        return None
    again = await patiently(promote)
    left_out = {str(at): str(why) for at, why in sorted(again.left_out.items()) if at not in first.left_out}
    if again.groups_error is not None and first.groups_error is None:
        left_out["the groups' commits"] = str(again.groups_error)
    if left_out:
        raise FenceShrank(sites.link.name, left_out)
    return again


class Committing(Protocol):
    """How groups' offsets are committed."""

    async def look(self, groups: Sequence[str]) -> None:
        """Find out what these groups can be committed by. Raises ClientError."""

    async def commit(self, due: Sequence[Due], check: Callable[[], Awaitable[None]]) -> Commits:
        """Commit these groups, in as many transactions as it takes. `check` raises where the link is another's.

        Raises what `check` raises, and ClientError where it is not known of all.
        """

    async def until_counted(self) -> None:
        """Until whoever reads them finds them. Raises ClientError."""


class FencedCommits:
    """Under the fence of the link's groups: refused, whenever they arrive, once anybody has fenced the link since."""

    def __init__(self, target: Cluster, link: Link, writer: ProducerIdAndEpoch | None) -> None:
        """`writer`: as the promotion gave it."""
        self._target = target
        self._link = link
        self._writer = writer
        self._is_new = writer is not None
        self._ended: ProducerIdAndEpoch | None = None

    async def look(self, groups: Sequence[str]) -> None:
        self._places = await find_places(self._target, groups)

    async def commit(self, due: Sequence[Due], check: Callable[[], Awaitable[None]]) -> Commits:
        failures: dict[str, ClientError] = {}
        in_doubt: frozenset[str] = frozenset()
        for at in range(0, len(due), GROUPS_PER_TRANSACTION):
            ended = await self._commit_free(due[at : at + GROUPS_PER_TRANSACTION], check)
            failures |= ended.failures
            in_doubt |= ended.in_doubt
        return Commits(failures, None, self._ended, in_doubt)

    async def _commit_free(self, share: Sequence[Due], check: Callable[[], Awaitable[None]]) -> Commits:
        """Again for HELD_S those whose offsets somebody's transaction has; it may be what a machine before this one
        staged, whose end does not count yet.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + HELD_S
        failures: dict[str, ClientError] = {}
        in_doubt: frozenset[str] = frozenset()
        left = list(share)
        while True:
            ended = await self._commit(left, check)
            in_doubt |= ended.in_doubt
            self._ended = ended.writer or self._ended
            held = {group for group, error in ended.failures.items() if isinstance(error, OffsetsHeld)}
            failures |= {group: error for group, error in ended.failures.items() if group not in held}
            left = [one for one in left if one.group in held]
            if not left or loop.time() > until_s:
                return Commits(failures | {group: ended.failures[group] for group in held}, None, self._ended, in_doubt)
            await asyncio.sleep(DRAIN_POLL_S)

    async def _commit(self, share: Sequence[Due], check: Callable[[], Awaitable[None]]) -> Commits:
        """Again where a worker fenced the groups that did not know yet that the link is not its own: it commits none,
        as the state refuses it.
        """
        tries_left = FENCED_TRIES_MAX
        in_doubt: frozenset[str] = frozenset()
        while True:
            begin = partial(self._begin, check)
            ended = await commit_groups(self._target, self._link, begin, share, self._places)
            in_doubt |= ended.in_doubt  # a later try that is refused takes nothing back of what an earlier one did
            if ended.error is None:
                return ended._replace(in_doubt=in_doubt)
            await check()  # else the link is this operation's still, and taken up it does this again
            tries_left -= 1
            if not tries_left or not (isinstance(ended.error, KafkaError) and ended.error.code in FENCED):
                raise ended.error
            self._writer = None

    async def _begin(self, check: Callable[[], Awaitable[None]]) -> ProducerIdAndEpoch:
        if not self._is_new or self._writer is None:
            self._writer = await fence_groups(self._target, self._link, self._writer)
            await check()
        self._is_new = False
        return self._writer

    async def until_counted(self) -> None:
        if self._ended is not None:
            await until_counted(self._target, self._link, self._ended)


class UnfencedCommits:
    """Where the target does not let groups be fenced, which the end of the operation says: it is not verified then."""

    def __init__(self, target: Cluster) -> None:
        self._target = target

    async def look(self, groups: Sequence[str]) -> None:
        pass

    async def commit(self, due: Sequence[Due], check: Callable[[], Awaitable[None]]) -> Commits:
        wanted = {one.group: one.offsets for one in due}
        free, failures = split_failures(await held_offsets(self._target, wanted))
        site = self._target.site.name
        held = {group: OffsetsHeld(site, places) for group, places in free.items() if places}
        refused = await commit_offsets_of_groups(
            self._target, {group: wanted[group] for group in free if group not in held}
        )
        return Commits({**failures, **held, **refused}, None, None, frozenset(refused))

    async def until_counted(self) -> None:
        pass


def committing(target: Cluster, link: Link, fence: Promotion) -> Committing:
    """As the link's fence allows it."""
    if fence.groups_error is not None:
        return UnfencedCommits(target)
    return FencedCommits(target, link, fence.groups_writer)


_Stand = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True, slots=True)
class MadeMoves:
    """The moves as they were made; of the groups in `uncommitted` it is not known that they were."""

    moves: tuple[GroupMove, ...]
    uncommitted: frozenset[str]


async def move_groups(
    target: Cluster,
    moves: tuple[GroupMove, ...],
    read: Read,
    write: Write,
    commits: Committing,
    now_ms: int,
) -> MadeMoves:
    """Commit each group's offsets at the target: one that was killed may have made the moves before, and applications
    read on from there.

    Raises ClientError, where it is not known which were committed, and what `read` and `write` raise; where the first
    writing does nothing was committed.
    """
    groups = sorted({move.group for move in moves if move.commits})
    asked = both(committed_offsets_of_groups(target, groups), commits.look(groups))
    known, (found, _) = await both(read(), asked)  # over a distance a round trip less
    stand, untold = split_failures(found)
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
    due = [Due(group, offsets, stand[group]) for group, offsets in by_group.items()]
    # Whom a consumer keeps from it, say, the check will find.
    ended = await commits.commit(due, partial(write, [known.times]))
    done = {group: of_group for group, of_group in pairs.items() if group not in ended.failures}
    behind: list[Change] = [*moved_groups(with_entries(known, ahead), done, now_ms, is_done=True)]
    behind += _taken_back(known, (entry.group for entry in ahead), ended)
    if due or behind:
        await both(_until_counted(commits), _note(write, behind or [known.times]))
    return MadeMoves(tuple(made), frozenset({*ended.failures, *untold}))


def _taken_back(known: GroupSyncs, ahead: Iterable[str], ended: Commits) -> Iterable[Change]:
    """What the state said before of the groups of which nothing was committed: who moves them again, from wherever
    they stand by then, would take them for set back there.
    """
    for group in ahead:
        if group in ended.failures and group not in ended.in_doubt:
            yield known.by_group.get(group) or VoidGroup(group)


async def _until_counted(commits: Committing) -> None:
    with suppress(ClientError):  # it is decided; what does not stand there by then, the check will find
        await commits.until_counted()


async def _note(write: Write, behind: Sequence[Change]) -> None:
    """All stands by now, and so do the pairs: applications are not kept waiting for more than a moment."""
    with suppress(ClientError, TimeoutError):
        async with timeout(NOTED_S):
            await write(behind)


def _pairs(moves: Iterable[GroupMove], stand: _Stand) -> dict[str, dict[tuple[str, int], MovedPair]]:
    """What the link's state is to say of each move that is known to mean the same place at both sites.

    Where only the source has writers a group that is ahead was not brought there by the link, nor is the end of what
    was mirrored what it had read; where both have, a pass over groups counts them as read at the target, too.
    """
    pairs: dict[str, dict[tuple[str, int], MovedPair]] = {}
    for move in moves:
        is_same = move.kind in (MoveKind.TRANSLATED, MoveKind.ALREADY_THERE)
        is_known = is_same or (move.turn and move.kind in (MoveKind.AHEAD, MoveKind.AT_END, MoveKind.AT_START))
        if not is_known or move.source_offset is None or move.target_offset is None:
            continue
        if move.commits and move.group not in stand:
            continue  # nothing is committed of it
        there = stand.get(move.group, {}).get(TopicPartition(move.target_topic, move.partition))
        stood_at = (there.offset if there is not None else None) if move.commits else move.target_offset
        pair = MovedPair(move.source_offset, move.target_offset, stood_at, move.turn)
        pairs.setdefault(move.group, {})[move.topic, move.partition] = pair
    return pairs
