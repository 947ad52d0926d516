"""`farshore apply`: a plan that was written by `--out`, carried out as long as it holds."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.cli.moving import decide
from deploy.cli.terminal import AppContext, dry_run_option, output_option, run_async, yes_option
from failover.planning.plan_file import read_plan


@click.command("apply")
@click.argument("plan_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@dry_run_option("whether the plan holds, as it would be made now,")
@yes_option
@output_option
@click.pass_obj
def apply(context: AppContext, plan_file: Path, dry_run: bool, yes: bool, output: str) -> None:
    """Carry out a plan of `switchover --out` or `failover --out`.

    Refused (exit code 3), with nothing changed, where what it was made from is not so any more; what changed is named.
    Else the exit code is that of the verb.
    """
    plan = read_plan(plan_file)
    raise SystemExit(run_async(decide(context, plan.intent, dry_run=dry_run, yes=yes, output=output, applied=plan)))
