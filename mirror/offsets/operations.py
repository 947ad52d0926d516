"""What an operator's commands may change in a link's state. Each takes the link over by the fence first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.client.cluster import Cluster
from mirror.errors import GapNotOpen
from mirror.link import Link
from mirror.offsets.entries import OPERATION_PREFIX, Gap, GapStatus, LinkRun, Owner, RunState
from mirror.offsets.fence import fence_link
from mirror.offsets.state import read_entries
from mirror.offsets.state_writer import StateLog, ensure_own_topics


async def promote_link(link: Link, target: Cluster, operation_id: str) -> None:
    """Make the target a site of its own: no worker of the link can write there any more, nor start again.

    A target partition without a leader takes no marker and is left out: an old worker could write there only once it
    has a leader again, and that worker's next heartbeat is refused long before.

    May be repeated. Raises LinkFenced when another worker starts at the same moment (try again), ClientError.
    """
    entries = await read_entries(link, target)
    if entries.run is not None and (entries.run.state, entries.run.operation_id) == (RunState.PROMOTED, operation_id):
        return
    log, owner = await _take_over(link, target, operation_id)
    await log.append([LinkRun(RunState.PROMOTED, operation_id, target.clock.now_ms()), owner])


async def resume_link(link: Link, target: Cluster, operation_id: str, gaps: Sequence[Gap] = ()) -> tuple[Gap, ...]:
    """Let the link run (again), and accept these gaps -> the accepted ones. A running worker notices by the fence.

    Raises GapNotOpen (then nothing was changed), LinkFenced, ClientError.
    """
    log, owner = await _take_over(link, target, operation_id)
    open_gaps = (await read_entries(link, target)).open_gaps()
    for gap in gaps:
        found = open_gaps.get((gap.topic, gap.partition))
        if found is None or (found.kind, found.source_from) != (gap.kind, gap.source_from):
            text = f"{gap.kind.value} at source offset {gap.source_from}"
            raise GapNotOpen(f"link {link.name}: {gap.topic}:{gap.partition} does not stand at {text} any more")
    accepted = tuple(replace(gap, status=GapStatus.ACCEPTED) for gap in gaps)
    await log.append([*accepted, LinkRun(RunState.RUNNING, operation_id, target.clock.now_ms()), owner])
    return accepted


async def _take_over(link: Link, target: Cluster, operation_id: str) -> tuple[StateLog, Owner]:
    await ensure_own_topics(target, link)
    writer = (await fence_link(target, link)).writer
    owner = Owner(writer, f"{OPERATION_PREFIX}{operation_id}", target.clock.now_ms())
    return StateLog(target, link, writer), owner
