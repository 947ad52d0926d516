"""Partitions that leave a session while it runs, and those whose gap was accepted; no other one notices.

The session is told at once (`send_away`, `call_back`): nothing more is read of them. One task, that of the latecomers,
lets them go (`let_go`), when the target has answered to all that was on its way. So no two changes of who belongs to
the session overlap, and what joins again goes by all that landed.
"""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Gap, GapKind
from mirror.offsets.hold_entries import VoidHold
from mirror.offsets.state_writer import Change
from mirror.topics.seen import TopicChange
from mirror.worker.deletion import review_deletions
from mirror.worker.events import Event, tell_gap, tell_passed
from mirror.worker.session import Session


def send_away(session: Session, topic: str, change: TopicChange) -> None:
    """A source topic is not what the session took in."""
    if topic in session.leaving:
        return
    session.leaving.add(topic)
    session.tell(Event.TOPIC_LEFT, topic=topic, reason=change.reason)
    session.holds.late -= {where for where in session.holds.late if where.topic == topic}
    _stop(session, topic, settles=not change.at_target)
    session.holds.late_due.set()


def call_back(session: Session, gap: Gap) -> None:
    """A gap of a partition of the session was accepted, and the state says so."""
    where = TopicPartition(gap.topic, gap.partition)
    replicator = session.replicators.get(where)
    if gap.kind is GapKind.MIRRORED_ANEW and (replicator is None or replicator.is_held):
        session.anew[where] = gap
    elif replicator is None:
        session.deleted.pop(where, None)
        session.deletions_decided = True
    elif not replicator.is_held and (replicator.gap is not None or gap.kind is GapKind.MIRRORED_ANEW):
        replicator.hold(settles=False)
        if not replicator.is_proved:
            session.fenced.discard(where)
        session.called_back.add(where)
    session.holds.late_due.set()


async def let_go(session: Session, clusters: tuple[Cluster, Cluster]) -> bool:
    """Drop the topics of which nothing is on its way any more, and give up what is deleted -> whether there was any.

    Raises LinkFenced, ClientError, StateDamaged.
    """
    settled = {where for where in session.called_back if session.is_settled(where)}
    session.called_back -= settled
    for where in sorted(settled):
        session.holds.make_late(where)
    gone = {topic for topic in session.leaving if _is_settled(session, topic)}
    if not gone and not session.deletions_decided:
        return bool(settled)
    session.deletions_decided = False
    now_ms = session.target.clock.now_ms()
    leaving = [replicator for where, replicator in session.replicators.items() if where.topic in gone]
    changes: list[Change] = [replicator.checkpoint(now_ms) for replicator in leaving if replicator.changed]
    changes += [VoidHold(*key) for key in session.holds.current if key[0] in gone and key[1] is not None]
    await session.state_writer.write(changes)  # what is proved is durable before anybody looks at what is left of it
    session.drop(gone)
    await _review_deletions(session, clusters)
    session.look_due.set()
    return True


def _is_settled(session: Session, topic: str) -> bool:
    """Also of what was taken in while the topic changed."""
    _stop(session, topic, settles=True)
    return all(session.is_settled(where) for where in session.replicators if where.topic == topic)


def _stop(session: Session, topic: str, *, settles: bool) -> None:
    for where, replicator in session.replicators.items():
        if where.topic == topic and (not replicator.is_held or not (settles or replicator.is_stopped)):
            replicator.hold(settles=settles and replicator.gap is None)


async def _review_deletions(session: Session, clusters: tuple[Cluster, Cluster]) -> None:
    """What the source has no more goes into the ledger, and what a person closed there is over."""
    entries = await session.read_state(clusters[1], session.in_state - session.replicators.keys())
    found = await review_deletions(session.link, clusters, entries, session.topics.seen)
    await session.state_writer.write(found.changes)
    told, session.deleted = session.deleted, {(gap.topic, gap.partition): gap for gap in found.stopped}
    for where, gap in session.deleted.items():
        if told.get(where) != gap:
            tell_gap(session.tell, session.link.name, gap)
    for gap in found.passed:
        tell_passed(session.tell, gap)
