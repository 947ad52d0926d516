"""Waiting, before the fence, until the mirror has brought everything and nobody writes at the source any more."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from broker.base.documents import iso_time
from broker.base.errors import FarshoreError
from broker.base.naming import named
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.model import OffsetAndTimestamp
from broker.client.offsets import appended_ends
from broker.wire.vocabulary import TopicPartition
from failover.errors import NotDrained, OffsetsPending
from failover.freezing.choice import UNFROZEN, Freezing
from failover.limits import DRAIN_POLL_S, QUIET_S
from failover.losses.statements import Certainty, LossTotal, state_loss, total_loss
from failover.losses.stranded import CountedNone, StrandedRange, stranded_ranges, uncounted_of, unshown_of, untold_of
from failover.observing.open_transactions import Holding, open_transactions
from failover.observing.sites import DrainStands, Sites
from failover.observing.snapshot import Snapshot
from failover.observing.unshown import FEWER_IN_SYNC, TO_BE_SHOWN, TO_BE_TOLD, told_unshown, told_untold
from failover.running.patience import patiently
from mirror.api import Heartbeat, MirrorError, Pulse, judge_heartbeat

_Appended = Mapping[TopicPartition, OffsetAndTimestamp | ClientError]
"""How far the leaders' logs of the source go; {}: nobody was asked."""


@dataclass(frozen=True, slots=True)
class _Look:
    """`behind`: what is not mirrored; `on_their_way`: partitions of which nobody is shown all, or may not be."""

    snapshot: Snapshot
    behind: LossTotal
    on_their_way: Mapping[str, str]

    @property
    def is_mirrored(self) -> bool:
        is_exact = self.behind.certainty is Certainty.EXACT
        return is_exact and not self.behind.offsets and not any(view.is_to_come for view in self.snapshot.partitions)

    @property
    def is_drained(self) -> bool:
        return self.is_mirrored and not self.snapshot.pending_groups and not self.on_their_way


async def drain(
    sites: Sites, timeout_s: float, freezing: Freezing = UNFROZEN, seen: Snapshot | None = None
) -> Snapshot:
    """Wait until the mirror has everything, no group has offsets in a transaction that has not ended, nothing is on its
    way to replicas (that will be acknowledged, and no consumer is shown it before), and the source has been quiet for
    QUIET_S; where `freezing` keeps every client from writing meanwhile one look is enough. `seen`: an earlier look,
    which says where it is asked beside the first one what is on its way.

    A look that fails, as one does while a broker's partitions have no leader, is followed by another one.
    """
    try:
        return await _drain(sites, timeout_s, freezing, seen)
    finally:
        sites.tell_drain(DrainStands(sites.link.name, is_over=True))


async def _drain(sites: Sites, timeout_s: float, freezing: Freezing, seen: Snapshot | None) -> Snapshot:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    quiet_since: float | None = None
    holding = Holding()
    ends: tuple[int | None, ...] = ()
    while True:
        asked_at_s = loop.time()
        try:
            look = await _look(sites, seen)
        except ClientError as error:
            if not error.retriable:
                raise
            if loop.time() > deadline:
                text = f"after {timeout_s:.0f} s it is not known whether everything is mirrored: {error}"
                raise NotDrained(f"{text}; nothing was changed", hint=error.hint) from error
            quiet_since, ends = None, ()
            await asyncio.sleep(DRAIN_POLL_S)
            continue
        snapshot = seen = look.snapshot
        _refuse_what_stands_still(snapshot)
        left_s = max(0.0, deadline - loop.time())
        sites.tell_drain(DrainStands(snapshot.link, look.behind.offsets, look.behind.partitions_with_loss, left_s))
        if freezing.is_by_role and look.is_drained:
            return snapshot
        now_ends = tuple(view.source_end for view in snapshot.partitions)
        is_still = now_ends == ends
        if is_still and not look.is_mirrored and sites.source is not None:
            holding.note(await open_transactions(sites.source, snapshot.partitions), loop.time())
        if not is_still or not look.is_drained:
            quiet_since, ends = loop.time() if look.is_drained else None, now_ends
        elif quiet_since is None:
            quiet_since = loop.time()
        elif loop.time() - quiet_since >= QUIET_S:
            return snapshot
        if loop.time() > deadline:
            stands = {"is_frozen": freezing.is_enforced, "is_still": is_still}
            raise await _too_late(sites, look, timeout_s, holding, **stands)
        until_s = None if quiet_since is None else quiet_since + QUIET_S
        await asyncio.sleep(DRAIN_POLL_S if until_s is None else _until_quiet(until_s, asked_at_s, deadline))


