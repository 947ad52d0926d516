"""Partitions that a session takes in while it runs, within its fence and without a new one.

Their logs took longer to compare than the others waited; or the source was in the way, and is not any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.hold_entries import VoidHold
from mirror.offsets.state import read_entries
from mirror.offsets.state_writer import Change
from mirror.worker.events import Event, tell_gap, tell_hold, tell_passed
from mirror.worker.ground import Ground
from mirror.worker.holds import Holds
from mirror.worker.resume import Evidence, open_partition
from mirror.worker.session import Session

PATIENCE_GROWTH = 4


async def run_latecomers(session: Session, ground: Ground) -> None:
    """Take in what is late, all of it together: who is not done in time is begun anew, with more time.

    Connections of its own: a long reading holds up no record. Raises ClientError, StateDamaged.
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
            while session.holds.late:
                patience_ms *= PATIENCE_GROWTH
                await _take_in(session, ground, (source, target), patience_ms)


async def _take_in(session: Session, ground: Ground, clusters: tuple[Cluster, Cluster], patience_ms: int) -> None:
    """One round, over what is late now: what becomes late meanwhile has its turn in the next."""
    late = sorted(session.holds.late)
    begun = {where: session.replicators[where] for where in late if where in session.replicators}
    assert all(replicator.is_held for replicator in begun.values()), "nothing is taken in beside what moves"
    if begun:
        now_ms = session.target.clock.now_ms()
        await session.state_writer.write([replicator.checkpoint(now_ms) for replicator in begun.values()])
        ground = replace(ground, entries=await read_entries(session.link, clusters[1]))
    tried = Holds(session.holds.attempts, session.target.clock)
    pairs = {where: ground.pairs[where] for where in late}
    evidence = await ground.look(clusters, pairs, tried, patience_ms)
    for where in pairs.keys() - evidence.keys() - tried.late:
        hold = session.holds.end_late(tried.current[where])
        session.state_writer.submit([hold])
        tell_hold(session.tell, hold)
        session.look_due.set()
    ready = {
        where: replace(found, sequence=begun[where].sequence) if where in begun else found
        for where, found in evidence.items()
    }
    await _open(session, ground, ready)


async def _open(session: Session, ground: Ground, evidence: Mapping[TopicPartition, Evidence]) -> None:
    openings = {where: open_partition(found, ground.writer) for where, found in evidence.items()}
    changes: list[Change] = []
    for where, opening in openings.items():
        changes += [*opening.changes, VoidHold(*where)]
    await session.state_writer.write(changes)  # durable before the first batch, as at a start
    taken_in = []
    for where, opening in openings.items():
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
