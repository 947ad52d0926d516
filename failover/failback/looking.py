"""Both sites looked at for the way back: what stands there, and what is to be done."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from broker.client.cluster import Cluster
from broker.client.fanout import both
from broker.client.topics import list_topics
from failover.errors import WorldChanged
from failover.failback.copies import replayed_among
from failover.failback.foreseen import foreseen, moves_back
from failover.failback.plan import (
    BackLink,
    FailbackPlan,
    LinkStands,
    StandsStill,
    is_back,
    nothing_left,
    plan_failback,
)
from failover.failback.stranding import look_for_stranded
from failover.failback.through import reads_through
from failover.failback.waves import GroupsBack, groups_back, moved_along
from failover.journal.log import load_operations
from failover.journal.standing import is_verified
from failover.journal.values import OperationLog
from failover.losses.left_records import count_left
from failover.observing.elsewhere import look_elsewhere
from failover.observing.observe import observe
from failover.observing.readers import Journals, Readers
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.moves import group_totals
from mirror.api import (
    CarriedBack,
    HoldReason,
    Link,
    LinkCondition,
    RunState,
    StateEntries,
    StrandedTail,
    carried_back,
    condition_now,
    is_later,
    judge_heartbeat,
    next_command,
    read_entries,
    that_are_missing,
)


@dataclass(frozen=True, slots=True)
class Operations:
    """What the journals at a link's source and at its target have."""

    at_source: Mapping[str, OperationLog]
    at_target: Mapping[str, OperationLog]


async def look_back(
    link: Link,
    links: Sequence[Link],
    ends: tuple[Cluster, Cluster],
    export_to: str,
    operation_id: str = "",
    journals: Journals | None = None,
) -> FailbackPlan:
    """`links`: all of the file. `ends`: the link's source and target. `operation_id`: the failback that is taken up, ""
    where one begins. `journals`: of who looks at several links. Raises ClientError, MirrorError, CorruptBatch.
    """
    source, target = ends
    journals = journals if journals is not None else {}
    entries = await read_entries(link, target)
    found = await look_for_stranded(link, source, target)
    at_target = await list_topics(target)
    carried = find_link_back(link, links, entries, at_target)
    run, paused = entries.run, entries.paused_topics()
    if operation_id and run is not None and (run.state, run.operation_id) == (RunState.RUNNING, operation_id):
        return nothing_left(found, [back.name for back in carried.links], carried.not_carried, paused)
    seen = tuple(
        [
            await _look_along(link, back, links, entries, ends, found.tails, at_target, journals)
            for back in carried.links
        ]
    )
    same_names = link.topic_names == "same"
    lacks = that_are_missing(found.partings) if same_names else ()
    plan = plan_failback(
        *(found, run, seen, export_to),
        same_names=same_names,
        lacks=lacks,
        not_carried=carried.not_carried,
        stays_paused=paused,
    )
    left = [tail for tail in found.tails if tail.left and same_names]
    return replace(plan, left_replayed=await replayed_among(link, source, target, left))


def find_link_back(link: Link, links: Sequence[Link], entries: StateEntries, at_target: Collection[str]) -> CarriedBack:
    """By the topics that the link has mirrored, and that its target still has (`at_target`: all of those). Pure."""
    mirrored = {link.target_topic(topic) for topic, _ in entries.checkpoints}
    return carried_back(link, links, mirrored.intersection(at_target))


async def check_as_seen(link: Link, back: Link, ends: tuple[Cluster, Cluster], plan: FailbackPlan) -> None:
    """Of a failback that nobody else may touch any more: since the plan was made somebody may have let one of its links
    run, or moved it, and ended; then the groups that it would bring, and what it would save, are not those of the plan.
    `ends`: the link's source and target. Raises WorldChanged, ClientError, StateDamaged.
    """
    source, target = ends
    there, here = await both(read_entries(link, target, only=()), read_entries(back, source, only=()))
    now = (LinkStands.of(link.name, there.run), LinkStands.of(back.name, here.run))
    changed = [f"{one.link}: {one} -> {other}" for one, other in zip(plan.seen, now, strict=True) if one != other]
    if changed:
        text = f"the plan holds no more: {'; '.join(changed)}; nothing more was changed"
        raise WorldChanged(text, hint=f"`farshore failback --link {link.name} --dry-run` shows it as it is now")


