"""`farshore audit`: the proof, with Spark, that a link's copies are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import click

from deploy.cli.audit_lines import (
    differences_table,
    exit_code_of,
    found_of,
    repairs_table,
    rows_of,
    sample_text,
    show_outcome,
)
from deploy.cli.audit_options import (
    SparkOptions,
    batches_option,
    request_of,
    scope_options,
    spark_options,
    with_steps,
)
from deploy.cli.audit_parts import audit_compare, audit_digest, audit_freeze
from deploy.cli.audit_repair import audit_repair
from deploy.cli.audit_watch import audit_watch
from deploy.cli.terminal import LINK_HELP, AppContext, ExitCode, audit_directory, emit, output_option, run_async
from monitoring.audit.run import run_audit
from monitoring.audit.store import read_document, read_documents, read_repairs


@click.group("audit")
def audit_group() -> None:
    """Prove that a link's copies are equal, or name the records that differ."""


@audit_group.command("run")
@click.option("--link", "link_name", help=LINK_HELP)
@spark_options
@click.option("--run-id", help="Names the run; an earlier run of this name is replaced. By default link and time.")
@scope_options
@batches_option
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
    sample_percent: float | None,
    may_stay_closed: bool | None,
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
        request_of(context, link_name, **spark),
        run_id=run_id,
        is_full=full,
        topics=topics,
        since_ms=since_ms,
        sample_percent=sample_percent,
        may_stay_closed=may_stay_closed,
    )
    outcome = with_steps(f"audit of {request.link.name}", lambda report: run_audit(request, report=report))
    show_outcome(outcome, output)
    raise SystemExit(exit_code_of(outcome.verdict, strict=strict))


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
        | {"coverage_percent": document["coverage"]["percent"], "differences": found_of(document)}
        for document in documents
    ]
    emit(rows, output, columns=RUN_COLUMNS)


@audit_group.command("show")
@click.argument("run")
@directory_option
@output_option
@click.pass_obj
def audit_show(context: AppContext, run: str, directory: Path | None, output: str) -> None:
    """What a run said, as it said it then; and what was repaired of it since."""
    document = run_async(_document(context, directory, run))
    document["repairs"] = read_repairs(directory or audit_directory(context), run)
    if output != "table":
        emit(document, output)
        return
    for title, rows, columns in (*rows_of(document), *repairs_table(document)):
        emit(rows, output, columns=columns, title=title)
    if document.get("sample"):  # which older versions did not write
        click.echo(sample_text(document["sample"]), err=True)


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
        title, rows, columns = differences_table(document)
        emit(rows, output, columns=columns, title=title)
    raise SystemExit(ExitCode.FINDINGS if found_of(document) else ExitCode.DONE)


RUN_COLUMNS = ("run_id", "link", "frozen_at", "verdict", "coverage_percent", "source_records", "differences")


async def _kept(context: AppContext, directory: Path | None, link: str | None) -> list[dict[str, Any]]:
    return read_documents(directory or audit_directory(context), link)


async def _document(context: AppContext, directory: Path | None, run: str) -> dict[str, Any]:
    return read_document(directory or audit_directory(context), run)


for command in (audit_watch, audit_freeze, audit_digest, audit_compare, audit_repair):
    audit_group.add_command(command)
