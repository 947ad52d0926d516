"""What an audit says to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import click

from deploy.cli.terminal import ExitCode, emit
from monitoring.audit.missing_rights import HINT_TO_GIVE
from monitoring.audit.model import AuditVerdict
from monitoring.audit.run import AuditOutcome

Table: TypeAlias = tuple[str, list[dict[str, Any]], list[str] | None]
"""(title, rows, columns)"""


def rows_of(document: dict[str, Any]) -> list[Table]:
    """The tables of a run for a person: partitions, and what differs or was not compared."""
    columns = ["topic", "partition", "source_records", "coverage", "ranges_differing", "ranges_moved", "verdict"]
    took = f", in {document['seconds']:.0f} s" if "seconds" in document else ""
    tables: list[Table] = [
        (
            f"{document['link']}: {document['verdict'].replace('_', ' ')}, {coverage_text(document['coverage'])}{took}",
            [_texts(item) | {"coverage": f"{item['coverage']['percent']:g} %"} for item in document["partitions"]],
            columns if document["verdict"] in ("differs", "moved") else [*columns[:4], "verdict"],
        )
    ]
    if document["differences"]:
        tables.append(differences_table(document))
    if groups := document.get("groups"):
        tables.append(_groups(groups))
    if document["not_compared"]:
        rows = [_texts(item) for item in document["not_compared"]]
        tables.append(("not compared", rows, ["topic", "partition", "side", "span", "offsets", "reason"]))
    return tables


def differences_table(document: dict[str, Any]) -> Table:
    columns = ["topic", "partition", "kind", "source_offset", "target_offset", "source_timestamp"]
    rows = [_texts(item) for item in document["differences"]]
    found = {kind: number for kind, number in document["differences_found"].items() if number}
    title = ", ".join(f"{number:,} {kind}" for kind, number in found.items())
    if len(rows) < sum(found.values()):
        title += f" (the first {len(rows):,} of {sum(found.values()):,}; all are in the Parquet table diffs)"
    return title, rows, [*columns, "target_timestamp", "key"]


def repairs_table(document: dict[str, Any]) -> list[Table]:
    """What was repaired since: one table, where anything was."""
    rows = [
        repair
        | {"partitions": ", ".join(f"{one['topic']}:{one['partition']}" for one in repair["partitions"])}
        | {"verdict": repair["verdict"] or "not ended"}
        for repair in document["repairs"]
    ]
    columns = ["begun_at", "by", "reason", "partitions", "audit", "verdict"]
    return [("repaired", rows, columns)] if rows else []


def _groups(groups: dict[str, Any]) -> Table:
    columns = ["group", "topic", "partition", "source_offset", "target_offset", "expected_offset", "verdict", "reason"]
    title = f"groups: {groups['offsets_compared']:,} of {groups['offsets']:,} committed offsets compared"
    title += f", {groups['offsets_differing']:,} differ, {groups['offsets_in_flight']:,} in flight"
    if len(groups["told"]) < groups["offsets_told"]:
        title += f" (the first {len(groups['told']):,} of {groups['offsets_told']:,} that are not the same)"
    if groups["not_listed"]:
        title += f"; there may be more groups: {groups['not_listed']}"
    rows = [item | {"reason": _group_reason(item)} for item in groups["told"]]
    return title, rows, columns


def _group_reason(item: dict[str, Any]) -> str:
    words = (item["reason"] or "").replace("_", " ")
    return f"in flight: {words}" if item["is_in_flight"] else words


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    """Spans as text: a list of two numbers is for programs."""
    return {
        name: f"[{item[0]}, {item[1]})" if isinstance(item, list) and len(item) == 2 else item
        for name, item in row.items()
    }


def coverage_text(coverage: dict[str, Any]) -> str:
    """How much was compared, for a person."""
    earlier = ""
    if coverage["records_earlier"]:
        earlier = f"{coverage['records_earlier']:,} of them by earlier runs, since {coverage['oldest_at']}"
    compared, due = (coverage.get(name, 0) for name in ("group_offsets_compared", "group_offsets"))
    groups = f"; {compared:,} of {due:,} offsets of groups" if compared < due else ""
    if coverage["percent"] == 100:
        return f"all {coverage['records']:,} records of both sites compared" + (f" ({earlier})" if earlier else "")
    return (
        f"{coverage['percent']:g} % compared ({coverage['records']:,} records of both sites; "
        + (f"{earlier}; " if earlier else "")
        + f"up to {coverage['records_left_out_at_most']:,} left out{groups})"
    )


def exit_code_of(verdict: AuditVerdict, *, strict: bool) -> ExitCode:
    """0 only where no difference was found and, if `strict`, nothing was left out."""
    done = verdict is AuditVerdict.EQUAL or (verdict.is_equal and not strict)
    return ExitCode.DONE if done else ExitCode.FINDINGS


def show_outcome(outcome: AuditOutcome, output: str) -> None:
    """A run that has ended, in the form that was asked for."""
    document = outcome.document
    tell_lacked(outcome.lacked)
    if output != "table":
        emit(document, output)
        return
    for title, rows, columns in rows_of(document):
        emit(rows, output, columns=columns, title=title)
    if document["sample"]:
        click.echo(sample_text(document["sample"]), err=True)
    if document["apart"]:
        click.echo(travelled_text(document), err=True)
    if document["topics_without_times"]:
        names = ", ".join(document["topics_without_times"])
        click.echo(f"timestamps were not compared (a site stamps the records itself): {names}", err=True)
    for lost in document["proofs_lost"]:
        why = lost["why"].replace("_", " ")
        click.echo(f"read anew, its proof holds no more ({why}): {lost['topic']}:{lost['partition']}", err=True)
    click.echo(f"report: {outcome.report}", err=True)


def tell_lacked(lacked: Sequence[str]) -> None:
    """What was not seen for want of a right, to who waits for the command, whatever form its document has."""
    for right in lacked:
        click.echo(right, err=True)
    if lacked:
        click.echo(HINT_TO_GIVE, err=True)


def sample_text(sample: dict[str, Any]) -> str:
    """What a sample says of what it did not read."""
    read = f"a sample: {sample['ranges_compared']:,} of {sample['ranges']:,} ranges compared"
    if sample["ranges_differing"]:
        return f"{read}, and {sample['ranges_differing']:,} of these differ; nothing is known of the others"
    if sample["ranges_differing_at_most"] is None:
        return f"{read}; nothing is known of any"
    most, percent = sample["ranges_differing_at_most"], sample["confidence_percent"]
    return f"{read}, none of these differs; with {percent} % confidence at most {most:,} of all {sample['ranges']:,} do"


def travelled_text(document: dict[str, Any]) -> str:
    """What sites that were digested apart had to send."""
    apart = document["apart"]
    sizes = ", ".join(f"{site} {size:,}" for site, size in apart["digest_bytes"].items())
    share = document["digest_bytes_per_audited_byte"]
    told = "" if share is None else f", {100 * share:.3g} % of what was audited"
    text = f"bytes of digests: {sizes}{told}; of the plan {apart['plan_bytes']:,}"
    text += f"; records opened at both sites: {apart['records_opened']:,}"
    if apart["records_compacted"]:
        text += f", and all {apart['records_compacted']:,} of compacted topics"
    return text


def found_of(document: dict[str, Any]) -> int:
    """How many records differ."""
    return int(sum(document["differences_found"].values()))
