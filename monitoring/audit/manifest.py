"""What a site's own job says of the digests that it leaves, and what may be compared of two such jobs: pure functions.

A job reads what the plan has of its site, then asks where the logs begin now: records may have expired meanwhile, and
a digest of half a range must not look like a loss. Who compares leaves out the ranges that had begun to go at either
site, and compares those that were whole at both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from monitoring import limits
from monitoring.audit.model import ComparablePartition, FrozenLink, FrozenPartition, Place, Side, Span
from monitoring.audit.plans import KeptPlan
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason
from monitoring.audit.rounds import LogStarts
from monitoring.errors import DigestsUnusable

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Sums:
    """Over the digests of one partition at one site: how many ranges, records and bytes, and the xor of hashes of
    all rows."""

    ranges: int = 0
    records: int = 0
    bytes: int = 0
    rows_hash: int = 0


@dataclass(frozen=True, slots=True)
class DigestedPartition:
    """`log_start` is where the log began after it was read. `left_out`: nothing of it was digested, and why."""

    topic: str
    partition: int
    log_start: int | None
    left_out: Reason | None
    sums: Sums


@dataclass(frozen=True, slots=True)
class SiteManifest:
    """Of one site's digests in one run; it is written when all of them are."""

    run_id: str
    plan_id: str
    site: str
    side: Side
    finished_at_ms: int
    partitions: tuple[DigestedPartition, ...]
    version: int = VERSION

    def by_place(self) -> dict[Place, DigestedPartition]:
        return {(item.topic, item.partition): item for item in self.partitions}


Manifests = Mapping[Side, SiteManifest]
MANIFEST: Final = TypeAdapter(SiteManifest)


def parsed(texts: Sequence[str], site: str, where: str) -> SiteManifest:
    """The manifest of a site, of which there has to be one. Raises DigestsUnusable."""
    if len(texts) != 1:
        raise DigestsUnusable(
            f"{where} has {len(texts)} manifests of site {site}, not one", _hint_to_digest(site, "RUN")
        )
    try:
        found = MANIFEST.validate_json(texts[0])
        if found.version != VERSION:
            raise ValueError(f"its version is {found.version}, this program reads {VERSION}")
    except (ValidationError, ValueError) as error:
        raise DigestsUnusable(
            f"what {where} has of site {site} is no manifest: {str(error).splitlines()[0]}",
            _hint_to_digest(site, "RUN"),
        ) from error
    return found


def require_of_plan(manifest: SiteManifest, kept: KeptPlan, site: str, side: Side) -> None:
    """Raise DigestsUnusable for digests of another run, site or plan, or without a partition of the plan."""
    hint = _hint_to_digest(site, kept.plan.run_id)
    if manifest.run_id != kept.plan.run_id:
        raise DigestsUnusable(f"the digests of site {site} are of run {manifest.run_id}, not {kept.plan.run_id}", hint)
    if (manifest.site, manifest.side) != (site, side):
        raise DigestsUnusable(
            f"the digests of {side.value} {site} are those of {manifest.side.value} {manifest.site}", hint
        )
    if manifest.plan_id != kept.plan_id:
        raise DigestsUnusable(
            f"the digests of site {site} were made by another plan of run {kept.plan.run_id}: "
            f"{manifest.plan_id}, and this one is {kept.plan_id}",
            hint,
        )
    known = manifest.by_place()
    for item in kept.plan.frozen.partitions:
        place = (item.topic, item.partition)
        if place not in known and not item.compacted and comparable(item)[0] is not None:
            raise DigestsUnusable(f"the digests of site {site} do not have {place[0]}:{place[1]}", hint)


def require_complete(manifest: SiteManifest, found: Mapping[Place, Sums]) -> None:
    """Raise DigestsUnusable where what is read of the digests is not what was written."""
    written = {place: item.sums for place, item in manifest.by_place().items() if item.sums.ranges}
    for place in sorted(written.keys() | found.keys()):
        if (due := written.get(place, Sums())) != (here := found.get(place, Sums())):
            raise DigestsUnusable(
                f"the digests of site {manifest.site} are not as they were written: of {place[0]}:{place[1]} there are "
                f"{here.ranges} ranges of {here.records} records here, and {due.ranges} of {due.records} were written",
                f"copy all of them again, or {_hint_to_digest(manifest.site, manifest.run_id)}",
            )


def settled(frozen: FrozenLink, manifests: Manifests, later: LogStarts | None = None) -> FrozenLink:
    """The link as both sites' digests hold for it; `later` is where logs began when ranges had been opened.

    Of compacted partitions nothing is digested apart: they are as they were.
    """
    known = {side: manifest.by_place() for side, manifest in manifests.items()}
    partitions = []
    for item in frozen.partitions:
        whole = comparable(item)[0]
        if whole is None or item.compacted:
            partitions.append(item)
            continue
        found = {side: known[side][item.topic, item.partition] for side in Side}
        reasons = [one.left_out for one in found.values() if one.left_out is not None]
        if reasons:
            partitions.append(replace(item, left_out=reasons[0]))
        else:
            partitions.append(_held(item, whole, _starts(item, whole, found, later or {})))
    return replace(frozen, partitions=tuple(partitions))


def is_held(frozen: Mapping[Place, FrozenPartition], place: Place, range_start: int) -> bool:
    """Whether the digests of a range are relied on."""
    item = frozen[place]
    return item.left_out is None and (item.read_from is None or range_start >= item.read_from)


def _starts(
    item: FrozenPartition,
    whole: ComparablePartition,
    found: Mapping[Side, DigestedPartition],
    later: LogStarts,
) -> tuple[int, int]:
    """Where both logs begin, as far as what was to be read lies in them."""
    starts = []
    for side, name, span in (
        (Side.SOURCE, item.topic, whole.source),
        (Side.TARGET, item.target_topic, whole.target),
    ):
        told = (found[side].log_start, later.get((side, name, item.partition)))
        known = [start for start in told if start is not None]
        starts.append(max([span.start, *known]) if span.offsets else span.start)
    return starts[0], starts[1]


def _held(item: FrozenPartition, whole: ComparablePartition, starts: tuple[int, int]) -> FrozenPartition:
    if starts == (whole.source.start, whole.target.start):
        return item
    assert item.target is not None
    gone = replace(item, source=_from(item.source, starts[0]), target=_from(item.target, starts[1]))
    rest = comparable(gone)[0]
    if rest is None:
        return gone
    read_from = -(-rest.source.start // limits.AUDIT_RANGE_OFFSETS) * limits.AUDIT_RANGE_OFFSETS
    if read_from >= rest.source.end:
        # What the target has behind its last record is in the range that has begun to go.
        return replace(gone, left_out=Reason.EXPIRED_WHILE_READ)
    return replace(gone, read_from=read_from)


def _from(span: Span, start: int) -> Span:
    start = max(span.start, start)
    return Span(start, max(start, span.end))


def _hint_to_digest(site: str, run_id: str) -> str:
    return f"digest it, and bring all of it here: farshore audit digest --site {site} --run {run_id}"
