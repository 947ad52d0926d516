"""Starting a session of a link: fence, read what the target holds, decide where each partition goes on."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from broker.base.turns import in_turns
from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.fanout import both
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.model import Permit
from mirror.errors import LinkInvalid
from mirror.limits import HEARTBEAT_INTERVAL_MS, RESTARTS_IN_A_LOOP
from mirror.link import Link
from mirror.offsets.acceptance import decisions
from mirror.offsets.cutting import refuse_other_cut
from mirror.offsets.entries import Gap, Owner, VoidEntry, Writer
from mirror.offsets.fence import Fence, fence_groups_of_earlier, fence_link, find_unmarkable
from mirror.offsets.origin_entries import VoidOrigins, spent_origins
from mirror.offsets.promotions import standing_promotions, unwritten
from mirror.offsets.state import StateReader
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change, StateLog, StateWriter
from mirror.offsets.taking_over import claim_link
from mirror.offsets.topic_entries import TopicIdentity
from mirror.offsets.unit_entries import LinkUnits
from mirror.offsets.wishes import WishReader
from mirror.topics.plan import MirroredTopic
from mirror.topics.seen import find_holds
from mirror.topics.sync import TopicSyncReport
from mirror.worker.ahead import Ahead, connecting, is_old, look_ahead, refuse_stopped
from mirror.worker.claimed import beating
from mirror.worker.deletion import review_deletions
from mirror.worker.events import EventSink
from mirror.worker.evidence import partition_pairs
from mirror.worker.ground import Ground, settled
from mirror.worker.holds import Holds, is_at_source
from mirror.worker.limits import PARTITIONS_AT_ONCE, WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.registry import REGISTRY, identify
from mirror.worker.replicator import Outlet, Replicator
from mirror.worker.resume import Evidence, Opening, open_partition

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Sessions in a row that ended by an error before they had lasted, and why the last one did. So many were `opened`;
    `lived_ms`: how long the longest of those lived, 0 where none was.
    """

    count: int = 0
    reason: str = ""
    lived_ms: int = 0
    opened: int = 0

    def after(self, error: Exception, lived_ms: int | None) -> Restarts:
        """With one more, which lived so long from when it was opened (None: it was not, or it had lasted)."""
        longest_ms, opened = max(self.lived_ms, lived_ms or 0), self.opened + (lived_ms is not None)
        return Restarts(self.count + 1, f"{type(error).__name__}: {error}", longest_ms, opened)

    @property
    def end_with_opening(self) -> bool:
        """Whether the next one that is opened is none of these: they could not be, but for one, which is no loop."""
        return self.opened < RESTARTS_IN_A_LOOP

    def outlived_after_ms(self, limits: WorkerLimits) -> int:
        """How long a session lives from when it was opened that is none of these."""
        if self.end_with_opening:
            return 0
        return min(max(2 * self.lived_ms, 2 * limits.heartbeat_interval_ms), limits.healthy_after_ms)


@dataclass(slots=True)
class Opened:
    """A link that may write: its fence, its state, and its partitions (those with a `gap` stand still)."""

    owner: Owner
    state_writer: StateWriter
    entries: StateEntries
    topics: TopicSyncReport
    holds: Holds
    ground: Ground
    outlet: Outlet
    fence: Fence
    wishes: WishReader
    state: StateReader
    """Has read what `entries` say, and goes on from there."""
    max_message_bytes: Mapping[str, int]
    """Per source topic, of its target."""
    deleted: tuple[Gap, ...] = ()
    """Of partitions that the source has no more, and that nobody has decided on yet."""
    replicators: dict[TopicPartition, Replicator] = field(default_factory=dict)
    passed: list[Gap] = field(default_factory=list)


def worker_name() -> str:
    """How this process calls itself in the state of its links."""
    return f"{socket.gethostname()}:{os.getpid()}"


def refuse_own_source(link: Link, source: Cluster, target: Cluster) -> None:
    """Raise LinkInvalid when both sites are one cluster: the link would read for ever what it writes.

    The cluster id alone does not tell: clusters that were set up from one recipe often share a fixed one. They do not
    share an advertised broker address.
    """
    addresses = {(node.host, node.port) for node in source.nodes.values()}
    shared = addresses & {(node.host, node.port) for node in target.nodes.values()}
    if link.topic_names == "same" and source.cluster_id == target.cluster_id and shared:
        sites = f"{link.source.name} and {link.target.name}"
        text = f"link {link.name}: {sites} are the same cluster ({source.cluster_id}), so every topic would feed itself"
        raise LinkInvalid(text, "correct bootstrap_servers or address_map of one of the two sites in farshore.toml")


