"""A run as a document, for -o json and to repeat it."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from broker.base.documents import iso_time, to_document
from broker.wire.vocabulary import NO_TIMESTAMP
from monitoring import limits
from monitoring.audit.groups import FrozenGroups, GroupOffset
from monitoring.audit.model import CONTENT_SEEDS, POSITION_SEED, FrozenPartition, FrozenSite, Kind, Span
from monitoring.audit.outcome import AuditResult, Coverage
from monitoring.audit.sample import CONFIDENCE_PERCENT, Sampled


def iso(at_ms: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds; outside of the years 1 to 9999 the number. None, and Kafka's -1, are None."""
    return None if at_ms is None or at_ms == NO_TIMESTAMP else iso_time(at_ms)


def as_document(result: AuditResult) -> dict[str, Any]:
    """One JSON document: snake_case, times in ISO 8601, spans as [start, end)."""
    frozen = result.frozen
    document = {
        "run_id": result.run_id,
        "link": frozen.link,
        "verdict": result.verdict.value,
        "frozen_at_ms": frozen.frozen_at_ms,
        "finished_at_ms": result.finished_at_ms,
        "range_offsets": limits.AUDIT_RANGE_OFFSETS,
        "source": _site(frozen.source),
        "target": _site(frozen.target),
        "source_records": result.source_records,
        "target_records": result.target_records,
        "records_unopened": result.records_unopened,
        "coverage": _coverage(result.coverage) | _coverage_of_groups(result.groups),
        "records_missing": result.records_missing,
        "records_surplus": result.records_surplus,
        "groups": None if result.groups is None else _groups(result.groups),
        "missing_rights": [_plain(item) for item in frozen.missing_rights],
        "proofs_lost": [_plain(item) for item in frozen.lost],
        "partitions": [_plain(item) for item in result.partitions],
        "ranges": [_plain(item) for item in result.ranges],
        "topics_without_times": list(result.topics_without_times),
        "ranges_found": result.ranges_found,
        "differences_found": {kind.value: result.found.get(kind, 0) for kind in Kind},
        "differences": [_plain(item) for item in result.differences],
        "not_compared": [{**_plain(item), "explanation": item.reason.explanation} for item in result.not_compared],
        "frozen": [_frozen(item) for item in frozen.partitions],
        "seeds": {"content": list(CONTENT_SEEDS), "position": POSITION_SEED},
        "digest_bytes": result.digest_bytes,
        "digest_bytes_per_audited_byte": result.digest_bytes / result.audited_bytes if result.audited_bytes else None,
        "sample": None if result.sampled is None else _sampled(result.sampled),
        "apart": None if result.apart is None else _plain(result.apart),
        "versions": result.versions,
    }
    return cast("dict[str, Any]", to_document(document))


def _site(site: FrozenSite) -> dict[str, Any]:
    """Of its security the protocol: the rest is nobody's who reads a report."""
    fields = {field.name: getattr(site, field.name) for field in dataclasses.fields(site) if field.name != "security"}
    return fields | {"protocol": site.security.protocol}


def _plain(value: Any) -> dict[str, Any]:
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: _value(item) for name, item in fields.items()}


def _value(item: Any) -> Any:
    if isinstance(item, Span):
        return [item.start, item.end]
    if isinstance(item, tuple):
        return [_plain(part) for part in item]
    return _coverage(item) if isinstance(item, Coverage) else item


def _coverage(found: Coverage) -> dict[str, Any]:
    """Records of both sites that are proved, of them those that earlier runs proved, and how many may not be."""
    return {
        "percent": found.percent,
        "records": found.records,
        "records_earlier": found.records_earlier,
        "oldest_at_ms": found.oldest_ms,
        "records_left_out_at_most": found.offsets_left_out,
    }


def _coverage_of_groups(found: FrozenGroups | None) -> dict[str, Any]:
    return {
        "group_offsets": 0 if found is None else found.due,
        "group_offsets_compared": 0 if found is None else found.compared,
    }


def _sampled(found: Sampled) -> dict[str, Any]:
    """`ranges_differing_at_most` of all ranges, with the confidence; none where one was found to differ."""
    return _plain(found) | {"confidence_percent": CONFIDENCE_PERCENT, "ranges_differing_at_most": found.at_most}


def _groups(found: FrozenGroups) -> dict[str, Any]:
    """Sums, and what is not the same at both sites: the first AUDIT_GROUPS_LISTED, those that differ before others."""
    told = found.told()
    return {
        "at_ms": found.at_ms,
        "link_looked_at_ms": found.looked_at_ms,
        "is_pass_seen": found.is_pass_seen,
        "groups": found.groups,
        "groups_not_selected": found.not_selected,
        "not_listed": found.not_listed,
        "offsets": found.due,
        "offsets_compared": found.compared,
        "offsets_compared_by_content": found.by_content,
        "offsets_differing": found.findings,
        "offsets_in_flight": found.in_flight,
        "offsets_told": len(told),
        "told": [group_row(item) for item in told[: limits.AUDIT_GROUPS_LISTED]],
    }


def group_row(item: GroupOffset) -> dict[str, Any]:
    """One partition of a group, as the document has it."""
    explanation = None if item.reason is None else item.reason.explanation
    return {**_plain(item), "is_finding": item.is_finding, "explanation": explanation}


def _frozen(item: FrozenPartition) -> dict[str, Any]:
    return {
        "topic": item.topic,
        "partition": item.partition,
        "target_topic": item.target_topic,
        "source": [item.source.start, item.source.end],
        "target": None if item.target is None else [item.target.start, item.target.end],
        "mirrored_end": None if item.mirrored_end is None else list(item.mirrored_end),
        "intervals": len(item.steps),
        "timestamps_comparable": item.timestamps_comparable,
    }
