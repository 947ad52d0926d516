"""Naming the records that differ, in the windows that differ.

Spark finds the contents whose number of records is not the same at both sites (`uneven_contents`); which of them is
lost, doubled, changed or moved in time is decided here from a handful of rows, without Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.model import Kind, RecordDifference, Side, Span


@dataclass(frozen=True, slots=True)
class Instance:
    """One record of an uneven content. `source_offset` is where the map puts it; None: the map does not know it."""

    side: Side
    offset: int
    source_offset: int | None


@dataclass(frozen=True, slots=True)
class UnevenContent:
    """A content (key, value, headers, timestamp) that is there `source_records` times at one site, and
    `target_records` times at the other. `instances` are cut at a limit."""

    topic: str
    partition: int
    window_start: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    source_records: int
    target_records: int
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class _Single:
    """One record without its equal at the other site."""

    content: UnevenContent
    instance: Instance


def windows_to_read(rows: Iterable[Any], side: Side) -> dict[tuple[str, int], Span]:
    """The offsets between which the differing windows lie at one site: (topic, partition) -> span."""
    spans: dict[tuple[str, int], Span] = {}
    for row in rows:
        first, last = row[f"{side}_first_offset"], row[f"{side}_last_offset"]
        if first is None:
            continue
        place = (row["topic"], row["partition"])
        known = spans.get(place, Span(first, last + 1))
        spans[place] = Span(min(known.start, first), max(known.end, last + 1))
    return spans


def uneven_contents(source: Any, target: Any) -> Any:
    """DataFrame of contents with unequal numbers of records; both sides already cut to the differing windows."""
    columns = [
        "topic",
        "partition",
        "window_start",
        "hash_1",
        "hash_2",
        "timestamp_ms",
        "key",
        "value",
        "headers",
        "offset",
        "source_offset",
    ]
    both = source.select(*columns, F.lit(Side.SOURCE.value).alias("side")).unionByName(
        target.select(*columns, F.lit(Side.TARGET.value).alias("side"))
    )
    from_source = (F.col("side") == Side.SOURCE.value).cast("bigint")
    instances = F.sort_array(F.collect_list(F.struct("side", "offset", "source_offset")))
    grouped = both.groupBy("topic", "partition", "window_start", "hash_1", "hash_2").agg(
        F.sum(from_source).alias("source_records"),
        F.sum(1 - from_source).alias("target_records"),
        F.min("offset").alias("first_offset"),
        F.first("timestamp_ms").alias("timestamp_ms"),
        F.first("key").alias("key"),
        F.first("value").alias("value"),
        F.first("headers").alias("headers"),
        F.slice(instances, 1, 2 * limits.AUDIT_INSTANCES_LISTED).alias("instances"),
    )
    return grouped.where(F.col("source_records") != F.col("target_records"))


def content_of(row: Any) -> UnevenContent:
    """One row of `uneven_contents` as a value."""
    return UnevenContent(
        row["topic"],
        row["partition"],
        row["window_start"],
        row["timestamp_ms"],
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        tuple((h["key"], None if h["value"] is None else bytes(h["value"])) for h in row["headers"] or ()),
        row["source_records"],
        row["target_records"],
        tuple(Instance(Side(i["side"]), i["offset"], i["source_offset"]) for i in row["instances"]),
    )


def classify(contents: Iterable[UnevenContent]) -> list[RecordDifference]:
    """Every differing record with its kind, in the order of topic, partition and offset.

    A lost and a surplus record are one *changed* or *retimed* record when the map puts them at the same source
    offset; else when they share everything but the timestamp (retimed), or key and timestamp (changed). A surplus
    record whose content the source also has is *duplicated*, any other is *extra*.
    """
    missing: dict[tuple[str, int], list[_Single]] = defaultdict(list)
    surplus: dict[tuple[str, int], list[_Single]] = defaultdict(list)
    for content in contents:
        place = (content.topic, content.partition)
        missing[place].extend(_unmatched(content, Side.SOURCE))
        surplus[place].extend(_unmatched(content, Side.TARGET))
    found: list[RecordDifference] = []
    for place in sorted(missing.keys() | surplus.keys()):
        found.extend(_pair(missing[place], surplus[place]))
    found.sort(key=lambda d: (d.topic, d.partition, _order(d)))
    return found


def _order(difference: RecordDifference) -> int:
    offset = difference.source_offset if difference.source_offset is not None else difference.target_offset
    return offset if offset is not None else -1


def _unmatched(content: UnevenContent, side: Side) -> list[_Single]:
    """The instances of `side` that outnumber the other side's; those at a source offset of their own come first."""
    source = {i.offset: i for i in content.instances if i.side is Side.SOURCE}
    target = [i for i in content.instances if i.side is Side.TARGET]
    if side is Side.SOURCE:
        number = content.source_records - content.target_records
        taken = {i.source_offset for i in target}
        ranked = sorted(source.values(), key=lambda i: (i.offset in taken, i.offset))
    else:
        number = content.target_records - content.source_records
        seen: set[int] = set()
        matched: set[int] = set()
        for instance in sorted(target, key=lambda i: i.offset):
            at = instance.source_offset
            if at is not None and at in source and at not in seen:
                seen.add(at)
                matched.add(instance.offset)
        # The later of two equal records is the one too many.
        ranked = sorted(target, key=lambda i: (i.offset in matched, -i.offset))
    return [_Single(content, instance) for instance in ranked[: max(0, number)]]


