"""`farshore audit freeze`, `digest` and `compare`: a run in parts, so that only digests have to travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import click

from deploy.cli.audit_lines import exit_code_of, show_outcome, tell_lacked
from deploy.cli.audit_options import (
    SparkOptions,
    folder_of,
    output_folder,
    part_of,
    scope_options,
    spark_options,
    with_steps,
)
from deploy.cli.terminal import LINK_HELP, AppContext, emit, output_option, run_async
from monitoring.audit.missing_rights import in_words
from monitoring.audit.model import Side
from monitoring.audit.parts import compare_part, digest_part, next_commands, plan_of_run
from monitoring.audit.plans import KeptPlan, Plan, side_of
from monitoring.audit.protocol import Digested
from monitoring.audit.run import AuditRequest, freeze_run

run_option = click.option("--run", "run_id", required=True, metavar="RUN", help="The run, as it was frozen.")
digests_option = click.option(
    "--digests-dir",
    "digests",
    metavar="URI",
    help="Where the digests are: a folder, or an address that Spark reaches; by default the output folder.",
)


@click.command("freeze")
@click.option("--link", "link_name", help=LINK_HELP)
@output_folder
@click.option("--run-id", help="Names the run; an earlier plan of this name is replaced. By default link and time.")
@scope_options
@output_option
@click.pass_obj
def audit_freeze(
    context: AppContext,
    link_name: str | None,
    output_dir: Path | None,
    run_id: str | None,
    full: bool,
    topics: tuple[str, ...],
    since_ms: int | None,
    sample_percent: float | None,
    output: str,
) -> None:
    """Write the plan of a run that goes on in parts: ask both sites where they stand, and read no record.

    Its file has what `audit digest` needs near each site, and `audit compare` where both digests are; it has no logins.
    Copy it into plans/ of the output folder there.
    """
    directory = folder_of(context, output_dir)
    request = AuditRequest(
        context.link(link_name), "", (), directory, run_id, {}, (), full, topics, since_ms, sample_percent
    )
    plan = with_steps(f"plan of {request.link.name}", lambda report: freeze_run(request, "freeze", report))
    kept = run_async(_read(plan, directory))
    document = {
        "run_id": plan.run_id,
        "link": plan.frozen.link,
        "frozen_at_ms": plan.frozen.frozen_at_ms,
        "source": plan.frozen.source.name,
        "target": plan.frozen.target.name,
        "partitions": len(plan.frozen.partitions),
        "plan": str(kept.path),
        "plan_id": kept.plan_id,
        "plan_bytes": kept.size_bytes,
        "missing_rights": list(plan.frozen.missing_rights),
        "next": next_commands(plan),
    }
    tell_lacked(in_words(plan.frozen.missing_rights, plan.frozen.principals))
    if output == "table":
        emit([document], output, columns=["run_id", "link", "partitions", "plan_bytes", "plan"])
        click.echo("next, with the plan in plans/ there: " + "; ".join(next_commands(plan)), err=True)
    else:
        emit(document, output)


async def _read(plan: Plan, directory: Path) -> KeptPlan:
    return plan_of_run(plan.run_id, directory)


@click.command("digest")
@click.option("--site", "site_name", required=True, metavar="SITE", help="The site to digest; no other is reached.")
@run_option
@spark_options
@digests_option
@output_option
@click.pass_obj
def audit_digest(
    context: AppContext,
    site_name: str,
    run_id: str,
    digests: str | None,
    output: str,
    **spark: Unpack[SparkOptions],
) -> None:
    """Digest one site with Spark, near its cluster, by the plan of a run.

    It reads what the plan has of this site, and leaves Parquet: what is in digests/ and manifests/ of this run is what
    `audit compare` needs, a thousandth of what was read or less.
    """
    request = part_of(context, run_id, digests, **spark)

    async def deed(report: Any) -> Digested:
        kept = plan_of_run(run_id, request.directory)
        side = side_of(kept.plan, site_name)
        return await digest_part(request, kept, side, context.site(site_name), report)

    found = with_steps(f"digests of {site_name}", deed)
    document = _digested(found) | {"digests": request.base}
    if output == "table":
        emit([document], output, columns=[name for name in document if name != "plan_id"])
    else:
        emit(document, output)


def _digested(found: Digested) -> dict[str, Any]:
    sums = [item.sums for item in found.manifest.partitions]
    return {
        "run_id": found.manifest.run_id,
        "site": found.manifest.site,
        "side": found.manifest.side.value,
        "plan_id": found.manifest.plan_id,
        "partitions": len(sums),
        "partitions_left_out": sum(item.left_out is not None for item in found.manifest.partitions),
        "ranges": sum(item.ranges for item in sums),
        "records": sum(item.records for item in sums),
        "bytes": sum(item.bytes for item in sums),
        "digest_bytes": found.size_bytes,
    }


@click.command("compare")
@run_option
@spark_options
@digests_option
@click.option("--strict", is_flag=True, help="Equal only if all was compared: exit code 4 where anything was left out.")
@output_option
@click.pass_obj
def audit_compare(
    context: AppContext,
    run_id: str,
    digests: str | None,
    strict: bool,
    output: str,
    **spark: Unpack[SparkOptions],
) -> None:
    """Compare both sites' digests of a run, and open the ranges that differ: only their records are read again.

    Digests that are missing, incomplete, of another run or of another plan are an error. Exit codes as of `audit run`.
    """
    request = part_of(context, run_id, digests, **spark)

    async def deed(report: Any) -> Any:
        kept = plan_of_run(run_id, request.directory)
        frozen = kept.plan.frozen
        sites = {Side.SOURCE: context.site(frozen.source.name), Side.TARGET: context.site(frozen.target.name)}
        return await compare_part(request, kept, sites, report)

    outcome = with_steps(f"comparison of {run_id}", deed)
    show_outcome(outcome, output)
    raise SystemExit(exit_code_of(outcome.verdict, strict=strict))
