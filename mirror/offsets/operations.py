"""What an operator's commands may change in a link's state. Each takes all units of the link over by the fence first,
but for the gaps that are accepted of a link that may run.

A worker that starts at the same moment, or another command, may fence one of them before it is done: then it begins
again, with a new look. A worker that is fenced waits for the command's end, so that two or three tries are enough.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.fanout import both, split_failures
from broker.client.offsets import log_spans
from broker.client.producers import ProducerIdAndEpoch
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.topics import describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.vocabulary import TopicPartition
from mirror.errors import GapNotOpen, LinkFenced, LinkPromoted
from mirror.link import Link
from mirror.offsets.acceptance import ask_to_accept, gap_key
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.adoption import Adoption
from mirror.offsets.cutting import refuse_cut_anew, state_units
from mirror.offsets.entries import OPERATION_PREFIX, Gap, GapStatus, LinkRun, RunState
from mirror.offsets.fence import Fence, fence_groups_of_earlier, fence_link
from mirror.offsets.fence_ends import NO_ENDS, FenceEnds
from mirror.offsets.fence_keeping import UnitFence, keep_fence_ends, keep_fenced_logs, may_keep_fence_ends
from mirror.offsets.promotions import is_over, promotion_of, run_behind
from mirror.offsets.state import StateReader, read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change, StateLog
from mirror.offsets.taking_over import Claim, claim_link
from mirror.offsets.unit_entries import LinkDeal

T = TypeVar("T")
Check: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Fence):
    """What a promotion has fenced. `log`: the state of the lead unit, which the operation may write while it is its.
    `groups_writer`: who may commit groups' offsets for it; None where that could not be fenced, or nobody ever did.
    """

    log: StateLog
    groups_writer: ProducerIdAndEpoch | None = None


TRIES_MAX: Final = 8


async def promote_link(
    link: Link,
    target: Cluster,
    operation_id: str,
    after: Iterable[str] = (),
    reader: StateReader | None = None,
    ends: FenceEnds = NO_ENDS,
    check: Check | None = None,
    may_begin: Check | None = None,
) -> Promotion:
    """Make the target a site of its own: no worker of the link can write there any more, nor start again.

    The state says so before the target's partitions are fenced, which can take long where there are many: a worker
    waits from then on, and does not fence this operation in its turn. So when this raises, the link may be promoted and
    its partitions not fenced yet: do it again.

    A target partition that can take no marker now is left out of the fence that is returned: an old worker that hangs
    could still write there. Groups are fenced, too: when this has returned, no commit of an old worker is under way,
    however long it hangs, and groups may be looked at and moved; where that could not be done, the fence says why.

    `after`: operations that promoted links back, and stand, beside those that the link's state was told of. `reader`:
    of the link's state, of who asked before. `ends`: where the source's logs end now, as far as anybody knows: what
    comes behind them came after the promotion (`mirror/split.py`). `check` raises where the operation is
    another machine's by now. It is asked behind each fence of the state and before what is written under that, and
    must have it from where that machine says so before it fences the link: who comes behind its answer fences later,
    and finds the promotion, or has refused it for good. `may_begin` raises where nothing is to be
    promoted any more: it is asked of each try when all has been read, right before anything is written, but where this
    operation has promoted the link already.
    May be repeated, also by another operation: the first time counts, until the link is resumed, or clients went back
    along a link back, which `after` says was promoted since. Raises LinkFenced when
    others take the link over again and again, ClientError.
    """
    reader = reader or StateReader(link)
    promoting = partial(_promote_link, link, target, operation_id, frozenset(after), reader, ends, check, may_begin)
    return await unless_fenced(target, promoting)


async def _promote_link(
    link: Link,
    target: Cluster,
    operation_id: str,
    after: frozenset[str],
    reader: StateReader,
    ends: FenceEnds,
    check: Check | None,
    may_begin: Check | None,
) -> Promotion:
    # What is kept has no fence: the check comes before it.
    reading, checking = state_units(link, target), both(may_keep_fence_ends(link, target), _checked(check))
    (units, (may_keep, _)), known = await both(both(reading, checking), reader.read(target, only=()))
    before = promotion_of(known)
    if before is None or before.operation_id != operation_id:
        await _checked(may_begin)
    standing, after = after, after | {back.operation_id for back in known.backs.values()}
    promoted = LinkRun(RunState.PROMOTED, operation_id, target.clock.now_ms(), tuple(sorted(after)))
    if before is not None and before.operation_id != operation_id and is_over(before, known, standing):
        before = None
    if may_keep:
        await keep_fence_ends(link, target, operation_id, ends, before)
    if before is not None:  # what came in between came after it
        promoted = before if before.operation_id == operation_id else replace(promoted, at_ms=before.at_ms)
    claim = partial(claim_link, target, worker=f"{OPERATION_PREFIX}{operation_id}", also=[promoted], check=check)
    claims = [await claim(unit) for unit in units]
    fencing = both(fence_groups_of_earlier(target, units[0]), _fence_units(target, units, claims))
    (groups, fences), after_claims = await both(fencing, reader.read(target, only=()))
    refuse_cut_anew(units[0], after_claims)
    writers = (claim.owner.writer for claim in claims)
    await keep_fenced_logs(target, operation_id, map(UnitFence, units, writers, fences), known, before)
    left_out = {where: why for fence in fences for where, why in fence.left_out.items()}
    awaited = frozenset(where for fence in fences for where in fence.awaited)
    reached = {where: topic_id for fence in fences for where, topic_id in fence.reached.items()}
    writer = fences[0].writer
    groups_error, groups_writer = (groups, None) if isinstance(groups, KafkaError) else (None, groups)
    log = claims[0].log.of(writer)
    return Promotion(writer, left_out, awaited, groups_error, reached, log=log, groups_writer=groups_writer)


async def _checked(check: Check | None) -> None:
    if check is not None:
        await check()


async def refuse_promotion(link: Link, target: Cluster, operation_id: str) -> LinkRun | None:
    """Take the link over from whoever was to promote it by this operation, and is not to any more: what he has asked
    for is heard by now, or never is -> what the link may do, as it stands behind that fence; None: nobody ever said.

    A link that may run goes on, with a new session. Raises LinkFenced when others take the link over again and again,
    ClientError.
    """
    return await unless_fenced(target, partial(_refuse_promotion, link, target, operation_id))


async def _refuse_promotion(link: Link, target: Cluster, operation_id: str) -> LinkRun | None:
    units = await state_units(link, target)
    claims = [await claim_link(target, unit, f"{OPERATION_PREFIX}{operation_id}") for unit in units]
    entries = await read_entries(link, target, only=())
    refuse_cut_anew(units[0], entries)
    run = entries.run
    if run is None or run.state is not RunState.PROMOTED:  # when, and by which operation, is known by that entry alone
        state = run.state if run is not None else RunState.RUNNING
        left = run_behind(run, state, operation_id, target.clock.now_ms())
        for claim in claims:
            await claim.log.append([left, claim.owner])
    return run


async def _fence_units(target: Cluster, units: Sequence[Link], claims: Sequence[Claim]) -> list[Fence]:
    return [await fence_link(target, unit, since=claim.owner.writer) for unit, claim in zip(units, claims, strict=True)]


async def resume_link(
    link: Link,
    target: Cluster,
    operation_id: str,
    gaps: Sequence[Gap] = (),
    check: Check | None = None,
) -> tuple[Gap, ...]:
    """Let the link run (again), and accept these gaps -> the accepted ones. `check`: as of a promotion.

    Of a link that may run gaps are accepted without a fence: who runs it sees that within a look at its topics, and
    takes those partitions in again; else the next worker does. Without gaps, and where it may not run yet, the link's
    state is fenced, by which a running worker notices; the one that goes on fences the partitions. Raises
    GapNotOpen (then nothing was changed, and a worker that runs goes on), LinkFenced when others take the link over
    again and again, ClientError.
    """
    if gaps and _may_run(entries := await read_entries(link, target)):
        accepted = await _accept(link, target, operation_id, entries, gaps)
        if accepted is not None:
            return accepted
    return await unless_fenced(target, partial(_resume_link, link, target, operation_id, gaps, check))


def _may_run(entries: StateEntries) -> bool:
    return entries.run is None or entries.run.state is RunState.RUNNING


async def _accept(
    link: Link, target: Cluster, operation_id: str, entries: StateEntries, gaps: Sequence[Gap]
) -> tuple[Gap, ...] | None:
    """None where the target was promoted, or the link paused or cut anew, in between."""
    _check_open(entries, gaps)
    stopped = {gap_key(gap): entries.gaps[gap_key(gap)].at_ms for gap in gaps}
    wanted = [Acceptance(*gap_key(gap), stopped[gap_key(gap)], gap.source_to, operation_id) for gap in gaps]
    await ask_to_accept(entries.link, target, wanted)
    after = await read_entries(link, target)
    if not _may_run(after) or after.link != entries.link:
        return None
    for gap in gaps:  # the link may have begun anew between the look and the writing: then it is another gap by now
        there = after.gaps.get(gap_key(gap))
        if there is None or there.status in (GapStatus.STOPPED, GapStatus.GONE):
            raise _not_open(link, gap)
    return tuple(replace(gap, status=GapStatus.ACCEPTED) for gap in gaps)


async def _resume_link(
    link: Link, target: Cluster, operation_id: str, gaps: Sequence[Gap], check: Check | None
) -> tuple[Gap, ...]:
    units = await state_units(link, target)
    _check_open(await read_entries(link, target), gaps)
    claiming = partial(claim_link, target, worker=f"{OPERATION_PREFIX}{operation_id}", check=check)
    claims = [await claiming(unit) for unit in units]
    entries = await read_entries(link, target)
    refuse_cut_anew(units[0], entries)
    _check_open(entries, gaps)  # a worker may have gone on between the look and the fence
    accepted = tuple(replace(gap, status=GapStatus.ACCEPTED) for gap in gaps)
    run = run_behind(entries.run, RunState.RUNNING, operation_id, target.clock.now_ms())
    for unit, claim in zip(units, claims, strict=True):
        mine = [gap for gap in accepted if unit.carries(gap.topic, gap.partition)]
        await claim.log.append([*mine, *_deal(entries), run, claim.owner])
    return accepted


def _deal(entries: StateEntries) -> list[LinkDeal]:
    """What is said in each part before it may run: how the link is cut, where it was to be cut anew. Who was to do that
    may not have come to say it there.
    """
    return [entries.deal] if entries.deal is not None else []


async def leave_stranded(link: Link, target: Cluster, gaps: Sequence[Gap], check: Check | None = None) -> None:
    """Let stranded records stay at the source: the promoted link goes on behind them when it is resumed. `check`: as of
    a promotion.

    `gaps` are of the kind `stranded` and accepted, each from where the link stands; one that was written before is
    written again. It stays promoted, by the operation that did it. Raises GapNotOpen where it is not promoted (then
    nothing was changed), LinkFenced when others take the link over again and again, ClientError.
    """
    await unless_fenced(target, partial(_leave_stranded, link, target, gaps, check))


async def _leave_stranded(link: Link, target: Cluster, gaps: Sequence[Gap], check: Check | None) -> None:
    run = _promotion(await read_entries(link, target))
    for unit in await state_units(link, target):
        claim = await claim_link(target, unit, f"{OPERATION_PREFIX}{run.operation_id}", check=check)
        entries = await read_entries(link, target)
        refuse_cut_anew(unit, entries)
        if _promotion(entries) != run:
            raise LinkFenced(f"link {link.name}: another operation took it over", writer=claim.owner.writer)
        await claim.log.append([*(gap for gap in gaps if unit.carries(gap.topic, gap.partition)), claim.owner])


def _promotion(entries: StateEntries) -> LinkRun:
    run = entries.run
    if run is None or run.state is not RunState.PROMOTED:
        text = f"link {entries.link.name} was resumed: what its source has is mirrored, and can not be left there"
        raise GapNotOpen(text, hint=f"see `farshore status --link {entries.link.name}`")
    return run


async def pause_link(link: Link, target: Cluster, operation_id: str) -> None:
    """Let no session of the link go on, nor begin, until it is resumed; its positions stay.

    A worker that runs notices by the fence of the state, at its next checkpoint or heartbeat: what it has sent until
    then counts. Raises LinkPromoted, LinkFenced when others take the link over again and again, ClientError.
    """
    await unless_fenced(target, partial(_pause_link, link, target, operation_id))


async def _pause_link(link: Link, target: Cluster, operation_id: str) -> None:
    units = await state_units(link, target)
    _check_not_promoted(await read_entries(link, target))
    for unit in units:
        claim = await claim_link(target, unit, f"{OPERATION_PREFIX}{operation_id}")
        entries = await read_entries(unit, target)
        if unit.is_lead_unit:
            refuse_cut_anew(unit, entries)
        _check_not_promoted(entries)  # one may have come between the look and the fence
        paused = run_behind(entries.run, RunState.PAUSED, operation_id, target.clock.now_ms())
        await claim.log.append([paused, claim.owner])


def _check_not_promoted(entries: StateEntries) -> None:
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        raise LinkPromoted(f"link {entries.link.name} does not run: {entries.link.target.name} was promoted")


async def restart_link(link: Link, target: Cluster, operation_id: str) -> None:
    """Let the worker that runs the link begin a new session; whether the link may run stays as it is.

    Raises LinkPromoted, LinkFenced when others take the link over again and again, ClientError.
    """
    await unless_fenced(target, partial(_restart_link, link, target, operation_id))


async def _restart_link(link: Link, target: Cluster, operation_id: str) -> None:
    for unit in await state_units(link, target):
        claim = await claim_link(target, unit, f"{OPERATION_PREFIX}{operation_id}")
        entries = await read_entries(unit, target)
        if unit.is_lead_unit:
            refuse_cut_anew(unit, entries)
        _check_not_promoted(entries)  # when, and by which operation, is known by this entry alone
        state = entries.run.state if entries.run is not None else RunState.RUNNING
        await claim.log.append([run_behind(entries.run, state, operation_id, target.clock.now_ms()), claim.owner])


async def adopt_partitions(
    link: Link, target: Cluster, operation_id: str, adoptions: Sequence[Adoption], check: Check | None = None
) -> tuple[Gap, ...]:
    """As `resume_link`, behind the records that the target holds, with the map of them -> the gaps that are passed.

    Raises GapNotOpen (then nothing was changed) also where a target is not as it was when it was compared. Who writes
    there later is found out by the worker that goes on, behind the adopted end.
    """
    return await unless_fenced(target, partial(_adopt_partitions, link, target, operation_id, adoptions, check))


async def _adopt_partitions(
    link: Link, target: Cluster, operation_id: str, adoptions: Sequence[Adoption], check: Check | None
) -> tuple[Gap, ...]:
    gaps = [adoption.gap for adoption in adoptions]
    units = await state_units(link, target)
    _check_open(await read_entries(link, target), gaps)
    await _check_unchanged(link, target, adoptions)
    claiming = partial(claim_link, target, worker=f"{OPERATION_PREFIX}{operation_id}", check=check)
    claims = [await claiming(unit) for unit in units]
    entries = await read_entries(link, target)
    refuse_cut_anew(units[0], entries)
    _check_open(entries, gaps)
    await _check_unchanged(link, target, adoptions)
    now_ms = target.clock.now_ms()
    for unit, claim in zip(units, claims, strict=True):
        changes: list[Change] = []
        for adoption in adoptions:
            where = (adoption.gap.topic, adoption.gap.partition)
            if unit.carries(*where):
                known = (entries.blocks_of(*where), entries.pages_of(*where))
                changes += adoption.changes(claim.owner.writer, *known, now_ms)
        run = run_behind(entries.run, RunState.RUNNING, operation_id, now_ms)
        await claim.log.append([*changes, *_deal(entries), run, claim.owner])
    return tuple(adoption.passed for adoption in adoptions)


async def unless_fenced(target: Cluster, operation: Callable[[], Awaitable[T]]) -> T:
    """Run the operation, from its first look on again where somebody else took the link over before it was done."""
    retry = target.retry()
    for attempt in range(TRIES_MAX - 1):
        try:
            return await operation()
        except LinkFenced:
            await target.clock.sleep(retry.pause_seconds(attempt))
    return await operation()


def _check_open(entries: StateEntries, gaps: Sequence[Gap]) -> None:
    """Raise GapNotOpen where a partition does not stand at the gap that is to be accepted."""
    open_gaps = entries.open_gaps()
    for gap in gaps:
        found = open_gaps.get((gap.topic, gap.partition))
        if found is None or (found.kind, found.source_from) != (gap.kind, gap.source_from):
            raise _not_open(entries.link, gap)


def _not_open(link: Link, gap: Gap) -> GapNotOpen:
    text = f"{gap.kind.value} at source offset {gap.source_from}"
    return GapNotOpen(f"link {link.name}: {gap.topic}:{gap.partition} does not stand at {text} any more")


async def _check_unchanged(link: Link, target: Cluster, adoptions: Sequence[Adoption]) -> None:
    """Behind what was compared there may be the markers of fences only, and in a shared topic others' records."""
    compared = {adoption.target: adoption for adoption in adoptions}
    topics = await describe_topics(target, {where.topic for where in compared})
    changed = [
        where
        for where, found in compared.items()
        if where.topic not in topics or str(topics[where.topic].topic_id or "") != found.topic_ids.target
    ]
    spans, failures = split_failures(await log_spans(target, compared))
    for error in failures.values():
        raise error

    def visit(where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        counts = not link.shared_targets or header.producer_id in compared[where].writers
        if counts and header.record_count and not header.is_control:
            changed.append(where)

    left = {where: OffsetSpan(compared[where].target_read_to, span.end) for where, span in spans.items()}
    await scan_batches(target, {where: span for where, span in left.items() if span.start < span.end}, visit)
    changed += [where for where, span in left.items() if span.end < span.start]
    if changed:
        text = f"link {link.name}: {changed[0]} at {link.target.name} was changed after it was compared"
        raise GapNotOpen(text, hint="stop what writes there, and try again")
