"""Partitions that a session takes in while it runs, each as a start would; no other one waits for that.

They are new, or were out of the fence's reach: the fence is extended to them first. Or their logs took longer to
compare than the others waited; or the source was in the way, and is not any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker.base.turns import in_turns
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.producers import ProducerIdAndEpoch, next_sequences
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.acceptance import decisions
from mirror.offsets.entries import Writer
from mirror.offsets.fence import extend_fence
from mirror.offsets.hold_entries import VoidHold
from mirror.offsets.recovery import SEQUENCE_MASK
from mirror.offsets.state_writer import Change
from mirror.offsets.topic_entries import TopicIdentity
from mirror.worker.events import Event, tell_gap, tell_hold, tell_passed
from mirror.worker.ground import Ground, settled
from mirror.worker.holds import Holds
from mirror.worker.leaving import call_back, let_go
from mirror.worker.limits import PARTITIONS_AT_ONCE
from mirror.worker.resume import Evidence, Opening, open_partition, recover_partition
from mirror.worker.session import Session
from mirror.worker.startup import max_message_bytes

PATIENCE_GROWTH: Final = 4


async def run_latecomers(session: Session) -> None:
    """Take in what is late, all of it together: who is not done in time is begun anew, with more time.

    Before that go those that leave. Connections of its own, and many are decided on in turns with all else: neither a
    long reading nor their number holds up a record. Raises LinkFenced, ClientError, StateDamaged.
    """
    link, clock = session.link, session.target.clock
    while True:
        await session.holds.late_due.wait()
        session.holds.late_due.clear()
        patience_ms = session.limits.compare_patience_ms
        async with (
            Cluster(link.source, client_id=f"farshore-{link.name}-late", clock=clock) as source,
            Cluster(link.target, client_id=f"farshore-{link.name}-late", clock=clock) as target,
        ):
            while await let_go(session, (source, target)) or session.holds.late:
                if session.holds.late:
                    patience_ms *= PATIENCE_GROWTH
                    await _take_in(session, session.ground, (source, target), patience_ms)


async def _take_in(session: Session, ground: Ground, clusters: tuple[Cluster, Cluster], patience_ms: int) -> None:
    """One round, over what is late now: what becomes late meanwhile has its turn in the next."""
    late = sorted(session.holds.late)
    tried = Holds(session.holds.attempts, session.target.clock)
    await _write_ends(session, late)
    unfenced = [where for where in late if where not in session.fenced]
    await _expect_markers(session, clusters[1], unfenced)
    await _fence(session, clusters[1], unfenced, tried)
    if not session.in_state.isdisjoint(late):
        ground = replace(ground, entries=await session.read_state(clusters[1], late))
    pairs = {where: ground.pairs[where] for where in late if where not in tried.current}
    evidence = await ground.look(clusters, pairs, tried, patience_ms)
    evidence = await _with_sequences(ground, clusters[1], evidence, tried)
    unopened = session.fenced.intersection(late) - evidence.keys() - tried.late
    session.state_writer.submit(await ground.settle(clusters[1], unopened, patience_ms))
    for where in sorted(set(late) - evidence.keys() - tried.late):
        hold = session.holds.end_late(tried.current[where])
        session.state_writer.submit([hold])
        tell_hold(session.tell, hold)
        session.look_due.set()
    unlimited = [topic for topic in ground.mirrored if topic.source_topic not in session.max_message_bytes]
    session.max_message_bytes |= await max_message_bytes(clusters[1], unlimited)
    await _open(session, ground, evidence)


async def _with_sequences(
    ground: Ground, target: Cluster, evidence: Mapping[TopicPartition, Evidence], tried: Holds
) -> dict[TopicPartition, Evidence]:
    """Where this session wrote before its sequences go on: behind what landed, or, in a log that lost what had, with
    the one that its leader expects.
    """
    lost = {
        ground.pairs[where]: where
        for where, found in evidence.items()
        if found.checkpoint is not None
        and found.checkpoint.writer == ground.writer
        and (found.comparison.target_lost or found.target_is_recreated)
    }
    found = {where: _with_sequence(one, ground.writer) for where, one in evidence.items()}
    for there, sequence in (await next_sequences(target, ProducerIdAndEpoch(*ground.writer), lost)).items():
        where = lost[there]
        if isinstance(sequence, ClientError):
            tried.add_error(where, sequence, at_source=False)
            del found[where]
        else:
            found[where] = replace(evidence[where], sequence=sequence)
    return found


def _with_sequence(found: Evidence, writer: Writer) -> Evidence:
    """Where this session wrote there before, its sequences go on behind what landed."""
    if found.checkpoint is None or found.checkpoint.writer != writer:
        return found
    sequence = (found.checkpoint.sequence + recover_partition(found).sequences) & SEQUENCE_MASK
    return replace(found, sequence=sequence)


async def _write_ends(session: Session, late: Iterable[TopicPartition]) -> None:
    """Of those that the session began with: what is proved of them, where the state does not know as much, or more."""
    begun = [session.replicators[where] for where in late if where in session.replicators]
    assert all(replicator.is_held for replicator in begun), "nothing is taken in beside what moves"
    now_ms, changes = session.target.clock.now_ms(), list[Change]()
    async for replicator in in_turns([each for each in begun if each.changed], PARTITIONS_AT_ONCE):
        replicator.changed = False
        changes.append(replicator.checkpoint(now_ms))
    await session.state_writer.write(changes)


async def _expect_markers(session: Session, target: Cluster, unfenced: Sequence[TopicPartition]) -> None:
    """Durable before the marker: a log that no longer has it does not tell it from a record (`stand_in`)."""
    known = session.in_state.intersection(unfenced)
    if known and not session.link.shared_targets:
        await session.state_writer.write([])  # what is queued is newer than what is read
        checkpoints = (await session.read_state(target, known)).checkpoints.values()
        await session.state_writer.write(
            [
                replace(each, marker_may_follow=True)
                async for each in in_turns(checkpoints, PARTITIONS_AT_ONCE)
                if not each.marker_may_follow and each.records_behind < 0
            ]
        )


async def _fence(session: Session, target: Cluster, unfenced: Sequence[TopicPartition], tried: Holds) -> None:
    """Extend the session's fence to these: nothing is read of them, nor written, before. Who stays out is held."""
    theirs = {session.ground.pairs[where]: where for where in unfenced}
    if not theirs:
        return
    fence = await extend_fence(target, session.link, session.ground.writer, theirs)
    session.awaited |= fence.awaited
    for there, where in theirs.items():
        if there in fence.left_out:
            tried.add_error(where, fence.left_out[there], at_source=False)
        else:
            session.fenced.add(where)


