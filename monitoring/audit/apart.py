"""The parts of an audit that run apart: one site's digests near its cluster, and the comparison of both, anywhere.

What travels for an equal comparison are the plan and the digests. Both sites are reached only where ranges differ, for
the records of these, and for compacted topics, which no digest of a range can judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from monitoring.audit import kept
from monitoring.audit.digest import DIGESTED, KEYS
from monitoring.audit.job import AuditJob, Found, conclude, read_both, scope_of, spark_errors
from monitoring.audit.manifest import (
    DigestedPartition,
    Manifests,
    SiteManifest,
    Sums,
    is_held,
    require_complete,
    require_of_plan,
    settled,
)
from monitoring.audit.model import ComparablePartition, FrozenLink, FrozenPartition, Place, Side
from monitoring.audit.outcome import Apart, AuditResult
from monitoring.audit.phases import Sites, compare_sites, digest_site, open_ranges, suspects_of
from monitoring.audit.plans import KeptPlan
from monitoring.audit.ranges import plan as plan_of
from monitoring.audit.rounds import LogStarts, Round, read_until_settled
from monitoring.audit.rows import frame_of
from monitoring.audit.tables import Tables, write_found


@dataclass(frozen=True, slots=True)
class ApartJob:
    """`job.frozen` is the plan's link with the sites as they are reached from here; `base` has the digests.

    `meet` raises AuditError where the cluster that is reached is not the plan's.
    """

    job: AuditJob
    kept: KeptPlan
    base: str
    meet: Callable[[Sequence[Side]], None]


def digest_apart(spark: Any, apart: ApartJob, side: Side) -> SiteManifest:
    """Digest one site by the plan, and leave the digests with their manifest. The other site is not asked anything.

    Raises NothingToCompare, SparkFailed, and what `meet` and `job.look` raise.
    """
    job = apart.job
    frozen, chosen = scope_of(job)
    site = frozen.source if side is Side.SOURCE else frozen.target
    apart.meet([side])
    kept.drop_manifest(spark, apart.base, job.run_id, site.name)
    seen: dict[tuple[Side, str, int], int] = {}

    def read(partitions: Sequence[ComparablePartition]) -> Any:
        job.report(f"digesting {side.value} {site.name}")
        with spark_errors(frozen):
            return digest_site(Sites(spark, frozen, partitions, chosen), side)

    def look(partitions: Sequence[ComparablePartition]) -> LogStarts:
        """What expired is told to who compares; a partition that cannot be asked is left out here."""
        seen.update(job.look(partitions))
        return _as_frozen(partitions, seen, side)

    plain = tuple(item for item in frozen.partitions if not item.compacted)
    after, rounds = read_until_settled(replace(frozen, partitions=plain), read, look, job.report)
    job.report("writing the digests")
    with spark_errors(frozen):
        empty = frame_of(spark, (), kept.DIGESTS_SCHEMA)
        frames = [_of(done.found, done.partitions) for done in rounds]
        digests = frames[0] if frames else empty
        for frame in frames[1:]:
            digests = digests.unionByName(frame)
        kept.write_digests(digests, apart.base, job.run_id, site.name)
        sums = kept.sums_of(digests)
        partitions = _told(frozen, after.partitions, seen, side, sums)
        manifest = SiteManifest(job.run_id, apart.kept.plan_id, site.name, side, job.clock_ms(), partitions)
        kept.write_manifest(spark, manifest, apart.base)
    return manifest


def compare_apart(spark: Any, apart: ApartJob, directory: Path) -> AuditResult:
    """Join both sites' digests, and open the ranges that differ; tables go to `directory`.

    Raises DigestsUnusable for digests that are missing, incomplete or not of this plan, NothingToCompare, SparkFailed,
    and what `meet` and `job.look` raise.
    """
    job = apart.job
    before, chosen = scope_of(job)
    names = {Side.SOURCE: before.source.name, Side.TARGET: before.target.name}
    job.report("reading both sites' digests")
    manifests, digests = _read_kept(spark, apart, names)
    frozen = settled(before, manifests)
    partitions = [item for item in plan_of(frozen)[0] if not item.compacted]
    with spark_errors(frozen):
        ranges = compare_sites({side: held(spark, frozen, digests[side]) for side in Side})
        suspects = suspects_of(ranges)
        if suspects:
            apart.meet(tuple(Side))
        job.report(f"opening {len(suspects)} differing ranges" if suspects else "no range differs")
        opened = open_ranges(Sites(spark, frozen, partitions, is_searched=False), suspects)
        if suspects:
            # What expired before it was opened must not look like a loss.
            frozen = settled(before, manifests, job.look([item for item in partitions if _is_in(item, suspects)]))
            ranges, opened = held(spark, frozen, ranges), held(spark, frozen, opened)
    by_place = {(item.topic, item.partition): item for item in frozen.partitions}
    kept_suspects = [row for row in suspects if is_held(by_place, (row["topic"], row["partition"]), row["range_start"])]
    after = {(item.topic, item.partition): item for item in plan_of(frozen)[0] if not item.compacted}
    rounds = [Round(after, Found(digests, ranges, kept_suspects, opened))]
    frozen, compacted = _with_compacted(spark, apart, frozen)
    sizes = {name: kept.written_bytes(spark, apart.base, job.run_id, name) for name in names.values()}

    def store(tables: Tables) -> int:
        write_found(tables, directory, job.run_id)
        return sum(sizes.values())

    result = conclude(spark, replace(job, frozen=frozen), [*rounds, *compacted], chosen, store)
    travelled = Apart(
        apart.kept.plan_id,
        apart.kept.size_bytes,
        sizes,
        sum(row[f"{side}_records"] for row in suspects for side in Side),
        sum(row[f"{side}_bytes"] for row in suspects for side in Side),
        sum(
            part.source_records + part.target_records
            for part, item in zip(result.partitions, frozen.partitions, strict=True)
            if item.compacted
        ),
    )
    return replace(result, apart=travelled)


def held(spark: Any, frozen: FrozenLink, rows: Any) -> Any:
    """Of digests, ranges or records that differ those of ranges that are relied on."""
    froms = [
        {"topic": item.topic, "partition": item.partition, "held_from": item.read_from or 0}
        for item in frozen.partitions
        if item.left_out is None
    ]
    known = frame_of(spark, froms, "topic string, partition int, held_from bigint")
    joined = rows.join(F.broadcast(known), ["topic", "partition"])
    return joined.where(F.col("range_start") >= F.col("held_from")).select(*rows.columns)


def _read_kept(spark: Any, apart: ApartJob, names: Mapping[Side, str]) -> tuple[Manifests, Mapping[Side, Any]]:
    manifests, digests = {}, {}
    for side, name in names.items():
        manifests[side] = kept.read_manifest(spark, apart.base, apart.job.run_id, name)
        require_of_plan(manifests[side], apart.kept, name, side)
        digests[side] = kept.read_digests(spark, apart.base, apart.job.run_id, name)
        require_complete(manifests[side], kept.sums_of(digests[side]))
    return manifests, digests


def _with_compacted(spark: Any, apart: ApartJob, frozen: FrozenLink) -> tuple[FrozenLink, list[Round[Found]]]:
    """Compacted partitions as `audit run` compares them: read from both sites now."""
    job = apart.job
    compacted = [item for item in frozen.partitions if item.compacted]
    if not any(item.left_out is None for item in compacted):
        return frozen, []
    apart.meet(tuple(Side))

    def read(partitions: Sequence[ComparablePartition]) -> Found:
        with spark_errors(frozen):
            return read_both(Sites(spark, frozen, partitions), job.report)

    after, rounds = read_until_settled(replace(frozen, partitions=tuple(compacted)), read, job.look, job.report)
    anew = {(item.topic, item.partition): item for item in after.partitions}
    partitions = tuple(anew.get((item.topic, item.partition), item) for item in frozen.partitions)
    return replace(frozen, partitions=partitions), rounds


def _as_frozen(
    partitions: Sequence[ComparablePartition], seen: LogStarts, side: Side
) -> dict[tuple[Side, str, int], int]:
    """Nothing has moved, where it could be asked; of the other site nothing is asked."""
    starts = {}
    for item in partitions:
        for at, name, span in (
            (Side.SOURCE, item.topic, item.source),
            (Side.TARGET, item.target_topic, item.target),
        ):
            if at is not side or (at, name, item.partition) in seen:
                starts[at, name, item.partition] = span.start
    return starts


def _told(
    frozen: FrozenLink,
    after: Sequence[FrozenPartition],
    seen: LogStarts,
    side: Side,
    sums: Mapping[Place, Sums],
) -> tuple[DigestedPartition, ...]:
    """Of each partition of the plan that was to be read what became of it."""
    due = {(item.topic, item.partition) for item in plan_of(frozen)[0]}
    told = []
    for item in after:
        place = (item.topic, item.partition)
        name = item.topic if side is Side.SOURCE else item.target_topic
        if place in due:
            told.append(
                DigestedPartition(
                    *place, seen.get((side, name, item.partition)), item.left_out, sums.get(place, Sums())
                )
            )
    return tuple(told)


def _of(digests: Any, partitions: Mapping[Place, ComparablePartition]) -> Any:
    places = [f"{topic}/{partition}" for topic, partition in partitions]
    return digests.where(F.concat_ws("/", "topic", "partition").isin(places)).select(*KEYS, *DIGESTED)


def _is_in(item: ComparablePartition, suspects: Sequence[Any]) -> bool:
    return any((row["topic"], row["partition"]) == (item.topic, item.partition) for row in suspects)
