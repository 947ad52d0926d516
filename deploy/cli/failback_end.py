"""What a failback says at its end: what is left to be seen to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from deploy.cli.failback_plan import tell_left_at_target
from deploy.cli.failback_words import told_tails
from deploy.cli.found_lines import found_in
from deploy.cli.lines import filled, with_command
from deploy.cli.next_steps import NextStep
from deploy.cli.terminal import ExitCode
from failover.failback.plan import FailbackPlan, FailbackStep
from failover.failback.stranding import RoleInTheWay
from mirror.api import Link

_ROLES = {
    RoleInTheWay.SOURCE_CLOSED: (
        "{source} refuses writes to topics of it",
        "`farshore site role`; if {source} is to be the active site: farshore site thaw --site {source}",
    ),
    RoleInTheWay.BOTH_OPEN: (
        "{target} takes writes, too",
        "`farshore site role`; have one of them active: farshore site standby --site {target}",
    ),
}


def tell_end(link: Link, plan: FailbackPlan, result: Mapping[str, Any]) -> int:
    """What is left to be seen to -> the exit code."""
    code: int = result["switchover_exit_code"]
    if (moved := result.get("switchover")) and (operation_id := moved.get("operation_id")):
        show_it = f"farshore operation show {operation_id}"
        click.echo(with_command(f"moved along {plan.link_back} by one operation", show_it), err=True)
    tell_left_at_target(plan)
    again = f"farshore failback --link {link.name}"
    if code == ExitCode.FINDINGS:
        for line in found_in(moved or {}):
            click.echo(filled(f"the switchover along {plan.link_back}: {line}"), err=True)
    keeps = result["stranded_since"] or result["role_in_the_way"]  # behind a switchover that let it run
    if code != ExitCode.DONE and not keeps and FailbackStep.RESUME not in result["steps_done"]:
        what = "has a finding" if code == ExitCode.FINDINGS else "was not verified"
        click.echo(filled(f"link {link.name} stays promoted: the switchover along {plan.link_back} {what}"), err=True)
        look = "when that is seen to" if code == ExitCode.FINDINGS else "farshore operation list; when it is seen to"
        click.echo(filled(f"hint: {look}, {again} goes on"), err=True)
        return code
    if result["stranded_since"]:
        text = f"came to {link.source.name} meanwhile: link {link.name} stays promoted"
        click.echo(filled(f"{told_tails(result['stranded_since'])} {text}"), err=True)
        click.echo(filled(f"hint: {again} saves that, and lets the link run"), err=True)
        code = ExitCode.FINDINGS
    if role := result["role_in_the_way"]:
        named = {"source": link.source.name, "target": link.target.name}
        what, hint = (text.format(**named) for text in _ROLES[role])
        click.echo(filled(f"{what}: link {link.name} stays promoted"), err=True)
        click.echo(filled(f"hint: {hint}; then {again}"), err=True)
        code = ExitCode.FINDINGS
    if tails := result["stranded_at_target"]:
        text = f"{link.target.name} alone has {told_tails(tails)}: it came behind the fence of {plan.link_back}"
        click.echo(filled(text), err=True)
        click.echo(filled(f"hint: farshore stranded list --link {plan.link_back}"), err=True)
        code = ExitCode.FINDINGS
    return code


def go_on(link: Link) -> NextStep:
    """Where it stays promoted."""
    what = f"link {link.name} stays promoted, and brings nothing to {link.target.name}; when what keeps it is seen to"
    return NextStep(f"{what}, the same goes on", f"farshore failback --link {link.name}")