def _pair(missing: Sequence[_Single], surplus: Sequence[_Single]) -> list[RecordDifference]:
    left, right = list(missing), list(surplus)
    found: list[RecordDifference] = []
    for identity in (_by_position, _by_all_but_time, _by_key_and_time):
        waiting: Mapping[Any, list[_Single]] = _index(left, identity)
        remaining: list[_Single] = []
        for single in right:
            candidates = waiting.get(identity(single))
            # A record that the source also has elsewhere is a duplicate of that, not a change of another one.
            if candidates and not (identity is not _by_position and single.content.source_records):
                lost = candidates.pop(0)
                left.remove(lost)
                found.append(_altered(lost, single))
            else:
                remaining.append(single)
        right = remaining
    found.extend(_difference(Kind.LOST, lost, None) for lost in left)
    for single in right:
        kind = Kind.DUPLICATED if single.content.source_records else Kind.EXTRA
        found.append(_difference(kind, None, single))
    return found


def _index(singles: Sequence[_Single], identity: Any) -> dict[Any, list[_Single]]:
    index: dict[Any, list[_Single]] = defaultdict(list)
    for single in singles:
        if identity(single) is not None:
            index[identity(single)].append(single)
    return index


def _by_position(single: _Single) -> int | None:
    return single.instance.source_offset


def _by_all_but_time(single: _Single) -> tuple[Any, ...]:
    content = single.content
    return (content.key, content.value, content.headers)


def _by_key_and_time(single: _Single) -> tuple[Any, ...]:
    return (single.content.key, single.content.timestamp_ms)


def _altered(lost: _Single, single: _Single) -> RecordDifference:
    same = _by_all_but_time(lost) == _by_all_but_time(single)
    return _difference(Kind.RETIMED if same else Kind.CHANGED, lost, single)


def _difference(kind: Kind, source: _Single | None, target: _Single | None) -> RecordDifference:
    either = source or target
    assert either is not None
    content = either.content
    return RecordDifference(
        content.topic,
        content.partition,
        kind,
        content.window_start,
        source.instance.offset if source else None,
        target.instance.offset if target else None,
        source.content.timestamp_ms if source else None,
        target.content.timestamp_ms if target else None,
        preview(content.key),
        preview(source.content.value) if source else None,
        preview(target.content.value) if target else None,
    )


def preview(data: bytes | None) -> str | None:
    """At most AUDIT_PREVIEW_BYTES of a key or value, as text where it is text, else in hexadecimal."""
    if data is None:
        return None
    cut = data[: limits.AUDIT_PREVIEW_BYTES]
    more = "…" if len(data) > len(cut) else ""
    try:
        # A multi-byte character that the cut went through is no reason to call the whole text binary.
        text = cut.decode("utf-8", errors="strict" if not more else "ignore")
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{more}"
    return text + more if text.isprintable() else f"0x{cut.hex()}{more}"
