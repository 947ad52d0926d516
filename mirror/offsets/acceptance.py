"""Gaps that an operator accepts while the link runs: asked for in the link's state, carried out by its owner.

A command that fenced the link for it would end the session of all other partitions. So it writes no more than this
entry, as nobody's producer: it names one gap as it stood, and counts while the partition stands at that very one. The
owner writes what becomes of the gap itself, and takes the entry back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.wire.batch import BatchHeader
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import Gap, GapStatus, VoidEntry, decode_entry, decode_key, encode_key, encode_value

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


def with_accepted(gaps: Mapping[GapKey, Gap], acceptances: Iterable[Acceptance]) -> dict[GapKey, Gap]:
    """The ledger, as if its owner had seen these already. Pure."""
    found = dict(gaps)
    for acceptance in acceptances:
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


class AcceptanceReader:
    """What was accepted since the owner has read its state up to `read_to`; nothing is read while no gap is open."""

    def __init__(self, link: Link, producer_id: int, read_to: int) -> None:
        self._where = TopicPartition(link.state_topic, link.state_partition)
        self._producer_id = producer_id
        self._read_to = read_to

    async def read(self, target: Cluster, has_gaps: Callable[[], bool]) -> list[Acceptance]:
        """Those that came since the last call, or since there are gaps. Raises ClientError."""
        end = (await log_end_offsets(target, [self._where]))[self._where]
        found: dict[GapKey, Acceptance] = {}

        def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
            if header.is_control or header.producer_id == self._producer_id:
                return
            for record in decode_records(batch):
                with suppress(ValueError, KeyError, TypeError, IndexError):  # whoever begins with the state says so
                    entry = decode_entry(decode_key(record.key or b""), record.value or b"")
                    if isinstance(entry, Acceptance):
                        found[gap_key(entry)] = entry

        if has_gaps() and self._read_to < end:  # a gap that comes after this is written behind `end`
            await scan_batches(target, {self._where: OffsetSpan(self._read_to, end)}, visit)
        self._read_to = end
        return list(found.values())