async def _open(session: Session, ground: Ground, evidence: Mapping[TopicPartition, Evidence]) -> None:
    openings: dict[TopicPartition, Opening] = {}
    changes: list[Change] = []
    known = ground.entries
    async for where, found in in_turns(evidence.items(), PARTITIONS_AT_ONCE):
        opening = openings[where] = open_partition(found, ground.writer)
        session.note_anew(opening.passed)
        changes += [*decisions(known.gaps, known.acceptances, where), *opening.changes]
        if where in session.holds.current:
            changes.append(VoidHold(*where))
    changes += [*settled(evidence, openings), *_identities(session, ground, openings)]
    await session.state_writer.write(changes)  # durable before the first batch, as at a start
    opened = list(openings.items())
    for first in range(0, len(opened), PARTITIONS_AT_ONCE):
        await _admit(session, ground, evidence, opened[first : first + PARTITIONS_AT_ONCE])
        await asyncio.sleep(0)


async def _admit(
    session: Session,
    ground: Ground,
    evidence: Mapping[TopicPartition, Evidence],
    openings: Sequence[tuple[TopicPartition, Opening]],
) -> None:
    taken_in = []
    for where, opening in openings:
        session.holds.release(where)  # in one step with its new map: until then its offsets are in doubt
        max_bytes = session.max_message_bytes[where.topic]
        taken_in.append(ground.replicator(evidence[where], opening, max_bytes, session.outlet))
        for gap in opening.passed:
            tell_passed(session.tell, gap)
        if opening.gap is not None:
            tell_gap(session.tell, session.link.name, opening.gap)
        else:
            session.tell(Event.PARTITION_TAKEN_IN, topic=where.topic, partition=where.partition)
    await session.admit(taken_in)
    for where, opening in openings:
        asked = session.anew.pop(where, None)
        if asked is not None and asked.at_ms not in {gap.at_ms for gap in opening.passed if gap.kind is asked.kind}:
            call_back(session, asked)


def _identities(session: Session, ground: Ground, openings: Mapping[TopicPartition, Opening]) -> list[TopicIdentity]:
    """Of the topics among these that the state has no id of, or another one that no partition stands at any more."""
    stand = {
        where.topic for where, replicator in session.replicators.items() if where not in openings and replicator.gap
    }
    stand |= {topic for topic, number in session.holds.current if number is None or (topic, number) not in openings}
    stand |= {where.topic for where, opening in openings.items() if opening.gap is not None}
    found = []
    for topic in sorted({where.topic for where in openings} & session.source_topic_ids.keys()):
        known, topic_id = ground.entries.topic_ids.get(topic), str(session.source_topic_ids[topic])
        if known is None or (known != topic_id and topic not in stand):
            found.append(TopicIdentity(topic, topic_id))
    return found
