"""What the target lacks, as far as the source can still be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.offsets import log_spans
from broker.client.topics import list_topics
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.limits import BORN_ROUNDS
from failover.losses.counting import count_losses, counting_until, ends_told, half_way, with_edges, with_present_ends
from failover.losses.lacked_of import with_lacked
from failover.losses.statements import Certainty, PartitionLoss, state_loss, with_end, with_returns
from failover.losses.stranded import carried_counter, source_partitions
from failover.observing.sites import Sites
from failover.observing.snapshot import PartitionView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import OperationPlan, losing
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.api import CarriedCounter, MirrorError


async def stated_losses(sites: Sites, snapshot: Snapshot, until_s: float | None = None) -> tuple[PartitionLoss, ...]:
    """What the target lacks, counted, and with first and last timestamps, where the source can still be read; of
    partitions that were born there since the snapshot, too; and what it lost of its own. What is not told until
    `until_s`, by the clock of the running loop, makes it a lower bound.
    """
    born = await _born(sites, snapshot, until_s)
    return with_lacked(await _of_source(sites, snapshot, born, until_s), snapshot.lacked)


def losses_at_least(snapshot: Snapshot) -> tuple[PartitionLoss, ...]:
    """Of offsets alone, where nothing more can be known of the source. Pure."""
    gone, losses = _stated(snapshot)
    return with_lacked((with_end(loss, None) for loss in (*gone, *losses)), snapshot.lacked)


async def losses_by_now(sites: Sites, snapshot: Snapshot, until_s: float | None = None) -> tuple[PartitionLoss, ...]:
    """As `stated_losses`, of a source that took records until it was closed, behind the look. What that look did not
    tell is not asked for: nobody has compared it with what was mirrored.
    """
    told = {TopicPartition(view.topic, view.partition) for view in snapshot.partitions if view.source_end is not None}
    if sites.source is None or not told:
        return await stated_losses(sites, snapshot, until_s)
    now_ms = sites.now_ms()
    ends, born = await both(
        ends_told(sites.source, sorted(told), IsolationLevel.READ_UNCOMMITTED, until_s), _born(sites, snapshot, until_s)
    )
    views = tuple(_with_end(view, ends.get(TopicPartition(view.topic, view.partition))) for view in snapshot.partitions)
    taken_at_ms = now_ms if ends.keys() == told else snapshot.taken_at_ms
    by_now = replace(snapshot, partitions=views, taken_at_ms=taken_at_ms)
    losses = with_lacked(await _of_source(sites, by_now, born, until_s), snapshot.lacked)
    anew = await _made_anew(sites, sites.source, snapshot, until_s)
    if anew is None:
        return tuple(with_end(loss, None) for loss in losses)
    if not anew:
        return losses
    views = tuple(_gone(view) if (view.topic, view.partition) in anew else view for view in views)
    return await stated_losses(sites, replace(by_now, partitions=views), until_s)


async def _made_anew(
    sites: Sites, source: Cluster, snapshot: Snapshot, until_s: float | None
) -> Collection[tuple[str, int]] | None:
    """The partitions whose topic at the source is another one than was mirrored, and was not when the look was taken.
    It is asked behind all else, so that no end and no record of such a one is taken for the former's. None: not told.
    """
    with suppress(ClientError, MirrorError, TimeoutError):
        async with counting_until(until_s):
            entries = await sites.readers.states.of(sites.link).read(sites.target)
            others = entries.of_other_topics(await list_topics(source)).keys()
            return others - {(one.topic, one.partition) for one in snapshot.partitions if one.is_source_recreated}
    return None


def _gone(view: PartitionView) -> PartitionView:
    """The former log went with its topic; what stands in the new one was born."""
    return replace(view, source_end=view.mirrored_source_next, is_gone_at_source=True)


def _with_end(view: PartitionView, end: int | None) -> PartitionView:
    """A log that has lost its end since is as it was seen."""
    if view.source_end is None or end is None:
        return view
    return replace(view, source_end=max(view.source_end, end))


async def _of_source(
    sites: Sites, snapshot: Snapshot, born: Sequence[PartitionLoss], until_s: float | None
) -> tuple[PartitionLoss, ...]:
    """What was not mirrored, with the `born`, of which it is not known whether a link back writes there."""
    gone, losses = _stated(snapshot)
    if sites.source is None:
        return (*gone, *losses)
    new = {TopicPartition(loss.topic, loss.partition) for loss in born}
    gone = [loss for loss in gone if TopicPartition(loss.topic, loss.partition) not in new]
    returned = {TopicPartition(view.topic, view.partition): view.returned_at_most for view in snapshot.partitions}
    returned |= dict.fromkeys(new)
    carried = _Carried(sites, until_s).look
    counted = await count_losses(sites.source, (*losses, *born), _shared(snapshot) | new, carried, until_s)
    counted = tuple(with_returns(loss, returned[TopicPartition(loss.topic, loss.partition)]) for loss in counted)
    counted = await _with_later(sites, counted, gone, until_s)
    dated = [loss for loss in counted if loss.records != 0 and loss.certainty is Certainty.EXACT]
    edges = {(loss.topic, loss.partition): loss for loss in await with_edges(sites.source, dated, until_s)}
    return tuple(edges.get((loss.topic, loss.partition), loss) for loss in counted)


def _stated(snapshot: Snapshot) -> tuple[list[PartitionLoss], list[PartitionLoss]]:
    """Of offsets alone: of what a source that tells all has no more, where nothing can come; and of all else. Pure."""
    gone: list[PartitionLoss] = []
    there: list[PartitionLoss] = []
    for view in snapshot.partitions:
        (gone if view.is_gone_at_source else there).append(state_loss(view, snapshot.taken_at_ms))
    return gone, there


async def counted(move: LinkMove, *, always: bool) -> LinkMove:
    """With its losses counted: `always`, or where offsets would say too much. Else they are of offsets alone, and what
    is behind the start of a transaction that is open at the source is told apart all the same. A failover that nobody
    let lose anything is refused, or not, for what is stated then.
    """
    sites, plan = move.sites, move.plan
    asks_consent = plan.operation is Operation.FAILOVER and not plan.allows_data_loss
    says_offsets = asks_consent and any(loss.offsets for loss in plan.losses)
    if always or says_offsets or says_too_much(plan.losses, plan.snapshot):
        stated = await stated_losses(sites, plan.snapshot)
    elif sites.source is None:
        return move
    else:
        gone, losses = _stated(plan.snapshot)
        carried = _Carried(sites).look
        present = await with_present_ends(sites.source, losses, _shared(plan.snapshot), carried)
        stated = with_lacked((*gone, *present), plan.snapshot.lacked)
    plan = replace(plan, losses=stated)
    return replace(move, plan=replace(plan, refusals=_judged(plan)) if asks_consent else plan)


def _judged(plan: OperationPlan) -> tuple[GateRefusal, ...]:
    """Its refusals, by what its losses say now."""
    found = tuple(losing(plan.snapshot, plan.losses))
    if any(one in plan.refusals for one in found):
        return plan.refusals
    others = [one for one in plan.refusals if one.reason is not RefusalReason.DATA_LOSS_NOT_ALLOWED]
    return (*others, *found)


def says_too_much(losses: Iterable[PartitionLoss], snapshot: Snapshot) -> bool:
    """Whether offsets that a living source has, and the target has not, may hold what a link back brought from there:
    then only counting tells how many records are at the source alone. Pure.
    """
    shared = _shared(snapshot)
    told = (loss for loss in losses if loss.offsets and loss.certainty is Certainty.EXACT)
    return any(TopicPartition(loss.topic, loss.partition) in shared for loss in told)


def _shared(snapshot: Snapshot) -> set[TopicPartition]:
    """To which a link back may bring records."""
    views = (view for view in snapshot.partitions if view.returned_at_most != 0)
    return {TopicPartition(view.topic, view.partition) for view in views}


class _Carried:
    """What would be carried, looked for once, where somebody asks."""

    def __init__(self, sites: Sites, until_s: float | None = None) -> None:
        self._sites, self._until_s = sites, until_s
        self._is_looked = False
        self._found: CarriedCounter | None = None

    async def look(self) -> CarriedCounter | None:
        """None: what came from the target cannot be told, and is not counted then."""
        if not self._is_looked:
            self._is_looked, self._found = True, await self._look()
        return self._found

    async def _look(self) -> CarriedCounter | None:
        sites = self._sites
        with suppress(ClientError, TimeoutError):
            if sites.source is not None:
                async with timeout_at(half_way(self._until_s)):
                    return await carried_counter(sites.link, sites.source, sites.target)
        return None


async def _born(sites: Sites, snapshot: Snapshot, until_s: float | None) -> list[PartitionLoss]:
    """What the source has that the snapshot has not, or had as gone, asked for beside all else; none where it does not
    say what it has: what that is will be a bound then.
    """
    source = sites.source
    if source is None:
        return []
    known = {TopicPartition(loss.topic, loss.partition) for loss in _stated(snapshot)[1]}
    with suppress(ClientError, TimeoutError):
        async with counting_until(until_s):
            born = [at for at in await source_partitions(sites.link, source) if at not in known]
        return await _stated_born(sites, born, until_s) if born else []
    return []


async def _with_later(
    sites: Sites, counted: Sequence[PartitionLoss], gone: Sequence[PartitionLoss], until_s: float | None
) -> tuple[PartitionLoss, ...]:
    """What was born since is found behind the count of all else, so that nothing can come in between unseen; so is what
    was `gone`, and made anew. What it holds may have come behind the time as of which all else is stated: only of what
    is empty that is exact. Where the source does not say what it has, nothing is.
    """
    source, found = sites.source, list(counted)
    for _ in range(BORN_ROUNDS):
        known = {TopicPartition(loss.topic, loss.partition) for loss in found}
        born = None
        if source is not None:
            with suppress(ClientError, TimeoutError):
                async with counting_until(until_s):
                    born = [at for at in await source_partitions(sites.link, source) if at not in known]
        if source is None or born is None:
            return tuple(with_end(loss, None) for loss in (*gone, *found))
        gone = [loss for loss in gone if TopicPartition(loss.topic, loss.partition) not in born]
        if not born:
            return (*gone, *found)
        stated = await _stated_born(sites, born, until_s)
        carried = _Carried(sites, until_s).look
        later = [with_returns(loss, None) for loss in await count_losses(source, stated, born, carried, until_s)]
        found += (with_end(loss, None) if loss.offsets else loss for loss in later)
    return tuple(with_end(loss, None) for loss in (*gone, *found))  # they come faster than they are counted


async def _stated_born(sites: Sites, born: Iterable[TopicPartition], until_s: float | None) -> list[PartitionLoss]:
    """All that they hold is at the source alone."""
    spans = {}
    if sites.source is not None:
        with suppress(ClientError, TimeoutError):
            async with counting_until(until_s):
                spans = await log_spans(sites.source, born)
    now_ms = sites.now_ms()
    stated = []
    for at in born:
        span = spans.get(at)
        if span is None or isinstance(span, ClientError):
            stated.append(PartitionLoss(*at, Certainty.UNKNOWN, None, None, 0, None))
            continue
        offsets = span.end - span.start
        records = None if offsets else 0
        stated.append(PartitionLoss(*at, Certainty.EXACT, offsets, records, span.start, span.end, seen_at_ms=now_ms))
    return stated
