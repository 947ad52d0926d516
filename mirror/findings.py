"""What about a link needs somebody's attention, each with the next step. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from broker.base.durations import human_seconds
from broker.client.errors import ClientError
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.acls.findings import acl_findings
from mirror.acls.record import AclRecord
from mirror.errors import OffsetHeld
from mirror.heartbeat import OLDEST_ALIVE_MS, Heartbeat, Pulse
from mirror.lag import PartitionLag
from mirror.limits import GROUPS_NOT_SEEN_AFTER_MS, RESTARTS_IN_A_LOOP
from mirror.link import STATE_PREFIX, Link
from mirror.link_finding import LinkFinding, LinkFindingKind, start_step, told_time
from mirror.looking import LinkLook
from mirror.offsets.entries import Gap, GapKind, RunState
from mirror.offsets.fence import fence_hint
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.state_entries import StateEntries
from mirror.split_findings import of_backs, of_closed, of_source_lacks, of_split
from mirror.transactions import HoldingTransaction, TransactionFate, end_by_hand

_HOLD_STEPS = {
    HoldReason.NAME_TOO_LONG: 'leave the topic out of the link\'s topics, or give the link topic_names = "same"',
    HoldReason.NO_LEADER_AT_SOURCE: "bring back a broker of the source that has a replica of the partition",
    HoldReason.NO_LEADER_AT_TARGET: "bring back a broker of the target that has a replica of the partition",
}
"""Where the detail does not say it: what lets the mirror take the partition in, which it then does by itself."""

_LEADERLESS = (HoldReason.NO_LEADER_AT_SOURCE, HoldReason.NO_LEADER_AT_TARGET)


def link_findings(
    link: Link,
    answers: tuple[bool, bool],
    entries: StateEntries | None,
    look: LinkLook | None,
    heartbeat: Heartbeat,
    trouble: str,
    locked: Mapping[str, str],
    *,
    state_lost: bool = False,
    acls: AclRecord | ClientError | None = None,
) -> tuple[LinkFinding, ...]:
    """All of a link: of the whole first, then stopped partitions, then the rest. `answers`: source and target;
    `locked`: why farshore could not ask, by site. `state_lost`: there is no state, and a mirror wrote to the target.
    `acls`: as `acl_findings` has it.

    A link whose target was promoted is not mirrored because somebody decided so: that is no finding, unless its source
    is written to since, or a link back was promoted behind it, and nothing is mirrored either way. Nor are its holds:
    no worker runs that could take them away.
    """
    found = [
        LinkFinding(LinkFindingKind.SITE_LOCKED, None, None, locked[site.name], "")
        if site.name in locked
        else _site_lost(link, site, entries)
        for site, answered in zip((link.source, link.target), answers, strict=True)
        if not answered
    ]
    if trouble and all(answers):
        found.append(LinkFinding(LinkFindingKind.TROUBLE, None, None, trouble, ""))
    if entries is not None:
        found += [_state_lost(link, answers[0])] if state_lost else _of_worker(link, entries, heartbeat)
        found += _of_pauses(link, entries)
        found += _of_groups(link, entries)
        found += acl_findings(link, entries, acls, source_answers=answers[0])
        found += stopped_partitions(link, entries)
    if look is None:
        return tuple(found)
    found += of_backs(link, look.backs)
    found += of_split(link, look.split, look.backs)
    found += of_closed(link, look.closed)
    found += of_source_lacks(link, look.source_lacks)
    found += _of_fence(link, look)
    paused = entries.paused if entries is not None else {}
    found += _of_holds([h for h in look.holds if h.reason is not HoldReason.PAUSED or h.topic not in paused])
    found += [_left_to_silent(link, *left) for left in look.left_to]
    is_promoted = entries is not None and _is_promoted(entries)
    if not is_promoted:
        found += [_transaction(link, one) for one in look.transactions if one.is_long]
    stopped = entries.open_gaps().keys() if entries is not None else set()
    found += [
        LinkFinding(LinkFindingKind.LAG_UNKNOWN, *where, f"its lag is not known: {error}", "")
        for where, error in sorted(look.lags.unknown.items())
        if where not in stopped and not (is_promoted and isinstance(error, OffsetHeld))
    ]
    for lag in sorted(look.lags.lags, key=_place):
        if lag.lag_bytes is None:
            text = f"up to {lag.lag_records} records are missing at {link.target.name}; they could not be looked at"
            found.append(LinkFinding(LinkFindingKind.LAG_UNKNOWN, lag.topic, lag.partition, text, ""))
    return tuple(found)


def _site_lost(link: Link, site: Site, entries: StateEntries | None) -> LinkFinding:
    """A source that was not left yet may be left now, where the target tells how the link stands."""
    step = ""
    if site.name == link.source.name and entries is not None and not _is_promoted(entries):
        step = "bring it back; is it gone for good, what would be lost: "
        step += f"farshore failover --link {link.name} --dry-run --allow-data-loss"
    return LinkFinding(LinkFindingKind.SITE_LOST, None, None, f"site {site.name} does not answer", step)


def _is_promoted(entries: StateEntries) -> bool:
    return entries.run is not None and entries.run.state is RunState.PROMOTED


def stopped_partitions(link: Link, entries: StateEntries) -> list[LinkFinding]:
    """The partitions that stand still, why, and the command with which each goes on."""
    return [_stopped(link, gap) for gap in sorted(entries.open_gaps().values(), key=_place)]


def resume_command(link_name: str, gap: Gap) -> str:
    """What lets the partition that stands at the gap go on behind it."""
    return f"farshore link resume --link {link_name} --gap {gap.topic}:{gap.partition}"


def next_command(link_name: str, gap: Gap) -> str:
    """What to try first: records that may be the link's own are adopted, which refuses where they are not."""
    command = resume_command(link_name, gap)
    return f"{command} --adopt" if gap.kind is GapKind.TARGET_NOT_EMPTY else command


