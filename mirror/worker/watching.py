"""What a session does besides moving records: checkpoints, topics, configs, groups, all on the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.base.time_limits import timeout
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import split_failures
from broker.client.log import FetchLimits, fetch_each
from broker.client.offsets import list_each_offset
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import EARLIEST, LATEST, TopicPartition
from mirror.coordinator.current import Current
from mirror.errors import StateDamaged
from mirror.groups.sync import sync_groups
from mirror.link import Link
from mirror.offsets.acceptance import accepted, anew
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import Gap, GapKind, VoidEntry
from mirror.offsets.fence import find_unmarkable, find_unmarked
from mirror.offsets.hold_entries import Hold
from mirror.offsets.origin_entries import SEQUENCES_MAX
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from mirror.offsets.topic_entries import TopicPause, VoidPause
from mirror.topics.plan import ConfigChange
from mirror.topics.seen import (
    HoldKey,
    TopicChange,
    TopicsSeen,
    find_changes,
    find_holds,
    hold_for_error,
    lacking_topics,
    leaders_of,
    replaced_topics,
    who_serves,
)
from mirror.topics.sync import find_concerns, look_at_topics, sync_configs, sync_topics
from mirror.worker.events import Event, changed_only, tell_hold
from mirror.worker.group_map import load_group_map
from mirror.worker.leaving import call_back, send_away
from mirror.worker.other_units import load_other_units
from mirror.worker.replicator import Replicator
from mirror.worker.session import Session


class SessionOutdated(Exception):
    """Not an error: what the session stands on has changed, a new one must fence anew. The reason is the text."""


async def run_checkpoints(session: Session) -> None:
    """Write the proved positions at least every `checkpoint_interval_ms` while they move."""
    interval_s = session.limits.checkpoint_interval_ms / 1000
    while True:
        try:
            async with timeout(interval_s):
                await session.checkpoint_due.wait()
        except TimeoutError:
            pass  # the interval is over: that is the usual reason to write
        await session.write_checkpoints()


async def run_heartbeat(session: Session) -> None:
    """Say that this worker lives, whatever its other tasks wait for."""
    while True:
        await session.target.clock.sleep(session.limits.heartbeat_interval_ms / 1000)
        session.write_owner()
        session.measure_lag()


async def run_configs(session: Session) -> None:
    """Tell what at the target would harm the mirror, and carry configs over. Raises ClientError."""
    clock = session.target.clock
    tell = changed_only(session.tell)
    for finding in await find_concerns(session.source, session.target, session.topics.mirrored, clock.now_ms()):
        session.tell(
            Event.FINDING,
            topic=finding.topic,
            kind=finding.kind.value,
            config=finding.config,
            source_value=finding.source_value,
            target_value=finding.target_value,
        )
    shown: frozenset[ConfigChange] = frozenset()
    while True:
        configs = await sync_configs(session.link, session.source, session.target, session.topics.mirrored, shown)
        for change in configs.planned:
            tell(Event.CONFIG_DRIFT, f"{change.topic}:{change.name}", f"{change.target_value} -> {change.source_value}")
        for change in configs.applied:
            session.tell(Event.CONFIG_APPLIED, topic=change.topic, config=change.name, value=change.source_value)
        for topic, failure in configs.failures.items():
            tell(Event.TOPIC_FAILED, topic, str(failure))
        is_new = not shown.issuperset(configs.planned)
        shown = frozenset(configs.planned)
        pause_ms = session.limits.config_sync_interval_ms
        await clock.sleep((min(session.limits.config_apply_after_ms, pause_ms) if is_new else pause_ms) / 1000)


async def run_topics(session: Session, declared: Current[Link]) -> None:
    """Notice what differs from what the session was opened with, and what is in the way of partitions.

    Raises SessionOutdated, ClientError.
    """
    clock = session.target.clock
    session.wishes.on_wish(session.look_due.set)
    started = clock.monotonic()
    failures = dict(session.topics.failures)
    while True:
        await _until_look(session, failures)
        if declared.value != session.passage.declared:
            await _narrow(session, declared.value)
        link = session.link
        seen = await look_at_topics(link, session.source, session.target)
        may_follow = await _may_follow(session)
        _send_away(session, seen)
        await _hear_operators(session)
        if may_follow:
            _hold_moved(session, seen)
        await session.passage.at_source.refresh()
        await session.passage.keep_registered(session.target)
        if lost := await session.passage.find_lost_side(session.target):
            raise SessionOutdated(lost)
        refuse_other_origins(session)
        await _tidy(session)
        is_due = partial(_is_due, session)
        if may_follow and any(map(is_due, lacking_topics(link, seen))):
            failures = {name: error for name, error in failures.items() if not is_due(name)}
            # Also what was born since the look: else it would wait for the next one.
            report = await sync_topics(link, session.source, session.target, is_due)
            session.tell_topics(report)
            session.holds.note_topics({_key(session, name)[0]: error for name, error in report.failures.items()})
            failures |= report.failures
            seen = report.seen
            _send_away(session, seen)
        if may_follow:
            session.widen(seen)
            refuse_other_origins(session)
        await _review_holds(session, seen, failures, may_follow=may_follow)
        if may_follow and clock.monotonic() - started > session.limits.fence_renewal_ms / 1000:
            raise SessionOutdated("the fence is old")


async def _narrow(session: Session, link: Link) -> None:
    """The link is declared with fewer topics. Raises SessionOutdated, LinkFenced, ClientError."""
    await session.passage.narrow(session.target, link)
    if replace(session.passage.link, topics=session.link.topics) != session.link:
        raise SessionOutdated("with fewer topics the link meets others otherwise")
    session.link = session.passage.link
    session.ground = replace(session.ground, link=session.link)


async def _tidy(session: Session) -> None:
    """What the state says of records goes with what the target's retention takes. Raises ClientError."""
    await step_over_others(session)
    told = {
        replicator.target: replicator
        for replicator in session.replicators.values()
        if replicator.origins.entries or replicator.map.intervals.pages
    }
    starts, _ = split_failures(await list_each_offset(session.target, dict.fromkeys(told, EARLIEST)))
    changes: list[Change] = []
    for where, start in starts.items():
        changes += told[where].tidy(start.offset)
    if changes:
        session.state_writer.submit(changes)


