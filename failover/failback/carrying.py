"""Before the switchover of a failback: what was written is brought, and groups stand where they are to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.groups import committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained
from failover.failback.foreseen import SetBack
from failover.failback.stranding import Check
from failover.limits import DRAIN_POLL_S
from failover.observing.observe import observe
from failover.observing.open_transactions import Holding, open_transactions
from failover.observing.snapshot import Snapshot
from failover.running.moving import Committing, FencedCommits
from mirror.api import Due, Link, complete_link, fence_groups, in_doubt_now, load_group_map, load_link_state

Report = Callable[[int, int], None]
"""Is told how many offsets are still to come, and how many there were."""


Note = Callable[[Sequence[SetBack]], Awaitable[None]]


class SetGroups(NamedTuple):
    """Those that were set back, and those of which that is not known, and why: the worker of the link back carried one
    on meanwhile, say.
    """

    done: tuple[SetBack, ...]
    refused: Mapping[str, ClientError]


async def await_carried(back: Link, source: Cluster, target: Cluster, patience_s: float, report: Report) -> Snapshot:
    """Wait until the link back has brought what its source has now. Raises NotDrained when nothing came for
    `patience_s`, and TransactionOpen, which is one, where that is why; ClientError, MirrorError.
    """
    loop = asyncio.get_running_loop()
    wanted: dict[tuple[str, int], int] = {}
    left, least, since = -1, -1, loop.time()
    first, holding = 0, Holding()
    while True:
        snapshot = await observe(back, source, target, (), source.clock.now_ms())
        here = {(view.topic, view.partition): view for view in snapshot.partitions}
        if not wanted:
            wanted = {at: view.source_end or 0 for at, view in here.items()}
        left = sum(max(0, end - (here[at].mirrored_source_next or 0)) for at, end in wanted.items() if at in here)
        _check_comes(back, snapshot, wanted)
        first = max(first, left)
        report(left, first)
        if not left:
            return snapshot
        if least < 0 or left < least:
            least, since = left, loop.time()
        holding.note(await open_transactions(source, snapshot.partitions), loop.time())
        if loop.time() - since > patience_s:
            raise holding.error(back.source, patience_s, is_first=False) or NotDrained(
                f"link {back.name} brought nothing for {patience_s:.0f} s; offsets still missing: {left}",
                hint=f"see `farshore status --link {back.name}`; if no worker runs it: "
                f"farshore mirror run --link {back.name}",
            )
        await asyncio.sleep(DRAIN_POLL_S)


def _check_comes(back: Link, snapshot: Snapshot, wanted: Mapping[tuple[str, int], int]) -> None:
    """A topic that was paused since the plan was made is not waited for. Raises NotDrained."""
    for view in snapshot.partitions:
        end, come = wanted.get((view.topic, view.partition), 0), view.mirrored_source_next or 0
        if view.topic in snapshot.paused_topics and come < end:
            raise NotDrained(
                f"the topic {view.topic} of link {back.name} is paused, and {end - come} offsets of it are missing",
                hint=f"let it be mirrored again: farshore topic resume --link {back.name} --topic {view.topic}",
            )


async def fenced_commits(back: Link, target: Cluster, check: Check) -> Committing:
    """Of groups at the link back's target: what a machine before this one has staged there is taken back, and it stages
    no more, however long it hung. `check` is asked behind that fence. Raises what `check` does, and ClientError.

    The fence is that of the link's passes over groups. Its worker, which runs meanwhile, takes it again with its next
    pass; then these commits are staged once more, behind a `check`.
    """
    writer = await fence_groups(target, back)
    await check()
    return FencedCommits(target, back, writer)


async def set_before(target: Cluster, noted: Sequence[SetBack]) -> tuple[SetBack, ...]:
    """Of those that machines before this one were about to set: those that stand before where they stood then, since
    nothing else brings a group of the link back's target back. To be asked behind the fence of the commits, which takes
    back what was not committed. Raises ClientError.
    """
    last = {(one.group, one.topic, one.partition): one for one in noted}
    stand = await committed_offsets_of_groups(target, sorted({one.group for one in noted}))
    found = []
    for one in last.values():
        there = stand[one.group]
        if isinstance(there, ClientError):
            raise there
        now = there.get(TopicPartition(one.topic, one.partition))
        if now is not None and now.offset < one.from_offset:
            found.append(one)
    return tuple(found)


async def set_groups(
    back: Link,
    ends: tuple[Cluster, Cluster],
    snapshot: Snapshot,
    names: Container[str],
    commits: Committing,
    check: Check,
    note: Note,
) -> SetGroups:
    """Set each of these groups of the link back's target to where it stands at its source, if it is further -> those,
    and those of which it is not known. `ends`: the link back's source and target, `snapshot` of them, taken behind the
    fence of the `commits`; `note` is told of those that are about to be set, before they are.

    A place that a group had before the site was lost would count as read there (ADR 8), and what the group reads anew
    at the other site would be passed over. Groups with members there are left alone: the switchover refuses them.
    Raises what `check` does, ClientError, MirrorError.
    """
    source, target = ends
    back = await complete_link(back, source, target)
    state = await load_link_state(back, target)
    doubted = await in_doubt_now(back, state.entries, source, target)
    group_map = await load_group_map(back, state.map, doubted, ends, {})
    groups = [group for group in snapshot.groups if group.group in names and group.target_members == 0]
    looked_at = [group.group for group in groups]
    stand, _ = await both(committed_offsets_of_groups(target, looked_at), commits.look(looked_at))
    found: list[SetBack] = []
    due: list[Due] = []
    for group in groups:
        before = stand[group.group]
        if isinstance(before, ClientError):
            raise before
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for at in group.partitions:
            where = TopicPartition(at.target_topic, at.partition)
            if at.source_offset is None or where not in before:
                continue
            exact = group_map.to_target(at.topic, at.partition, at.source_offset)
            if exact is not None and exact < before[where].offset:
                wanted[where] = CommittedOffset(exact, at.metadata)
                found.append(SetBack(group.group, at.target_topic, at.partition, before[where].offset, exact))
        due += [Due(group.group, wanted, before)] if wanted else []
    if found:
        await note(found)
    refused = (await commits.commit(due, check)).failures
    await commits.until_counted()
    return SetGroups(tuple(one for one in found if one.group not in refused), refused)