def _of_worker(link: Link, entries: StateEntries, heartbeat: Heartbeat) -> Iterable[LinkFinding]:
    run, owner = entries.run, entries.owner
    start = start_step(link.name)
    if run is not None and run.state is RunState.PROMOTED:
        return
    if run is not None and run.state is RunState.PAUSED:
        resume = f"farshore link resume --link {link.name}"
        yield LinkFinding(
            LinkFindingKind.PAUSED, None, None, f"paused since {told_time(run.at_ms)}: its lag grows", resume
        )
        return
    if owner is None:
        yield LinkFinding(LinkFindingKind.NEVER_RAN, None, None, "no mirror ever ran", start)
    elif heartbeat.pulse is Pulse.AWAITED:
        wait = f"farshore status --link {link.name} --until healthy; start no other mirror before that gave up"
        yield LinkFinding(LinkFindingKind.AWAITED, None, None, heartbeat.detail, wait)
    elif heartbeat.pulse is Pulse.SILENT:
        yield LinkFinding(LinkFindingKind.SILENT, None, None, heartbeat.detail, start)
    elif heartbeat.pulse is Pulse.UNKNOWN:
        watch = f"set the clocks right; farshore status --link {link.name} --watch sees whether it moves"
        yield LinkFinding(LinkFindingKind.CLOCKS_DIFFER, None, None, heartbeat.detail, watch)
    elif (owner := entries.most_restarted() or owner).restarts >= RESTARTS_IN_A_LOOP:
        text = f"{owner.restarts} restarts in a row, the last for {owner.restart_reason}"
        yield LinkFinding(LinkFindingKind.RESTARTING, None, None, text, "see event=restarting in the mirror's output")


def _state_lost(link: Link, source_answers: bool) -> LinkFinding:
    target = link.target.name
    text = f"a mirror wrote to {target}, and the link's state there ({link.state_topic}) is gone, and the offset map "
    text += "with it: what of the source is there is not known"
    step = f"farshore mirror run --link {link.name}: it asks of each partition, and compares both logs"
    if not source_answers:
        step = f"{link.source.name} again, if it can be; else farshore failover --link {link.name} --dry-run"
    return LinkFinding(LinkFindingKind.STATE_LOST, None, None, text, step)


def _of_pauses(link: Link, entries: StateEntries) -> Iterable[LinkFinding]:
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        return
    for topic in entries.paused_topics():
        pause = entries.paused[topic]
        text = (
            f"paused since {told_time(pause.at_ms)} by operation {pause.operation_id}: nothing more of it is mirrored"
        )
        step = f"farshore topic resume --link {link.name} --topic {shlex.quote(topic)}"
        yield LinkFinding(LinkFindingKind.TOPIC_PAUSED, topic, None, text, step)


def _of_groups(link: Link, entries: StateEntries) -> Iterable[LinkFinding]:
    looked_at_ms, owner = entries.groups.looked_at_ms, entries.owners().get(0, entries.owner)  # the groups' own unit
    if entries.run is not None and entries.run.state is not RunState.RUNNING:
        return
    if link.groups and owner is not None:
        age_ms = None if looked_at_ms is None else owner.at_ms - looked_at_ms
        # Both by the worker's clock, unless it was another worker that looked, whose clock was ahead.
        if age_ms is None or not -OLDEST_ALIVE_MS <= age_ms <= GROUPS_NOT_SEEN_AFTER_MS:
            since = "yet" if age_ms is None else f"for {human_seconds(age_ms / 1000)}"
            if age_ms is not None and age_ms < 0:
                since = f"since {owner.worker} took over from one whose clock was ahead"
            step = "if it stays so, see event=group_failed in the mirror's output"
            yield LinkFinding(LinkFindingKind.GROUPS_NOT_SEEN, None, None, f"no group was looked at {since}", step)
    for group, entry in entries.groups.waiting().items():
        if entry.failure:
            step = f"farshore group describe --link {link.name} --group {group}"
            yield LinkFinding(LinkFindingKind.GROUP_FAILED, None, None, f"group {group}: {entry.failure}", step)


