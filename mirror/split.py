"""Two sites that both take writes to the same topics since one took over from the other: seen from the promoted link.

What came to the source since is what lies behind all that the mirror brought, and behind where its logs ended at the
promotion, which who promoted the link has kept. Where the source did not tell that then, it is where they were last
seen to end before; an earlier version kept nothing, and then it is all that was ever seen, also by a worker that had
not noticed the promotion. In these cases a record's own time tells more where it is of today: one that was stamped
between that look and the promotion belongs to the loss; one that is stamped earlier may have come at any time since.
What a leader had at the promotion and nobody was shown came before it, too, unless another leader has others there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets
from broker.client.topics import list_each_topic, list_topics
from broker.wire.batch import BatchHeader
from broker.wire.errors import WireError
from broker.wire.records import decode_records
from broker.wire.site_role import SiteStanding
from broker.wire.vocabulary import NO_LEADER_EPOCH, IsolationLevel, TopicPartition
from mirror.closed_at_both import role_of
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, SPLIT_COUNT_MS
from mirror.link import Link
from mirror.offsets.entries import LinkRun
from mirror.offsets.promotions import is_later, promotion_of, went_back
from mirror.offsets.source_ends import Observation, load_observation
from mirror.offsets.state import LinkState, read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.topics.plan import select_topics
from mirror.worker.declared import complete_link
from mirror.worker.registry import registered_at


class EndSeen(StrEnum):
    """How it is known where a source's log ended when its link was promoted."""

    TOLD = "told"
    LAST_SEEN = "last_seen"
    """It did not say so then: records that came before the promotion, behind the last look, may count as later ones."""
    UNKNOWN = "unknown"
    """Nobody kept it: what came soon after the promotion may count as older, too."""


@dataclass(frozen=True, slots=True)
class LocalWrites:
    """Committed records of a site's own producers, from `first_offset` on: so many, counted by reading, the earliest
    stamped `first_timestamp_ms` by its producer. `is_complete`: all was read in time; else there may be more.
    `end_seen`: at the source, how it is known where its log ended when it was left.
    """

    topic: str
    partition: int
    first_offset: int
    records: int
    first_timestamp_ms: int
    is_complete: bool = True
    end_seen: EndSeen = EndSeen.TOLD


@dataclass(frozen=True, slots=True)
class NotRead:
    """A partition that grew at a site, or may have, and `why` it could not be read; "": there was no time for it."""

    topic: str
    partition: int
    site: str
    why: str


