"""The two phases, and what follows where they find something.

Phase one digests a site, and needs nothing of the other one but the offset map. Phase two joins both sites' digests,
and reads no record. Only ranges whose digests differ are opened: both sites' records are read there a second time, and
those that differ are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit import diff, digest
from monitoring.audit.model import AuditVerdict, ComparablePartition, FrozenLink, FrozenSite, Kind, Side, Span
from monitoring.audit.reader import Spans, read_records, spans_of
from monitoring.audit.rows import frame_of
from monitoring.audit.sample import Chosen, spans_of_ranges


@dataclass(frozen=True, slots=True)
class Sites:
    """The link as it is frozen, and what of it is compared now; `chosen`: these ranges alone, for a sample.

    `is_searched`: for a record that is one too many the whole source is looked through, not the opened ranges alone.
    `may_stay_closed`: batches prove what they can without being opened.
    """

    spark: Any
    frozen: FrozenLink
    partitions: Sequence[ComparablePartition]
    chosen: Chosen | None = None
    is_searched: bool = True
    may_stay_closed: bool = False

    def site(self, side: Side) -> FrozenSite:
        return self.frozen.source if side is Side.SOURCE else self.frozen.target

    def records(self, side: Side, spans: Spans) -> Any:
        """One site's records, named as at the source, aligned by the map, in ranges, with hashes.

        `spans` are by the names that the topics have at the site.
        """
        untimed = sorted({item.topic for item in self.partitions if not item.timestamps_comparable})
        if side is Side.SOURCE:
            names = {item.topic: item.topic for item in self.partitions}
            align = digest.align_source
        else:
            names = {item.target_topic: item.topic for item in self.partitions}
            align = digest.align_target
        read = read_records(self.spark, self.site(side), spans, names)
        return digest.with_hashes(align(read, self.partitions), untimed)


def digest_site(sites: Sites, side: Side) -> Any:
    """Phase one at one site: a DataFrame of digests, one row for each range."""
    # Not a cache: what an executor loses must fail, and not be read a second time from logs that changed.
    if sites.chosen is None:
        return digest.digest(sites.records(side, spans_of(tuple(sites.partitions), side))).localCheckpoint()
    wanted = _keys(sites.spark, ((*place, start) for place, starts in sites.chosen.items() for start in starts))
    spans = {
        (item.topic if side is Side.SOURCE else item.target_topic, item.partition): found
        for item in sites.partitions
        if (found := spans_of_ranges(item, sites.chosen.get((item.topic, item.partition), ()), side))
    }
    # No range lies in two readings: each is digested where it is read.
    readings = diff.readings_of(spans, limits.AUDIT_SPANS_SAMPLED) or [{}]
    parts = []
    for first in range(0, len(readings), limits.AUDIT_READINGS_AT_ONCE):
        together = readings[first : first + limits.AUDIT_READINGS_AT_ONCE]
        records = diff.union([sites.records(side, reading) for reading in together])
        chosen = records.join(F.broadcast(wanted), list(digest.KEYS), "left_semi")
        parts.append(digest.digest(chosen).localCheckpoint())
    return diff.union(parts)


def _keys(spark: Any, ranges: Iterable[tuple[str, int, int]]) -> Any:
    rows = (dict(zip(digest.KEYS, found, strict=True)) for found in ranges)
    return frame_of(spark, rows, "topic string, partition int, range_start bigint")


def compare_sites(digests: Mapping[Side, Any]) -> Any:
    """Phase two: a DataFrame of all ranges with their verdicts."""
    return digest.compare(digests[Side.SOURCE], digests[Side.TARGET]).localCheckpoint()


def suspects_of(ranges: Any) -> list[Any]:
    """All ranges that are not equal, the differing ones first."""
    rows = ranges.where(F.col("verdict") != AuditVerdict.EQUAL.value)
    return list(rows.orderBy("verdict", *digest.KEYS).collect())


def open_ranges(sites: Sites, suspects: Sequence[Any]) -> Any:
    """The records that differ, in these ranges: a DataFrame of DIFFERENCES_SCHEMA."""
    spark = sites.spark
    if not suspects:
        return frame_of(spark, (), diff.DIFFERENCES_SCHEMA)
    wanted = _keys(spark, ((row["topic"], row["partition"], row["range_start"]) for row in suspects))
    there = {(item.topic, item.partition): item.target_topic for item in sites.partitions}
    opened = {}
    for side in Side:
        readings = [
            {(place[0] if side is Side.SOURCE else there[place], place[1]): span for place, span in spans.items()}
            for spans in diff.spans_to_open(suspects, side)
        ]
        records = diff.union([sites.records(side, spans) for spans in readings or [{}]])
        opened[side] = records.join(F.broadcast(wanted), list(digest.KEYS), "left_semi")
    named = diff.name_differences(opened[Side.SOURCE], opened[Side.TARGET]).localCheckpoint()
    return diff.plain(_with_duplicates(sites, named) if sites.is_searched else named)


def _with_duplicates(sites: Sites, named: Any) -> Any:
    """What is too many may be there elsewhere, in a range that was not opened: the source is looked through for it."""
    extra = named.where(F.col("kind") == Kind.EXTRA.value).select("topic", "partition").distinct().collect()
    places = {(row["topic"], row["partition"]) for row in extra}
    spans = {
        (item.topic, item.partition): span
        for item in sites.partitions
        if (item.topic, item.partition) in places and (span := _with_what_is_proved(item)).offsets
    }
    return diff.tell_duplicates(named, sites.records(Side.SOURCE, spans)).localCheckpoint() if spans else named


def _with_what_is_proved(item: ComparablePartition) -> Span:
    return Span(min([item.source.start, *(part.source.start for part in item.proved)]), item.source.end)