def _of_fence(link: Link, look: LinkLook) -> Iterable[LinkFinding]:
    if isinstance(look.unmarked, ClientError):
        text = f"whether a fence of the link waits for a partition is not known: {look.unmarked}"
        yield LinkFinding(LinkFindingKind.TROUBLE, None, None, text, look.unmarked.hint or "")
        return
    for where, why in sorted(look.unmarked.items()):
        text = f"no session and no failover can begin before its marker is written: {why}"
        yield LinkFinding(LinkFindingKind.FENCE_WAITS, *where, text, fence_hint(link, [where]))


def _stopped(link: Link, gap: Gap) -> LinkFinding:
    text = f"{gap.kind.value}: {gap.detail}" if gap.detail else gap.kind.value
    command = next_command(link.name, gap)
    return LinkFinding(LinkFindingKind.PARTITION_STOPPED, gap.topic, gap.partition, text, command)


def _of_holds(holds: Sequence[Hold]) -> Iterable[LinkFinding]:
    """Each, but those that nobody looked at yet in one: a worker that begins has all of them before it."""
    waiting = [hold for hold in holds if hold.reason is HoldReason.NOT_TAKEN_IN]
    yield from (_held(hold) for hold in holds if len(waiting) < 2 or hold.reason is not HoldReason.NOT_TAKEN_IN)
    if len(waiting) > 1:
        text = f"{HoldReason.NOT_TAKEN_IN.value}: {len(waiting)} partitions, the first {waiting[0].topic}-"
        text += f"{waiting[0].partition}: the mirror has not looked at them yet"
        yield LinkFinding(LinkFindingKind.PARTITION_HELD, None, None, text, "")


def _held(hold: Hold) -> LinkFinding:
    text = f"{hold.reason.value}: {hold.detail}" if hold.detail else hold.reason.value
    if hold.reason in _LEADERLESS:  # nothing is tried before that, so the time that was written may be long over
        text += " (goes on when it has one)"
    elif hold.next_try_at_ms >= 0:
        at = datetime.fromtimestamp(hold.next_try_at_ms / 1000, UTC).isoformat(timespec="seconds")
        text += f" (next try: {at}, or when a leader changes)"
    return LinkFinding(
        LinkFindingKind.PARTITION_HELD, hold.topic, hold.partition, text, _HOLD_STEPS.get(hold.reason, "")
    )


def _transaction(link: Link, seen: HoldingTransaction) -> LinkFinding:
    count = f"{seen.offsets} offset{'' if seen.offsets == 1 else 's'}"
    text = f"{count} from {seen.first_offset} on are not mirrored before a transaction ends that is open at "
    text += f"{link.source.name} {_open_since(seen)}"
    if seen.fate is TransactionFate.OPEN:
        text += f": {seen.transactional_id}, {seen.said} at its coordinator"
    elif seen.fate is TransactionFate.HANGING:
        text += (
            f": it hangs, {seen.transactional_id} is {seen.said} at its coordinator, and the log has no marker of it"
        )
    elif seen.fate is TransactionFate.UNNAMED:
        text += ": no coordinator names it, so it hangs, or farshore may not see whose it is"
    else:
        text += f": whose it is could not be asked ({seen.said})"
    where = TopicPartition(seen.topic, seen.partition)
    step = end_by_hand(link.source.bootstrap_servers, where, seen.first_offset)
    if seen.fate is not TransactionFate.HANGING:
        step = f"see why its application does not end it, or end it: {step}"
    return LinkFinding(LinkFindingKind.TRANSACTION_OPEN, *where, text, step)


def _open_since(seen: HoldingTransaction) -> str:
    if seen.since_ms is None:
        return "since nobody knows when"
    by = "its coordinator's clock" if seen.fate is TransactionFate.OPEN else "its records' own time"
    return f"since {told_time(seen.since_ms)} by {by}"


def _left_to_silent(link: Link, name: str, site: str) -> LinkFinding:
    text = f"records of {site} are left to link {name}, which brings them directly, and gives no sign of life"
    step = f"run link {name}: it goes on where it ended; or, if it is gone for good, delete {STATE_PREFIX}{name}"
    step += f" at {link.target.name}: this link then stops where it left records out, and brings such ones itself"
    return LinkFinding(LinkFindingKind.LEFT_TO_SILENT, None, None, text, step)


def _place(where: Gap | PartitionLag) -> tuple[str, int]:
    return where.topic, where.partition