async def step_over_others(session: Session) -> None:
    """Put the ends of partitions that bring nothing behind what others wrote at the target. Raises ClientError.

    A link back from a site where nobody writes would stay where its session began, for hours, and whoever reads its
    state would read all that was written there since: every pass over groups does.
    """
    still = {each.target: (each, each.cursor.sequence) for each in session.replicators.values() if each.may_step}
    ends, _ = split_failures(await list_each_offset(session.target, dict.fromkeys(still, LATEST)))
    for where, end in ends.items():
        replicator, sequence = still[where]
        is_ours = session.replicators.get(replicator.source) is replicator
        if is_ours and replicator.may_step and replicator.cursor.sequence == sequence:
            replicator.step_to(end.offset)


async def _may_follow(session: Session) -> bool:
    """Whether a fence could be extended, or made anew. While it could not, the session leaves out what needs that."""
    if session.awaited:
        session.awaited = frozenset(await find_unmarked(session.target, session.link))
    return not session.awaited


def _key(session: Session, target_topic: str) -> tuple[str, None]:
    return session.link.source_topic(target_topic) or target_topic, None


async def _until_look(session: Session, failures: Iterable[str]) -> None:
    """Until the next look at the topics: soon when a partition was just held, or becomes due to be tried again."""
    limits, holds = session.limits, session.holds
    due_s = holds.attempts.next_due_s([*holds.current, *(_key(session, name) for name in failures)])
    refresh_s = limits.topic_refresh_interval_ms / 1000
    try:
        async with timeout(refresh_s if due_s is None else min(refresh_s, due_s)):
            await session.look_due.wait()
    except TimeoutError:
        return  # the interval is over: that is the usual reason to look
    await session.target.clock.sleep(limits.hold_gather_ms / 1000)
    session.look_due.clear()


def _is_due(session: Session, target_topic: str) -> bool:
    """Whether to make or grow a topic: not in the place of one to which something may still be on its way."""
    key = _key(session, target_topic)
    return key[0] not in session.leaving and session.holds.attempts.is_due(key)


