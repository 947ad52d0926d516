"""Gaps that an operator accepts while the link runs: asked for in the link's state, carried out by its owner.

A command that fenced the link for it would end the session of all other partitions. So it writes no more than this
entry, as nobody's producer: it names one gap as it stood, and counts while the partition stands at that very one. The
owner writes what becomes of the gap itself, and takes the entry back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import NO_OFFSET, TopicPartition
from mirror.link import Link
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import Gap, GapKind, GapStatus, VoidEntry, encode_key, encode_value

GapKey: TypeAlias = tuple[str, int, int, str]
"""(topic, partition, first source offset, kind)"""


def gap_key(entry: Gap | Acceptance) -> GapKey:
    return entry.topic, entry.partition, entry.source_from, entry.kind


def accepted(gap: Gap | None, acceptance: Acceptance) -> Gap | None:
    """The gap, accepted; None where the partition does not stand at it (any more). Pure."""
    stands = gap is not None and gap.status is GapStatus.STOPPED and gap_key(gap) == gap_key(acceptance)
    if gap is None or not stands or gap.at_ms != acceptance.stopped_at_ms:
        return None
    return replace(gap, status=GapStatus.ACCEPTED, source_to=acceptance.source_to)


def anew(asked_at_ms: int, acceptance: Acceptance) -> Gap | None:
    """The gap that an operator makes who has a partition mirrored anew; None where it is another kind that he accepts,
    or where that was asked for, last at `asked_at_ms`, since he looked. Pure.
    """
    if acceptance.kind != GapKind.MIRRORED_ANEW or asked_at_ms > acceptance.after_ms:
        return None
    return Gap(
        topic=acceptance.topic,
        partition=acceptance.partition,
        kind=GapKind.MIRRORED_ANEW,
        source_from=acceptance.source_from,
        source_to=acceptance.source_to,
        target_offset=NO_OFFSET,
        status=GapStatus.ACCEPTED,
        at_ms=acceptance.stopped_at_ms,
        detail=acceptance.operation_id,
    )


def anew_asked_at_ms(gaps: Iterable[Gap]) -> dict[tuple[str, int], int]:
    """When each partition was last asked to be mirrored anew. Pure."""
    found: dict[tuple[str, int], int] = {}
    for gap in gaps:
        if gap.kind is GapKind.MIRRORED_ANEW:
            where = gap.topic, gap.partition
            found[where] = max(found.get(where, NEVER_ASKED), gap.at_ms)
    return found


def with_accepted(gaps: Mapping[GapKey, Gap], acceptances: Iterable[Acceptance]) -> dict[GapKey, Gap]:
    """The ledger, as if its owner had seen these already. Pure."""
    found = dict(gaps)
    for acceptance in acceptances:
        if acceptance.kind == GapKind.MIRRORED_ANEW:
            where = acceptance.topic, acceptance.partition
            gap = anew(anew_asked_at_ms(found.values()).get(where, NEVER_ASKED), acceptance)
        else:
            gap = accepted(found.get(gap_key(acceptance)), acceptance)
        if gap is not None:
            found[gap_key(acceptance)] = gap
    return found


def decisions(
    gaps: Mapping[GapKey, Gap], acceptances: Mapping[GapKey, Acceptance], where: tuple[str, int]
) -> list[Gap | VoidEntry]:
    """What the link's owner writes that has seen what was accepted of a partition; `gaps` are `with_accepted`. Pure."""
    seen: list[Gap | VoidEntry] = []
    for key, acceptance in acceptances.items():
        if key[:2] == where:
            gap = gaps.get(key)
            seen += [gap] if gap is not None and gap.status is GapStatus.ACCEPTED else []
            seen.append(VoidEntry(acceptance))
    return seen


async def ask_to_accept(link: Link, target: Cluster, acceptances: Sequence[Acceptance]) -> None:
    """Write them into the link's state, each into the part of its unit. Raises ClientError."""
    now_ms = target.clock.now_ms()
    by_unit: dict[int, list[Acceptance]] = {}
    for one in acceptances:
        by_unit.setdefault(link.unit_of(one.topic, one.partition), []).append(one)
    for unit, some in sorted(by_unit.items()):
        records = [Record(at, now_ms, encode_key(one), encode_value(one)) for at, one in enumerate(some)]
        await append(target, TopicPartition(link.state_topic, unit), encode_batch(records))