async def _look(sites: Sites, seen: Snapshot | None) -> _Look:
    """Raises ClientError."""
    snapshot, appended = await both(sites.look(), _appended(sites, seen))
    losses = (state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
    return _Look(snapshot, total_loss(losses, is_source_there=True), _on_their_way(snapshot, appended))


async def _too_late(
    sites: Sites, look: _Look, timeout_s: float, holding: Holding, *, is_frozen: bool, is_still: bool
) -> FarshoreError:
    snapshot = look.snapshot
    if look.is_mirrored and snapshot.pending_groups:
        return OffsetsPending(snapshot.source, snapshot.pending_groups, timeout_s)
    if look.is_mirrored and look.on_their_way and (is_frozen or is_still):
        return _not_replicated(look, timeout_s)
    silent = () if look.is_mirrored else await _silent_workers(sites)
    return (
        holding.error(sites.link.source, timeout_s)
        or _unworked(snapshot, look.behind, silent, timeout_s)
        or _not_made(snapshot, timeout_s)
        or _still_behind(snapshot, look.behind, timeout_s, is_frozen=is_frozen)
    )


def _refuse_what_stands_still(snapshot: Snapshot) -> None:
    """Raises NotDrained where, however long it is waited, the mirror brings nothing until somebody decides."""
    if snapshot.paused_topics:
        topics = ",".join(snapshot.paused_topics)
        text = f"{topics} of {snapshot.link} was paused, so what is missing would not come; nothing was changed"
        raise NotDrained(text, hint=f"farshore topic resume --link {snapshot.link} --topic {topics}")
    if made_anew := [view.name for view in snapshot.partitions if view.is_source_recreated]:
        raise _recreated(snapshot, made_anew)


async def _appended(sites: Sites, seen: Snapshot | None) -> _Appended:
    if sites.source is None or seen is None:
        return {}
    there = (view for view in seen.partitions if not view.is_gone_at_source)
    return await appended_ends(sites.source, [TopicPartition(view.topic, view.partition) for view in there])


def _on_their_way(snapshot: Snapshot, appended: _Appended) -> dict[str, str]:
    """Partitions of which the leader's log goes on behind what was seen, or for which it was not asked yet, or did not
    say how far it goes, with the reason. A cluster that tells that to nobody is not waited for.
    """
    found = {}
    for view in snapshot.partitions:
        if view.source_end is None or view.is_gone_at_source:
            continue
        answer = appended.get(TopicPartition(view.topic, view.partition))
        if isinstance(answer, ClientError):
            if answer.retriable:
                found[view.name] = str(answer)
        elif answer is None:
            found[view.name] = "it was not asked yet"
        elif answer.offset > view.source_end:
            found[view.name] = ""
    return found


def _not_replicated(look: _Look, timeout_s: float) -> NotDrained:
    where, source = look.on_their_way, look.snapshot.source
    if reasons := {name: why for name, why in where.items() if why}:
        text = f"after {timeout_s:.0f} s it is not known how far the logs of {named(sorted(reasons))} at {source} go: "
        return NotDrained(f"{text}{next(iter(reasons.values()))}; nothing was changed")
    return NotDrained(
        f"{named(sorted(where))} at {source} had records after {timeout_s:.0f} s that not all replicas in sync have, "
        "or fewer than min.insync.replicas: nobody is shown them, and their producers may yet be told that they are "
        "kept; nothing was changed",
        hint=f"{TO_BE_SHOWN}. {FEWER_IN_SYNC}",
    )


def _recreated(snapshot: Snapshot, made_anew: Sequence[str]) -> NotDrained:
    """The mirror brings nothing of a topic that is another one."""
    gaps = " ".join(f"--gap {shlex.quote(name)}" for name in made_anew)
    return NotDrained(
        f"{named(made_anew)} at {snapshot.source} was deleted and made anew while it was drained: it is another log "
        "than was mirrored, and the mirror stands still there; nothing was changed",
        hint=f"look at the gaps: `farshore status --link {snapshot.link} --all`; to have the link mirror what is there "
        f"now, behind what the target has: `farshore link resume --link {snapshot.link} {gaps}`; then try again",
    )


async def _silent_workers(sites: Sites) -> tuple[Heartbeat, ...]:
    """Of the owners of the link's units those of which no heartbeat came for so long that they do not live."""
    with suppress(ClientError, MirrorError):
        entries = await sites.readers.states.of(sites.link).read(sites.target, only=())
        judged = [judge_heartbeat(owner, sites.target.clock.now_ms()) for owner in entries.owners().values()]
        return tuple(one for one in judged if one.pulse is Pulse.SILENT)
    return ()


def _unworked(
    snapshot: Snapshot, behind: LossTotal, silent: Sequence[Heartbeat], timeout_s: float
) -> NotDrained | None:
    """Where nobody brings what is missing, whoever writes."""
    if not silent:
        return None
    oldest = max(silent, key=lambda one: one.age_ms or 0)
    since = f", the last one at {iso_time(oldest.at_ms)}" if oldest.at_ms is not None else ""
    why = f"no worker brings it: {oldest.detail}{since}"
    return NotDrained(
        f"{_missing(snapshot, behind)} after {timeout_s:.0f} s, as {why}; nothing was changed",
        hint=f"restart the worker (`farshore mirror run --link {snapshot.link}`), see `farshore status --link "
        f"{snapshot.link} --until healthy`, then try again",
    )


def _missing(snapshot: Snapshot, behind: LossTotal) -> str:
    missing = f"{behind.offsets} offsets in {behind.partitions_with_loss} partitions were still not mirrored"
    return missing if behind.offsets else f"not all that {snapshot.source} has was mirrored"


def _still_behind(snapshot: Snapshot, behind: LossTotal, timeout_s: float, *, is_frozen: bool) -> NotDrained:
    written = f"{snapshot.source} was still being written to"
    hint = "stop the producers at the source, see `farshore status`, then try again"
    if is_frozen and behind.offsets:  # nobody could write: the mirror is slow, or stands still
        hint = (
            f"{snapshot.source} refused writes meanwhile, so it is the mirror that did not bring them: see `farshore "
            f"status --link {snapshot.link}`, then try again, with a longer --timeout where it is only slow"
        )
    missing = _missing(snapshot, behind) if behind.offsets else written
    return NotDrained(f"{missing} after {timeout_s:.0f} s; nothing was changed", hint=hint)


def _not_made(snapshot: Snapshot, timeout_s: float) -> NotDrained | None:
    """Of partitions that the mirror never made at the target, which a promoted link does not either."""
    to_come = [view.name for view in snapshot.partitions if view.is_to_come]
    if not to_come:
        return None
    where = f"of {snapshot.source} were still not at {snapshot.target}"
    return NotDrained(
        f"{named(to_come)} {where} after {timeout_s:.0f} s; nothing was changed",
        hint=f"`farshore status --link {snapshot.link} --all` says why the mirror does not make them; then try again",
    )


def _until_quiet(until_s: float, asked_at_s: float, deadline_s: float) -> float:
    """Seconds until the look that ends when the source has been quiet for long enough: those in between would say
    nothing more, and cost the mirror and both sites what they do for it. One takes as long as the last one.
    """
    now_s = asyncio.get_running_loop().time()
    left_s = until_s - now_s - (now_s - asked_at_s) / 2
    return max(DRAIN_POLL_S, min(left_s, deadline_s - now_s))


async def settle(sites: Sites, timeout_s: float, none_in: CountedNone) -> Snapshot:
    """Of a link that was moved before, whose mirror brings nothing more: see that its source has nothing of its own
    that nobody decided about, nor offsets pending. What a link back brought there the target has: all of it is read,
    in rounds of COUNT_MS, and `none_in` has up to where. Raises NotDrained, ClientError.
    """
    try:
        return await _settle(sites, timeout_s, none_in)
    finally:
        sites.tell_drain(DrainStands(sites.link.name, is_over=True))


async def _settle(sites: Sites, timeout_s: float, none_in: CountedNone) -> Snapshot:
    link, source, target = sites.link, sites.source, sites.target
    assert source is not None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        snapshot = await patiently(sites.look)
        found = await patiently(partial(stranded_ranges, link, source, target, snapshot, none_in=none_in))
        stranded = [one for one in found if not one.may_be_brought]
        if not stranded and not snapshot.pending_groups:
            return snapshot
        counts, is_late = [one.records for one in stranded], loop.time() > deadline
        if stranded and (is_late or None not in counts):  # a transaction ends, and followers get what they lack
            raise _stranded(sites, stranded)
        offsets = sum(one.end_offset - one.first_offset for one in stranded)
        left_s = max(0.0, deadline - loop.time())
        sites.tell_drain(DrainStands(sites.link.name, offsets, len(stranded), left_s, is_moved=True))
        if is_late:
            raise OffsetsPending(snapshot.source, snapshot.pending_groups, timeout_s)
        await asyncio.sleep(DRAIN_POLL_S)


def _stranded(sites: Sites, stranded: Sequence[StrandedRange]) -> NotDrained:
    link, source = sites.link.name, sites.link.source.name
    counts = [one.records for one in stranded]
    least = "at least " if None in counts else ""
    records = sum(count or 0 for count in counts)
    text = f"{source} alone has {least}{records} records of {link}"
    if not records:
        text = f"it is not known whether {source} alone has records of {link}"
    hint = (
        f"see `farshore stranded list --link {link}`; they stay there: `farshore stranded leave --link {link}`, then "
        f"try again; or the link brings them: `farshore link resume --link {link}`"
    )
    if uncounted := uncounted_of(stranded):
        text = f"{text} (those of {named(sorted(uncounted))} could not be counted in time)"
        hint = hint if records else f"`farshore stranded list --link {link}` says what stands there"
        hint = f"try again, with a longer --timeout where there is only more than could be read; {hint}"
    if unshown := unshown_of(stranded):
        text, hint = f"{text} ({told_unshown(unshown)})", f"{TO_BE_SHOWN}. {FEWER_IN_SYNC}"
    if untold := untold_of(stranded):
        text, hint = f"{text} ({told_untold(source, untold)})", hint if unshown else TO_BE_TOLD
    return NotDrained(f"{text}, which was moved before and brings no more; nothing was changed", hint=hint)