async def open_link(
    link: Link,
    source: Cluster,
    target: Cluster,
    passage: Passage,
    tell: EventSink,
    restarts: Restarts,
    holds: Holds,
    patience_ms: int,
    permit: Permit,
    ahead: Ahead | None = None,
    beat_ms: int = HEARTBEAT_INTERVAL_MS,
) -> Opened:
    """Take the link over. Raises MirrorError (UnitNotHeld where `permit` refuses the fence), ClientError.

    A partition that cannot be taken in now is put into `holds`, and holds up no other; nor does one whose logs take
    longer to compare than about `patience_ms`, which is put into `holds.late`. From the claim on there is a heartbeat
    each `beat_ms`.
    """
    refuse_own_source(link, source, target)
    ahead = ahead or Ahead(StateReader(link))
    state = ahead.state
    topics = ahead.fresh_topics(target) or await look_ahead(link, (source, target), passage, ahead)
    link = passage.link
    holds.note_topics({link.source_topic(name) or name: error for name, error in topics.failures.items()})
    for hold in find_holds(link, topics.seen, topics.failures, target.clock.now_ms()):
        holds.add(hold)
    await passage.take(target, [topic.source_topic for topic in topics.mirrored])
    pairs = _within_reach(link, topics.mirrored, holds)
    async with connecting(source, pairs.keys(), ("fetch",)), connecting(target, pairs.values(), ("fetch", "produce")):
        owner, state_log, fence = await _take_over(link, target, state, pairs, restarts, holds, permit, beat_ms)
    writer = fence.writer
    async with beating(state_log, owner, target.clock, beat_ms):
        entries = await _read_behind_fence((source, target), passage, state, pairs)
        writers = await passage.enter(target, identify(source), writer, entries.producer_ids())
        wishes = WishReader(link, state_log, state.read_to)
        ground = Ground(link, passage, topics.mirrored, pairs, writer, entries, writers, not entries.checkpoints)
        free = {where: there for where, there in pairs.items() if where not in holds.current}
        evidence = await ground.look((source, target), free, holds, patience_ms)
        openings = await _open_each(evidence, writer)
        changes = _opening_changes(entries, topics.mirrored, openings.values(), holds)
        changes += _spent(entries, {where: known.tail.log_start for where, known in evidence.items()})
        changes += unwritten(entries.backs, await standing_promotions(link, source))
        changes += settled(evidence, openings)
        changes += await ground.settle(target, pairs.keys() - evidence.keys() - holds.late, patience_ms)
        gone = await review_deletions(link, (source, target), entries, topics.seen)
    await state_log.settle()
    owner = replace(owner, at_ms=target.clock.now_ms())
    owner = replace(owner, restarts=0, restart_reason="") if restarts.end_with_opening else owner
    written = state_log.append([owner, *changes, *gone.changes, *holds.begin(entries.holds)])
    asked = both(passage.refuse_rivals(target), max_message_bytes(target, topics.mirrored))
    _, (_, limits) = await both(written, asked)
    state_writer = StateWriter(state_log)
    outlet = Outlet(link.name, state_writer.submit, tell, target.clock)
    more = (ground, outlet, fence, wishes, state, limits, gone.stopped)
    opened = Opened(owner, state_writer, entries, topics, holds, *more)
    opened.passed.extend(gone.passed)
    await _add_replicators(opened, evidence, openings)
    return opened


async def _read_behind_fence(
    clusters: tuple[Cluster, Cluster], passage: Passage, state: StateReader, pairs: Iterable[TopicPartition]
) -> StateEntries:
    """The state, and the registry, to which no earlier owner adds anything now. The source's leaders are asked for
    again: the claim may have waited for long, and by an older epoch of one its log cannot be held against the copies.

    Raises also where the link may not run, or was cut anew, since it was read ahead.
    """
    source, target = clusters
    renewed = source.metadata({where.topic for where in pairs})
    entries, _ = await both(state.read(target), both(passage.at_target.refresh(), renewed))
    refuse_stopped(entries)
    refuse_other_cut(passage.link, entries)
    return entries


async def _open_each(evidence: Mapping[TopicPartition, Evidence], writer: Writer) -> dict[TopicPartition, Opening]:
    """In turns with all else: a worker of a fleet has other units to move meanwhile."""
    turns = in_turns(evidence.items(), PARTITIONS_AT_ONCE)
    return {where: open_partition(found, writer) async for where, found in turns}