def _send_away(session: Session, seen: TopicsSeen) -> None:
    """Topics that are gone or others leave; what is there now is taken in behind that. Raises SessionOutdated."""
    for topic, change in find_changes(session.link, session.topics.seen, seen).items():
        if not session.link.selects_topic(topic):
            change = TopicChange("the link's topics are without it now", at_target=False)
        _refuse_used_origins(session, change.reason)
        send_away(session, topic, change)


async def _hear_operators(session: Session) -> None:
    """Partitions whose gap one accepted leave it, topics are paused or resumed. Raises SessionOutdated, ClientError."""

    def gaps() -> dict[tuple[str, int], Gap]:
        found = dict(session.deleted)
        found |= {where: each.gap for where, each in session.replicators.items() if each.gap and not each.is_held}
        return found

    for wish in await session.wishes.read(session.target):
        if isinstance(wish, TopicPause):
            session.paused[wish.topic] = wish
        elif isinstance(wish, VoidPause):
            session.paused.pop(wish.topic, None)
        elif gap := _decided(session, wish, gaps().get((wish.topic, wish.partition))):
            _refuse_used_origins(session, f"the gap of {gap.topic}-{gap.partition} was accepted")
            await session.state_writer.write([gap, VoidEntry(wish)])
            call_back(session, gap)
        elif wish.kind == GapKind.MIRRORED_ANEW:
            session.state_writer.submit([VoidEntry(wish)])


def _decided(session: Session, wish: Acceptance, stands_at: Gap | None) -> Gap | None:
    """What an operator asked for of a partition; None where it does not count (any more)."""
    where = TopicPartition(wish.topic, wish.partition)
    gap = anew(session.anew_at_ms.get(where, NEVER_ASKED), wish)
    if gap is None:
        return accepted(stands_at, wish)
    session.note_anew([gap])
    return gap


def _refuse_used_origins(session: Session, reason: str) -> None:
    """Raise SessionOutdated where sequences of who joins again may be such that told where other batches came from."""
    if session.passage.names_origins:
        raise SessionOutdated(reason)


def _hold_moved(session: Session, seen: TopicsSeen) -> None:
    """Hold what other brokers lead now, until the session has looked what those have of it."""
    sides = (
        (session.link.source.name, leaders_of(seen.source), session.fetched, True),
        (session.link.target.name, leaders_of(seen.target), session.produced, False),
    )
    for replicator in session.replicators.values():
        for site, leaders, shares, at_source in sides:
            where = replicator.source if at_source else replicator.target
            moved_by = shares.node_of(replicator.source)
            is_moved = replicator.gap is None and replicator.source.topic not in session.leaving
            if is_moved and moved_by is not None and leaders.get(where, moved_by) != moved_by:
                error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{where} at {site}")
                session.hold(replicator, error, at_source=at_source)


def refuse_other_origins(session: Session) -> None:
    """Raise SessionOutdated where the registry at the source says more than this session began with."""
    change = session.passage.find_change()
    if change is not None:
        raise SessionOutdated(change)


def refuse_used_sequences(session: Session, replicator: Replicator) -> None:
    """Raise SessionOutdated where sequences would come again that say where batches of this session came from."""
    if session.passage.names_origins and replicator.cursor.sequence > SEQUENCES_MAX:
        raise SessionOutdated(f"the sequences of {replicator.target} are used up")