async def _look_along(
    link: Link,
    back: Link,
    links: Sequence[Link],
    there: StateEntries,
    ends: tuple[Cluster, Cluster],
    found: Sequence[StrandedTail],
    at_target: Collection[str],
    journals: Journals,
) -> BackLink:
    """`ends` are not the link back's, but source and target of the way there; so are the tails that were `found`, and
    the topics `at_target`.
    """
    source, target = ends
    readers = Readers.among(journals, back.target.name)
    entries = await read_entries(back, source)
    heartbeat = judge_heartbeat(entries.owner, source.clock.now_ms())
    operations = Operations(await readers.operations.read(source), await readers.operations_at(target))
    log = operations.at_source.get(entries.run.operation_id) if entries.run is not None else None
    unfinished = log is not None and not is_verified(log)
    tails: tuple[StrandedTail, ...] = ()
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        tails = (await look_for_stranded(back, target, source)).undecided
    later = is_later(entries, there)
    at_source = await list_topics(source)
    topics = [name for name in at_target if back.selects_topic(name) and name != back.canary_topic]
    elsewhere = await look_elsewhere(back, links, topics, readers=readers)
    now_ms = source.clock.now_ms()
    leaving = [tail.as_left(now_ms, "") for tail in found if not tail.left]
    snapshot = await observe(back, target, source, (), now_ms, readers=readers, leaving=leaving)
    groups = _groups_to_come(snapshot, there, entries, operations)
    through = reads_through(found, snapshot.groups, groups.coming)
    condition = condition_now(entries, heartbeat)
    moves = moves_back(snapshot, groups, is_back=_is_back(there, entries))
    sites = Sites(back, target, source, (), source.clock.now_ms, readers=readers)
    return BackLink(
        *(back.name, condition, entries.run, later, unfinished, tails, elsewhere, groups),
        through,
        entries.paused_topics(),
        tuple(_stands_still(back, entries, snapshot)),
        topics_gone=_gone(link, there, at_source, at_target),
        has_topics=bool(topics),
        foreseen=foreseen(snapshot, groups, moves),
        group_totals=group_totals(moves),
        left=await count_left(sites, snapshot.left_at_source),
    )


def _stands_still(back: Link, entries: StateEntries, snapshot: Snapshot) -> Iterable[StandsStill]:
    """Where the source has more than the link has brought."""
    gaps = entries.open_gaps()
    for view in snapshot.partitions:
        at = (view.topic, view.partition)
        hold = entries.holds.get(at) or entries.holds.get((view.topic, None))
        if (view.source_end or 0) <= (view.mirrored_source_next or 0):
            continue
        if (gap := gaps.get(at)) is not None:
            why = f"{gap.kind.value}: {gap.detail}" if gap.detail else gap.kind.value
            yield StandsStill(*at, why, is_gap=True, command=next_command(back.name, gap))
        elif hold is not None and hold.reason is not HoldReason.PAUSED:
            why = f"{hold.reason.value}: {hold.detail}" if hold.detail else hold.reason.value
            yield StandsStill(*at, why, is_gap=False, command=f"farshore link retry --link {back.name}")


def _gone(link: Link, there: StateEntries, at_source: Container[str], at_target: Container[str]) -> tuple[str, ...]:
    mirrored = {topic for topic, _ in there.checkpoints if link.selects_topic(topic) and topic != link.canary_topic}
    return tuple(sorted(topic for topic in mirrored if topic in at_source and topic not in at_target))


async def groups_to_come(link: Link, back: Link, snapshot: Snapshot, ends: tuple[Cluster, Cluster]) -> GroupsBack:
    """`snapshot` is of the link back; `ends` are not that one's, but source and target of the way there."""
    source, target = ends
    there, here = await read_entries(link, target, only=()), await read_entries(back, source, only=())
    operations = Operations(at_source=await load_operations(source), at_target=await load_operations(target))
    return _groups_to_come(snapshot, there, here, operations)


def _groups_to_come(snapshot: Snapshot, there: StateEntries, here: StateEntries, operations: Operations) -> GroupsBack:
    """`there`, `here`: what the states of the link and of the link back say."""
    back = here.link.name
    came = partial(moved_along, back, here.run if _is_back(there, here) else None, operations.at_source)
    return groups_back(
        [group.group for group in snapshot.groups if any(at.source_offset is not None for at in group.partitions)],
        there.groups.names,
        moved_along(there.link.name, there.run, operations.at_target),
        came(only_verified=True),
        came(),
        [group.group for group in snapshot.groups if any(at.target_offset is not None for at in group.partitions)],
    )


def _is_back(there: StateEntries, here: StateEntries) -> bool:
    """Whether the old source is the active site again."""
    back = BackLink(here.link.name, LinkCondition.RUNNING, here.run, is_later(here, there))
    return is_back(there.run, back)