@dataclass(frozen=True, slots=True)
class SourceTail:
    """A partition in which the source has records of its own from before the link was promoted, the first at
    `first_offset` or behind it, that were not mirrored, and of which nobody decided that they stay there.
    """

    topic: str
    partition: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Split:
    """Who writes since the link was promoted. `two_active`: by their roles both sites take writes to topics of the
    link; None: the brokers of one have no roles. What came to the target is read only where something came to the
    source, at all. `end_seen`: the least that is known of where one of the source's logs ended then. `not_read`: what
    else grew at a site, and was not read, so that whose it is nobody knows. `left_behind_by`: a link back along which
    clients went to the source since, and which may run again: then it was decided about what both wrote, and this link
    alone does not go on. `tails`: what was lost with the source, as far as it was found; nobody wrote that since.
    """

    promoted_at_ms: int
    two_active: bool | None
    at_source: tuple[LocalWrites, ...] = ()
    at_target: tuple[LocalWrites, ...] = ()
    end_seen: EndSeen = EndSeen.TOLD
    not_read: tuple[NotRead, ...] = ()
    left_behind_by: str = ""
    tails: tuple[SourceTail, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether it is known that both sites were written to, and nobody decided about that."""
        return bool(self.at_source and self.at_target and not self.left_behind_by)

    @property
    def alone(self) -> tuple[LocalWrites, ...]:
        """What came to the source, where nothing came to the target, and nobody decided about it: no link brings it
        while this one is promoted.
        """
        return () if self.at_target or self.left_behind_by else self.at_source

    @property
    def is_known(self) -> bool:
        """Whether more reading would not make it so."""
        return bool(self.at_source and self.at_target) or not self.not_read


@dataclass(frozen=True, slots=True)
class PromotedBack:
    """A link back that is promoted beside the link, so that neither mirrors. `is_later`: it was after the link; None:
    nothing says which was. `may_run`: it was promoted later, and is not any more.
    """

    link: Link
    is_later: bool | None
    may_run: bool = False


async def promoted_backs(
    link: Link, source: Cluster, target: Cluster, entries: StateEntries
) -> tuple[PromotedBack, ...]:
    """None of a link that is not promoted itself. Raises ClientError, StateDamaged."""
    if promotion_of(entries) is None:
        return ()
    found = []
    for back in (await complete_link(link, source, target)).reverse_links:
        theirs = await read_entries(back, source, only=())
        if promotion_of(theirs) is not None:
            found.append(PromotedBack(back, is_later(theirs, entries)))
        elif went_back(entries, theirs):
            found.append(PromotedBack(back, is_later=True, may_run=True))
    return tuple(found)


async def look_for_split(
    link: Link, source: Cluster, target: Cluster, state: LinkState, backs: Sequence[PromotedBack]
) -> Split | None:
    """None: as of `promotion_to_ask`. Raises ClientError, StateDamaged."""
    if (run := promotion_to_ask(state, backs)) is None:
        return None
    left_behind_by = next((back.link.name for back in backs if back.may_run), "")
    at = await look_at_source(link, source, target, state, run)
    two_active = _are_two_active(link, at.names, await role_of(source), await role_of(target))
    least = max((each.end_seen for each in at.since.values()), key=list(EndSeen).index, default=EndSeen.TOLD)
    at_source, not_read, older = await _local_writes(source, at.since, at.mirrors)
    tails = await _tails(source, at.since, at.mirrors, older)
    not_read += at.untold
    if not at_source and not not_read:
        return Split(run.at_ms, two_active, end_seen=least, left_behind_by=left_behind_by, tails=tails)
    at_target, not_read_there = await _at_target(link, target, state, at.since)
    unread = (*not_read, *not_read_there)
    return Split(run.at_ms, two_active, at_source, at_target, least, unread, left_behind_by, tails)


def promotion_to_ask(state: LinkState, backs: Sequence[PromotedBack]) -> LinkRun | None:
    """None where the link is not promoted, or one of the `backs` was since: then that one is to be asked. Pure."""
    is_over = any(back.is_later and not back.may_run for back in backs)
    return None if is_over else promotion_of(state.entries)


class AtSource(NamedTuple):
    """The link's topics there, and of their partitions what came since the promotion; the producer ids of mirrors; and
    the partitions of which it is not known what was mirrored, or what is there.
    """

    names: Sequence[str]
    since: Mapping[TopicPartition, Since]
    mirrors: Container[int]
    untold: tuple[NotRead, ...]


async def look_at_source(link: Link, source: Cluster, target: Cluster, state: LinkState, run: LinkRun) -> AtSource:
    topics, hidden = await list_each_topic(source, state.entries.mirrored_topics())
    names = [name for name in select_topics(link, topics) if name != link.canary_topic]
    born = [TopicPartition(name, partition.partition) for name in names for partition in topics[name].partitions]
    partitions = [where for where in born if where not in state.unread]  # of the others nothing says what was mirrored
    since = _since_promotion(state, run, partitions, await load_observation(link, target), source.clock.now_ms())
    hidden_ones = [where for where in sorted(state.entries.checkpoints) if where[0] in hidden]
    untold = [NotRead(*where, source.site.name, str(hidden[where[0]])) for where in hidden_ones]
    untold += [NotRead(*where, target.site.name, str(state.unread[where])) for where in born if where in state.unread]
    mirrors = {registered.producer_id for registered in await registered_at(source)}
    return AtSource(names, since, mirrors, tuple(untold))


def _are_two_active(
    link: Link, names: Iterable[str], source: SiteStanding | None, target: SiteStanding | None
) -> bool | None:
    if source is None or target is None:
        return None
    return any(not source.refuses(name) and not target.refuses(link.target_topic(name)) for name in names)


class Since(NamedTuple):
    """What stands at or behind `start`, but for what is stamped within `before_ms`, came since the promotion; of what
    stands before that nothing behind `position` was mirrored, or left. So did not what the leader of `epoch` had
    appended up to `unshown_to`, and nobody was shown: with that leader it may be lost, and others stand there then.
    """

    start: int
    before_ms: tuple[int, int] = (0, 0)
    end_seen: EndSeen = EndSeen.TOLD
    position: int | None = None
    unshown_to: int = 0
    epoch: int = NO_LEADER_EPOCH

    @property
    def may_have_older(self) -> bool:
        """Whether something at or behind `start` may have come before the promotion."""
        return self.before_ms[0] < self.before_ms[1] or self.start < self.unshown_to

    def older_end(self, log_end: int) -> int:
        """Up to where what may have come before stands in a log with that end: where only the leader's epoch can say
        it, nothing behind `unshown_to` is older.
        """
        if self.before_ms[0] < self.before_ms[1]:
            return log_end
        return min(log_end, max(self.start, self.unshown_to))

    def is_older(self, header: BatchHeader) -> bool:
        """Of a batch there, whether it did."""
        was_unshown = header.base_offset < self.unshown_to and header.partition_leader_epoch <= self.epoch
        return was_unshown or self.before_ms[0] <= header.max_timestamp < self.before_ms[1]


def _since_promotion(
    state: LinkState, run: LinkRun, partitions: Iterable[TopicPartition], observation: Observation, now_ms: int
) -> dict[TopicPartition, Since]:
    """Of each partition of the source. Pure."""
    kept = observation.fence_ends.get(run.operation_id)
    is_told = kept is not None and all(fence.is_told for fence in kept.values())
    kept_at_ms = max((fence.at_ms for fence in (kept or {}).values()), default=run.at_ms)
    looked_at_ms = run.at_ms if observation.last is None else observation.last.at_ms
    is_of_the_future = run.at_ms > now_ms + CLOCK_DIFFERENCE_MAX_MS  # who promoted it has another clock
    left: dict[TopicPartition, list[int]] = {}
    for gap in state.entries.left_at_source():  # that it stays there is decided
        left.setdefault(TopicPartition(gap.topic, gap.partition), []).append(gap.source_to)
    found = {}
    for where in partitions:
        end = state.map.mirrored_end(*where)
        position = max([end.source_next if end else 0, *left.get(where, ())])
        if kept is None:
            seen = observation.ends.get(where)
            start, at_ms, how = seen.end if seen else 0, looked_at_ms, EndSeen.UNKNOWN
        elif (fence := kept.get(where)) is not None:
            start, at_ms, how = fence.end, fence.at_ms, EndSeen.TOLD if fence.is_told else EndSeen.LAST_SEEN
        else:  # it was not there when the source last told what was
            start, at_ms, how = 0, kept_at_ms, EndSeen.TOLD if is_told else EndSeen.LAST_SEEN
        is_judged_by_time = how is not EndSeen.TOLD and not is_of_the_future
        before_ms = (at_ms - CLOCK_DIFFERENCE_MAX_MS, run.at_ms) if is_judged_by_time else (0, 0)
        unshown = (0, NO_LEADER_EPOCH) if kept is None or where not in kept else kept[where][3:]
        found[where] = Since(max(position, start), before_ms, how, position, *unshown)
    return found


async def _at_target(
    link: Link, target: Cluster, state: LinkState, partitions: Iterable[TopicPartition]
) -> tuple[tuple[LocalWrites, ...], tuple[NotRead, ...]]:
    there = await list_topics(target)
    starts = {}
    for where in partitions:
        name = link.target_topic(where.topic)
        if name in there and where.partition < len(there[name].partitions):
            end = state.map.mirrored_end(*where)
            starts[TopicPartition(name, where.partition)] = end.target_next if end else 0
    mirrors = {registered.producer_id for registered in await registered_at(target)}
    written = await _local_writes(target, {where: Since(start) for where, start in starts.items()}, mirrors)
    return written.found, written.not_read


async def _tails(
    source: Cluster,
    since: Mapping[TopicPartition, Since],
    mirrors: Container[int],
    older: Mapping[TopicPartition, int],
) -> tuple[SourceTail, ...]:
    """As far as they are found in SPLIT_COUNT_MS; of each no more is read than its first batch. `older`: the first
    offset of what was found behind where the log was last seen to end.
    """
    found = dict(older)
    with suppress(TimeoutError):
        async with timeout(SPLIT_COUNT_MS / 1000):
            for where, each in sorted(since.items()):
                if each.position is None or each.position >= each.start:
                    continue
                with suppress(ClientError, WireError):  # one that cannot be read hides no other
                    found |= await _first_own(source, where, (each.position, each.start), mirrors)
    return tuple(SourceTail(*where, first_offset) for where, first_offset in sorted(found.items()))


async def _first_own(
    source: Cluster, where: TopicPartition, between: tuple[int, int], mirrors: Container[int]
) -> dict[TopicPartition, int]:
    async for header, _ in read_batches(source, where, *between, IsolationLevel.READ_COMMITTED):
        if header.producer_id not in mirrors:
            return {where: max(between[0], header.base_offset)}
    return {}


class _Written(NamedTuple):
    """By partition what was found, as far as it can be read in SPLIT_COUNT_MS; and where nothing was, and not all was
    read. `older`: the first offset of what came before the promotion all the same.
    """

    found: tuple[LocalWrites, ...]
    not_read: tuple[NotRead, ...]
    older: Mapping[TopicPartition, int]


async def _local_writes(cluster: Cluster, since: Mapping[TopicPartition, Since], mirrors: Container[int]) -> _Written:
    """Raises ClientError where the ends of the logs are not told."""
    ends = await log_end_offsets(cluster, since, IsolationLevel.READ_COMMITTED)
    grown = {where: each for where, each in sorted(since.items()) if ends[where] > each.start}
    found: dict[TopicPartition, LocalWrites] = {}
    whole: set[TopicPartition] = set()
    failed: dict[TopicPartition, str] = {}
    older: dict[TopicPartition, int] = {}
    with suppress(TimeoutError):
        async with timeout(SPLIT_COUNT_MS / 1000):
            for where, each in grown.items():
                start = each.start
                try:
                    async for header, batch in read_batches(
                        cluster, where, start, ends[where], IsolationLevel.READ_COMMITTED
                    ):
                        if header.producer_id in mirrors:
                            continue
                        if each.is_older(header):
                            older.setdefault(where, max(start, header.base_offset))
                        else:
                            found[where] = _with_batch(found.get(where), where, start, header, batch)
                    whole.add(where)
                except (ClientError, WireError) as error:  # one that cannot be read hides no other
                    failed[where] = str(error)
    site, left = cluster.site.name, [where for where in grown if where not in whole | found.keys()]
    not_read = tuple(NotRead(*where, site, failed.get(where, "")) for where in left)
    writes = tuple(
        LocalWrites(*at, one.first_offset, one.records, one.first_timestamp_ms, at in whole, since[at].end_seen)
        for at, one in found.items()
    )
    return _Written(writes, not_read, older)


def _with_batch(
    known: LocalWrites | None, where: TopicPartition, start: int, header: BatchHeader, batch: memoryview
) -> LocalWrites:
    records = records_behind(start, header, batch)
    if known is None:
        return LocalWrites(*where, max(start, header.base_offset), records, header.first_timestamp)
    earliest_ms = min(known.first_timestamp_ms, header.first_timestamp)
    return LocalWrites(*where, known.first_offset, known.records + records, earliest_ms)


def records_behind(start: int, header: BatchHeader, batch: memoryview) -> int:
    is_whole = header.base_offset >= start
    return header.record_count if is_whole else sum(each.offset >= start for each in decode_records(batch))