async def _review_holds(
    session: Session, seen: TopicsSeen, failures: Mapping[str, KafkaError], *, may_follow: bool
) -> None:
    """Hold what lost its leader, say what is in the way now, and take in what nothing is in the way of any more.

    What needs the fence for that waits unless it `may_follow`. Raises SessionOutdated, ClientError.
    """
    holds, now_ms = session.holds, session.target.clock.now_ms()
    found: dict[HoldKey, Hold] = {
        (hold.topic, hold.partition): hold
        for hold in find_holds(session.link, seen, failures, now_ms)
        if hold.topic not in session.leaving
    }
    paused = session.paused_partitions()
    found |= {key: hold for key, hold in paused.items() if key not in found and key[0] not in session.leaving}
    for where, replicator in session.replicators.items():
        if where in found and replicator.gap is not None:
            del found[where]  # it waits for a decision, whatever else is in its way
        elif where in found and not replicator.is_held:
            session.note_hold(holds.add(found[where]))
    for where in session.waiting() if may_follow else ():
        if where not in found and (where.topic, None) not in found:
            holds.make_late(where)
    for key in holds.current:
        holds.attempts.see(key, who_serves(session.link, seen, key))
    asked = [TopicPartition(topic, number) for topic, number in holds.current if number is not None]
    asked = [w for w in asked if w not in found and w not in holds.late and w.topic not in session.leaving]
    in_the_way = await _ask_about(session, asked)
    ready = [where for where in asked if where not in in_the_way and holds.attempts.is_due(where)]
    for where in ready:
        if session.is_settled(where) and (may_follow or where in session.fenced):
            if session.passage.names_origins and where in session.replicators and where not in session.fenced:
                # What did not land has told its readers where its sequences come from: they must not come again.
                raise SessionOutdated(f"{where} can be mirrored again")
            holds.make_late(where)
    moving = {where for where, replicator in session.replicators.items() if not replicator.is_held}
    # What was taken in since the look is not held by it: it would be taken in a second time, beside the one that moves.
    told = set(holds.current)
    changes = holds.review({key: hold for key, hold in (found | in_the_way).items() if key not in moving})
    if changes:
        session.state_writer.submit(changes)
    for key in holds.current.keys() - told:
        tell_hold(session.tell, holds.current[key])


async def _ask_about(session: Session, partitions: Sequence[TopicPartition]) -> dict[HoldKey, Hold]:
    """Ask both sites about held partitions what a new session would ask -> what is still in the way."""
    if not partitions:
        return {}
    now_ms = session.target.clock.now_ms()
    theirs = {TopicPartition(session.link.target_topic(where.topic), where.partition): where for where in partitions}
    unmarkable = await find_unmarkable(session.target, theirs)
    starts, failed = split_failures(await list_each_offset(session.source, dict.fromkeys(partitions, EARLIEST)))
    positions = {where: start.offset for where, start in starts.items()}
    _, unread = split_failures(await fetch_each(session.source, positions, FetchLimits(1, 1)))
    found: dict[HoldKey, Hold] = {
        theirs[there]: hold_for_error(*theirs[there], error, now_ms, at_source=False)
        for there, error in unmarkable.items()
    }
    for where, error in {**failed, **unread}.items():
        found[where] = hold_for_error(*where, error, now_ms, at_source=True)
    return found


async def load_session_map(session: Session) -> GroupMap:
    """The map for a pass over groups whose offsets were read before. Raises ClientError, StateDamaged.

    The offsets may be those of a topic that is another one since the session was opened, which the watch has not seen
    yet; and while this asks, partitions may come to stand still: what is in doubt is looked at last.
    """
    link, clusters = session.link, (session.source, session.target)
    await step_over_others(session)
    seen = await look_at_topics(link, *clusters)
    replaced = replaced_topics(link, session.topics.seen, seen)
    others = [where for where in session.replicators if where.topic in replaced]
    # What joins in the middle of the pass is not in it: the offsets may be those of what it was before.
    own = session.offset_map.without(())
    units = await load_other_units(link, session.target, seen.source, session.back_readers)
    doubted = [*others, *units.in_doubt]
    found = await load_group_map(link, units.with_own(own), doubted, clusters, session.examined, session.back_readers)
    return replace(found, in_doubt=found.in_doubt | session.in_doubt())


async def run_groups(session: Session) -> None:
    """Carry group offsets over. What fails, one group or a whole pass, is told, and tried again at the next pass."""
    tell = changed_only(session.tell)
    clusters = (session.source, session.target)
    load = partial(load_session_map, session)
    while session.link.groups or session.groups.by_group:
        try:
            report = await sync_groups(session.link, *clusters, load, session.groups, session.state_writer.write)
            for group, failure in report.failures.items():
                tell(Event.GROUP_FAILED, group, str(failure))
        except (ClientError, StateDamaged) as error:
            # Records flow all the same. That no group was looked at shows in the state, by the time of the last look.
            tell(Event.GROUP_FAILED, "*", str(error))
        await session.target.clock.sleep(session.limits.group_sync_interval_ms / 1000)
