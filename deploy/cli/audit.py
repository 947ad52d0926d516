"""`farshore audit`: the proof, with Spark, that a link's copies are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import click
from rich.progress import Progress, TaskID

from deploy.cli.audit_options import SparkOptions, request_of, spark_options
from deploy.cli.audit_watch import audit_watch
from deploy.cli.parameters import Moment
from deploy.cli.terminal import (
    LINK_HELP,
    AppContext,
    ExitCode,
    audit_directory,
    emit,
    output_option,
    progress,
    run_async,
)
from monitoring.audit.model import AuditVerdict
from monitoring.audit.run import run_audit
from monitoring.audit.store import read_document, read_documents


@click.group("audit")
def audit_group() -> None:
    """Prove that a link's copies are equal, or name the records that differ."""


@audit_group.command("run")
@click.option("--link", "link_name", help=LINK_HELP)
@spark_options
@click.option("--run-id", help="Names the run; an earlier run of this name is replaced. By default link and time.")
@click.option("--full", is_flag=True, help="Read all anew, also what earlier runs have proved.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Read only this topic; may be repeated.")
@click.option("--since", "since_ms", type=Moment(), help="Read only what is as new as this, by its time.")
@click.option("--strict", is_flag=True, help="Equal only if all was compared: exit code 4 where anything was left out.")
@output_option
@click.pass_obj
def audit_run(
    context: AppContext,
    link_name: str | None,
    run_id: str | None,
    full: bool,
    topics: tuple[str, ...],
    since_ms: int | None,
    strict: bool,
    output: str,
    **spark: Unpack[SparkOptions],
) -> None:
    """Digest both sites with Spark, compare the counts and checksums of ranges of offsets, and open those that differ.

    What earlier runs have proved is not read again while neither log was cut. The offset map decides which records must
    be there. Exit code 0: equal as far as compared; the coverage says how far that is. 4: they differ, and the records
    are named; or, with --strict, not all was compared.
    """
    request = replace(
        request_of(context, link_name, **spark), run_id=run_id, is_full=full, topics=topics, since_ms=since_ms
    )
    with progress() as bars:
        task = bars.add_task(f"audit of {request.link.name}", total=None)
        outcome = run_async(run_audit(request, report=lambda step: _show(bars, task, step)))
    if output == "table":
        for title, rows, columns in rows_of(outcome.document):
            emit(rows, output, columns=columns, title=title)
        if outcome.document["topics_without_times"]:
            names = ", ".join(outcome.document["topics_without_times"])
            click.echo(f"timestamps were not compared (a site stamps the records itself): {names}", err=True)
        for lost in outcome.document["proofs_lost"]:
            why = lost["why"].replace("_", " ")
            click.echo(f"read anew, its proof holds no more ({why}): {lost['topic']}:{lost['partition']}", err=True)
        click.echo(f"report: {outcome.report}", err=True)
    else:
        emit(outcome.document, output)
    raise SystemExit(exit_code_of(outcome.verdict, strict=strict))


audit_group.add_command(audit_watch)


directory_option = click.option(
    "--output-dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the runs were kept; by default audit/ in the state folder.",
)


@audit_group.command("list")
@click.option("--link", "link_name", metavar="LINK", help="Only runs of this link.")
@directory_option
@output_option
@click.pass_obj
def audit_list(context: AppContext, link_name: str | None, directory: Path | None, output: str) -> None:
    """Runs that are kept, the newest first: verdict, coverage, differences."""
    documents = run_async(_kept(context, directory, link_name))
    rows = [
        {name: document[name] for name in RUN_COLUMNS if name in document}
        | {"coverage_percent": document["coverage"]["percent"], "differences": _found(document)}
        for document in documents
    ]
    emit(rows, output, columns=RUN_COLUMNS)


@audit_group.command("show")
@click.argument("run")
@directory_option
@output_option
@click.pass_obj
def audit_show(context: AppContext, run: str, directory: Path | None, output: str) -> None:
    """What a run said, as it said it then."""
    document = run_async(_document(context, directory, run))
    if output != "table":
        emit(document, output)
        return
    for title, rows, columns in rows_of(document):
        emit(rows, output, columns=columns, title=title)


@audit_group.command("diff")
@click.argument("run")
@directory_option
@output_option
@click.pass_obj
def audit_diff(context: AppContext, run: str, directory: Path | None, output: str) -> None:
    """The records that a run found to differ, the first thousand. Exit code 4 where there are any.

    All of them are in the Parquet table diffs, in the folder run_id=RUN.
    """
    document = run_async(_document(context, directory, run))
    if output != "table":
        emit({"items": document["differences"], "differences_found": document["differences_found"]}, output)
    elif document["differences"]:
        title, rows, columns = _differences(document)
        emit(rows, output, columns=columns, title=title)
    raise SystemExit(ExitCode.FINDINGS if _found(document) else ExitCode.DONE)


RUN_COLUMNS = ("run_id", "link", "frozen_at", "verdict", "coverage_percent", "source_records", "differences")


async def _kept(context: AppContext, directory: Path | None, link: str | None) -> list[dict[str, Any]]:
    return read_documents(directory or audit_directory(context), link)


async def _document(context: AppContext, directory: Path | None, run: str) -> dict[str, Any]:
    return read_document(directory or audit_directory(context), run)


def _found(document: dict[str, Any]) -> int:
    return int(sum(document["differences_found"].values()))


def _show(bars: Progress, task: TaskID, step: str) -> None:
    """On a terminal in the bar, elsewhere as lines: an audit may take long, and silence looks like a fault."""
    bars.update(task, description=step)
    if bars.disable:
        click.echo(step, err=True)


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
        tables.append(_differences(document))
    if groups := document.get("groups"):
        tables.append(_groups(groups))
    if document["not_compared"]:
        rows = [_texts(item) for item in document["not_compared"]]
        tables.append(("not compared", rows, ["topic", "partition", "side", "span", "offsets", "reason"]))
    return tables


def _differences(document: dict[str, Any]) -> Table:
    columns = ["topic", "partition", "kind", "source_offset", "target_offset", "source_timestamp"]
    rows = [_texts(item) for item in document["differences"]]
    found = {kind: number for kind, number in document["differences_found"].items() if number}
    title = ", ".join(f"{number:,} {kind}" for kind, number in found.items())
    if len(rows) < sum(found.values()):
        title += f" (the first {len(rows):,} of {sum(found.values()):,}; all are in the Parquet table diffs)"
    return title, rows, [*columns, "target_timestamp", "key"]


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
