"""A link seen from outside: how far it is behind, and which partitions it should mirror and does not.

What a look shows now goes before what the worker said: the worker may be gone. What only the worker can know (an error
in answer to a write) is said as of when it said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, ReadUnfinished
from broker.wire.vocabulary import TopicPartition
from mirror.closed_at_both import ClosedAtBoth, look_for_closed
from mirror.lag import LagReport, partial_lag
from mirror.limits import LACKS_LOOK_MS
from mirror.link import Link
from mirror.offsets.entries import RunState
from mirror.offsets.fence import find_unmarked
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.promotions import promotion_of
from mirror.offsets.state import LinkState
from mirror.offsets.state_entries import StateEntries
from mirror.split import PromotedBack, Split, look_for_split, promoted_backs
from mirror.topics.seen import HoldKey, TopicsSeen, find_holds
from mirror.topics.sync import look_at_topics
from mirror.transactions import HoldingTransaction, look_at_transactions
from mirror.worker.origins import Passage
from mirror.worker.parted import SourceParting, partings_of, that_are_missing


@dataclass(frozen=True, slots=True)
class LinkLook:
    """What both sites showed of a link; `holds` by topic and partition.

    `left_to` are links to which it leaves records, and that do not run: each with the site whose records they are.
    `unmarked` are the partitions of the target that the link's fence waits for, and why they take no marker; or why
    that is not known.
    """

    lags: LagReport
    holds: tuple[Hold, ...]
    left_to: tuple[tuple[str, str], ...] = ()
    unmarked: Mapping[TopicPartition, ClientError] | ClientError = field(default_factory=dict)
    split: Split | FarshoreError | None = None
    """Of a promoted link; or why that is not known."""
    transactions: tuple[HoldingTransaction, ...] = ()
    """That are open at the source, and have records behind them, be it for a moment."""
    backs: tuple[PromotedBack, ...] = ()
    """Links back that are promoted beside it."""
    source_lacks: tuple[SourceParting, ...] | FarshoreError = ()
    """Of a promoted link: its source's own former records that it has no more, the target has, and no link brings, or
    of which that is not known; or why it is of none.
    """
    closed: ClosedAtBoth | FarshoreError | None = None
    """What no client can write at either site; or why that is not known."""


async def look_at_link(link: Link, source: Cluster, target: Cluster, state: LinkState) -> LinkLook:
    """One look; a partition that cannot be looked at hides no other. Raises ClientError, StateDamaged."""
    lags = await partial_lag(link, source, target, state)
    transactions = await look_at_transactions(source, lags.lags)
    seen = await look_at_topics(link, source, target)
    holds = merge_holds(link, seen, state.entries, target.clock.now_ms())
    left_to = await _left_to_silent(link, source, target, state.entries)
    unmarked = await _unmarked(target, state.entries)
    split: Split | FarshoreError | None
    backs: tuple[PromotedBack, ...] = ()
    try:
        backs = await promoted_backs(link, source, target, state.entries)
        split = await look_for_split(link, source, target, state, backs)
    except FarshoreError as error:  # it hides nothing else
        split = error
    lacks = await _source_lacks(link, source, target, state.entries)
    closed: ClosedAtBoth | FarshoreError | None
    try:
        closed = await look_for_closed(link, source, target, (topic.name for topic in seen.source.values()))
    except FarshoreError as error:  # it hides nothing else
        closed = error
    return LinkLook(lags, holds, left_to, unmarked, split, transactions, backs, lacks, closed)


async def _source_lacks(
    link: Link, source: Cluster, target: Cluster, entries: StateEntries
) -> tuple[SourceParting, ...] | FarshoreError:
    """A link that runs stands still there, and asks. What cannot be told hides nothing else that a look finds. A
    state that says of nothing that it was mirrored is no evidence: what is not known then, a failback says.
    """
    if promotion_of(entries) is None or not entries.checkpoints:
        return ()
    try:
        async with timeout(LACKS_LOOK_MS / 1000):
            return that_are_missing(await partings_of(link, source, target, entries))
    except TimeoutError:
        return ReadUnfinished(f"the logs could not be compared within {LACKS_LOOK_MS / 1000:g} s")
    except FarshoreError as error:
        return error


async def _unmarked(target: Cluster, entries: StateEntries) -> Mapping[TopicPartition, ClientError] | ClientError:
    if entries.owner is None:  # nobody ever fenced: asking would have the cluster make a coordinator's topic
        return {}
    try:
        found: dict[TopicPartition, ClientError] = {}
        for unit in entries.link.each_unit():
            found |= await find_unmarked(target, unit)
        return found
    except ClientError as error:
        return error


async def _left_to_silent(
    link: Link, source: Cluster, target: Cluster, entries: StateEntries
) -> tuple[tuple[str, str], ...]:
    """What the link's own file declares is watched as a link of its own."""
    sites = entries.left_to() - {side.source.name for side in link.side_links}
    if not sites:
        return ()
    passage = Passage(link, source, target)
    await passage.look(target, sites)
    return tuple(sorted({(side.link, side.source.name) for side in passage.silent_sides}))


def merge_holds(link: Link, seen: TopicsSeen, entries: StateEntries, now_ms: int) -> tuple[Hold, ...]:
    """What is in the way, from a look at the topics and the link's state. Pure.

    Not the partitions that stand at gaps: those wait for a decision. None where nobody may mirror, or nobody ever did.
    """
    if entries.owner is None or (entries.run is not None and entries.run.state is not RunState.RUNNING):
        return ()
    stopped = entries.open_gaps()
    found: dict[HoldKey, Hold] = {}
    for hold in find_holds(link, seen, {}, now_ms):
        said = entries.holds.get((hold.topic, hold.partition))
        found[hold.topic, hold.partition] = said if said is not None and said.reason is hold.reason else hold
    for key in _partitions(seen):
        if key in found or (key[0], None) in found:
            continue
        if key in entries.holds:
            found[key] = entries.holds[key]
        elif not _is_taken_in(entries, key):
            found[key] = Hold(*key, HoldReason.NOT_TAKEN_IN, "", now_ms)
    return tuple(found[key] for key in sorted(found, key=_place) if key not in stopped)


def _is_taken_in(entries: StateEntries, key: tuple[str, int]) -> bool:
    """Whether the owner looked at the partition: of one that begins, what the worker before it found is not yet so."""
    checkpoint, owner = entries.checkpoints.get(key), entries.owner_of(key)
    if checkpoint is None or owner is None:
        return False
    return checkpoint.writer == owner.writer or not owner.is_worker


def _partitions(seen: TopicsSeen) -> Iterable[tuple[str, int]]:
    return ((topic.name, partition.partition) for topic in seen.source.values() for partition in topic.partitions)


def _place(key: HoldKey) -> tuple[str, int]:
    topic, partition = key
    return topic, -1 if partition is None else partition