async def _add_replicators(
    opened: Opened, evidence: Mapping[TopicPartition, Evidence], openings: Mapping[TopicPartition, Opening]
) -> None:
    ground, limits = opened.ground, opened.max_message_bytes
    async for where, opening in in_turns(openings.items(), PARTITIONS_AT_ONCE):
        opened.replicators[where] = ground.replicator(evidence[where], opening, limits[where.topic], opened.outlet)
        opened.passed += opening.passed


def _within_reach(link: Link, mirrored: Iterable[MirroredTopic], holds: Holds) -> dict[TopicPartition, TopicPartition]:
    """What can be fenced, which is a matter of the target alone."""
    return {
        where: there
        for where, there in partition_pairs(link, mirrored).items()
        if where not in holds.current or is_at_source(holds.current[where])
    }


async def _take_over(
    link: Link,
    target: Cluster,
    state: StateReader,
    pairs: dict[TopicPartition, TopicPartition],
    restarts: Restarts,
    holds: Holds,
    permit: Permit,
    heartbeat_interval_ms: int,
) -> tuple[Owner, StateLog, Fence]:
    """Fence the state, groups, the registry and partitions -> who may write to the state now, by that log. Those that
    can take no marker leave `pairs`, and are held.

    Raises also what keeps the registry from taking one: nothing can be said of the link's batches then.
    """
    permit.check()
    cut = [LinkUnits(link.units, link.pins)] if link.unit_count > 1 else []
    wanted = [REGISTRY, *pairs.values()]
    claiming = claim_link(
        target, link, worker_name(), restarts=restarts.count, restart_reason=restarts.reason, also=cut
    )
    asked_s = target.clock.monotonic()
    claim, found = await both(claiming, find_unmarkable(target, wanted))
    is_late = is_old(target, asked_s)  # an earlier fence was waited for, say
    permit.check()  # what was asked was asked again, maybe, until the target answered
    # Where groups cannot be fenced each pass tries it, and says so of what it had to move.
    async with beating(claim.log, claim.owner, target.clock, heartbeat_interval_ms):
        _, fence = await both(
            _fence_groups(target, link, state),
            fence_link(target, link, wanted, since=claim.owner.writer, unmarkable=None if is_late else found),
        )
    if REGISTRY in fence.left_out:
        raise fence.left_out[REGISTRY]
    for where in [where for where, there in pairs.items() if there in fence.left_out]:
        left_out = fence.left_out[pairs.pop(where)]
        if where not in holds.current:
            holds.add_error(where, left_out, at_source=False)
    log = claim.log.of(fence.writer)
    await log.settle()
    return replace(claim.owner, writer=fence.writer), log, fence


async def _fence_groups(target: Cluster, link: Link, state: StateReader) -> None:
    if link.is_lead_unit:
        await fence_groups_of_earlier(target, link, state)


def _spent(entries: StateEntries, log_starts: Mapping[TopicPartition, int]) -> Iterable[Change]:
    for where, log_start in log_starts.items():
        yield from map(VoidOrigins, spent_origins(entries.origins.get(where, ()), log_start))


def _opening_changes(
    entries: StateEntries,
    mirrored: Iterable[MirroredTopic],
    openings: Iterable[Opening],
    holds: Holds,
) -> list[Change]:
    """Everything that must be durable before the first batch, behind who the owner is."""
    changes: list[Change] = [VoidEntry(gap) for gap in entries.surplus_gaps()]
    for where in {key[:2]: None for key in entries.acceptances}:
        changes += decisions(entries.gaps, entries.acceptances, where)
    stopped = {topic for topic, _ in holds.current}
    for opening in openings:
        changes += opening.changes
        if opening.gap is not None:
            stopped.add(opening.gap.topic)
    for topic in mirrored:
        topic_id = str(topic.source_topic_id or "")
        known = entries.topic_ids.get(topic.source_topic)
        # A recreated topic keeps its old id until every partition of it was accepted; one that is held was not asked.
        if topic_id and topic_id != known and (known is None or topic.source_topic not in stopped):
            changes.append(TopicIdentity(topic.source_topic, topic_id))
    return changes


async def max_message_bytes(target: Cluster, mirrored: Iterable[MirroredTopic]) -> dict[str, int]:
    """Per source topic the target topic's max.message.bytes; Kafka's default where it cannot be read."""
    names = {topic.source_topic: topic.target_topic for topic in mirrored}
    described = await describe_topic_configs(target, names.values())
    limits = {}
    for source_topic, target_topic in names.items():
        configs = described.get(target_topic)
        entry = None if configs is None or isinstance(configs, KafkaError) else configs.get("max.message.bytes")
        limits[source_topic] = int(entry.value) if entry and entry.value else DEFAULT_MAX_MESSAGE_BYTES
    return limits
