"""What a fenced link stands on: with it each partition can be looked at, and opened, one by one or all together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.map_ledger import MapLedger
from mirror.offsets.offset_map import PartitionMap, Where
from mirror.offsets.origin_entries import spent_origins
from mirror.offsets.origin_ledger import OriginLedger
from mirror.offsets.recovery import recover
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.tail import PartsOfTails, read_tails, settle
from mirror.origins import Registration
from mirror.topics.plan import MirroredTopic
from mirror.worker.evidence import gather_evidence, with_occupants
from mirror.worker.history import History
from mirror.worker.holds import Holds
from mirror.worker.origins import Passage
from mirror.worker.plan import Rules
from mirror.worker.replicator import Outlet, Replicator
from mirror.worker.resume import Evidence, Opening, recover_partition


@dataclass(frozen=True, slots=True)
class Ground:
    """`entries` were read behind the fence of `writer`, those of what is looked at or of all; `writers` were registered
    at the target before it, `pairs` (source -> target) are the partitions that the link has at both sites.
    """

    link: Link
    passage: Passage
    mirrored: tuple[MirroredTopic, ...]
    pairs: Mapping[TopicPartition, TopicPartition]
    writer: Writer
    entries: StateEntries
    writers: Mapping[int, Registration]
    state_is_new: bool = False
    """The state had no position of any partition behind that fence."""
    parts: PartsOfTails = field(default_factory=dict, compare=False)
    """Of the target's logs what was read by looks that had no time for all of it: the next goes on there."""

    async def look(
        self,
        clusters: tuple[Cluster, Cluster],
        pairs: Mapping[TopicPartition, TopicPartition],
        holds: Holds,
        patience_ms: int,
    ) -> dict[TopicPartition, Evidence]:
        """All that decides where those of `pairs` go on.

        What cannot be asked, or not in about `patience_ms`, is held, and left out. Raises ClientError, StateDamaged.
        """
        link, entries, is_new = self.link, self.entries, self.state_is_new
        found = await gather_evidence(
            *(link, clusters, entries, self.mirrored, pairs, self.passage, holds),
            patience_ms=patience_ms,
            parts=self.parts,
        )
        return await with_occupants(
            link, clusters[1], found, pairs, self.writers, holds, state_is_new=is_new, patience_ms=patience_ms
        )

    async def settle(self, target: Cluster, partitions: Iterable[TopicPartition], patience_ms: int) -> list[Checkpoint]:
        """Of fenced partitions, for which nothing is on its way, but which are not opened now: how much of the last
        writer stands behind its checkpoints, which each later fence makes harder to tell. Raises ClientError.
        """
        known, entries = self.entries.checkpoints, self.entries
        unsettled: dict[Where, Checkpoint] = {
            w: known[w] for w in sorted(partitions) if w in known and known[w].records_behind < 0
        }
        if self.link.shared_targets or not unsettled:
            return []
        tails, _unread = split_failures(await read_tails(target, self.link, unsettled, patience_ms=patience_ms))
        settled = []
        for where, tail in tails.items():
            found = recover(entries.intervals(*where), entries.blocks_of(*where), known[where], tail.batches)
            settled.append(settle(known[where], tail, found))
        return [checkpoint for checkpoint in settled if checkpoint is not None]

    def replicator(self, found: Evidence, opening: Opening, max_message_bytes: int, outlet: Outlet) -> Replicator:
        """The partition as it was opened; one with a gap stands still."""
        where = found.where
        known = PartitionMap(opening.intervals, opening.end, opening.position)
        rules = Rules(self.writer, max_message_bytes, self.passage.judge(where), self.passage.names_origins)
        history = history_of(opening)
        told = self.entries.origins.get(where, ())
        spent = set(map(id, spent_origins(told, found.tail.log_start)))
        ledger = MapLedger(*where)
        ledger.note([*found.blocks, *opening.changes])
        replicator = Replicator(
            where,
            self.pairs[where],
            known,
            rules,
            outlet,
            shared=self.link.shared_targets,
            history=history,
            sequence=found.sequence,
            origins=OriginLedger(entry for entry in told if id(entry) not in spent),
            ledger=ledger,
        )
        replicator.gap = opening.gap
        replicator.source_end_offset = found.source.end
        checkpoint = self.entries.checkpoints.get(where)
        replicator.source_timestamp_ms = checkpoint.source_timestamp_ms if checkpoint else -1
        return replicator


def settled(
    evidence: Mapping[TopicPartition, Evidence], openings: Mapping[TopicPartition, Opening]
) -> list[Checkpoint]:
    """As `Ground.settle`, of those that were looked at, and stand still."""
    found = []
    for where, opening in openings.items():
        known = evidence[where]
        is_doubted = known.comparison.is_doubted or known.target_is_recreated or bool(known.occupant)
        if opening.gap is not None and known.checkpoint is not None and not known.shared and not is_doubted:
            found.append(settle(known.checkpoint, known.tail, recover_partition(known)))
    return [checkpoint for checkpoint in found if checkpoint is not None]


def history_of(opening: Opening) -> History:
    """What a replicator begins with; nothing, where the partition stands still."""
    if opening.checkpoint is None:
        return History()
    known = opening.checkpoint
    return History(
        list(known.leader_epochs), known.last, known.topic_ids, opening.epochs_stand, known.epochs_to, known.left_out
    )
