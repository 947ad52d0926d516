"""What a failback says: why there is no way back now, what is going to be done, and what is left to be seen to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.base.documents import to_document
from deploy.cli.next_steps import name_back, table_back
from deploy.cli.tables import counted, print_table
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode
from failover.failback.plan import FailbackPlan, FailbackRefusal
from failover.failback.stranding import RoleInTheWay, count_in
from mirror.api import Link, StrandedTail

NAMES_SHOWN = 10
_WORDS = {
    FailbackRefusal.NOT_PROMOTED: "link {link} was not moved away from {source}, or it runs again",
    FailbackRefusal.NAMES_DIFFER: "link {link} has prefixed names: what is written at {target} is another topic",
    FailbackRefusal.NO_LINK_BACK: "no link from {target} to {source} is declared",
    FailbackRefusal.SEVERAL_LINKS_BACK: "several links from {target} to {source} are declared",
    FailbackRefusal.LINK_BACK_SILENT: "link {back} is not run by any worker",
    FailbackRefusal.TRANSACTION_OPEN: "a transaction is open in what only {source} has",
    FailbackRefusal.TAIL_UNKNOWN: "nobody can say where what only {source} had ends, and what it wrote anew begins",
    FailbackRefusal.ORDER_UNKNOWN: "links {link} and {back} were both promoted, and nothing says which later: so it is "
    "not known whether {source} or {target} is the active site",
    FailbackRefusal.BACK_TAIL_UNDECIDED: "{target} alone has {back_records} of an earlier failover along link {back}, "
    "which would come behind newer ones",
    FailbackRefusal.ACTIVE_ELSEWHERE: "{elsewhere} took over from {target}, and is the active site",
}
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
    again = f"farshore failback --link {link.name}"
    if code != ExitCode.DONE:
        what = "has a finding" if code == ExitCode.FINDINGS else "was not verified"
        click.echo(f"link {link.name} stays promoted: the switchover along {plan.link_back} {what}", err=True)
        look = "stranded list --link " + plan.link_back if code == ExitCode.FINDINGS else "operation list"
        click.echo(f"hint: farshore {look}; when that is seen to, {again} goes on", err=True)
        return code
    if result["stranded_since"]:
        text = f"came to {link.source.name} meanwhile: link {link.name} stays promoted"
        click.echo(f"{told_tails(result['stranded_since'])} {text}", err=True)
        click.echo(f"hint: {again} saves that, and lets the link run", err=True)
        code = ExitCode.FINDINGS
    if role := result["role_in_the_way"]:
        named = {"source": link.source.name, "target": link.target.name}
        what, hint = (text.format(**named) for text in _ROLES[role])
        click.echo(f"{what}: link {link.name} stays promoted", err=True)
        click.echo(f"hint: {hint}; then {again}", err=True)
        code = ExitCode.FINDINGS
    if tails := result["stranded_at_target"]:
        click.echo(
            f"{link.target.name} alone has {told_tails(tails)}: it came behind the fence of {plan.link_back}", err=True
        )
        click.echo(f"hint: farshore stranded list --link {plan.link_back}", err=True)
        code = ExitCode.FINDINGS
    return code


def told_tails(tails: Sequence[StrandedTail]) -> str:
    records = count_in(tails)
    return "what is not counted yet, as a transaction is open," if records is None else counted(records, "record")


def refuse(app: AppContext, link: Link, plan: FailbackPlan) -> None:
    if not plan.refusals:
        return
    named = {"link": link.name, "source": plan.source, "target": plan.target, "back": plan.link_back}
    named |= {"back_records": told_tails(plan.back_tails), "elsewhere": ", ".join(plan.active_elsewhere)}
    texts = [_WORDS[refusal].format(**named) for refusal in plan.refusals]
    hint = f"farshore failback --link {link.name} --dry-run shows the plan"
    if FailbackRefusal.LINK_BACK_SILENT in plan.refusals:
        hint = f"farshore mirror run --link {plan.link_back}"
    if FailbackRefusal.ORDER_UNKNOWN in plan.refusals:
        hint = (
            f"`farshore site role`, or ask who knows; if {plan.target} is the active site: farshore link resume --link "
            f"{plan.link_back} --stranded append, then again; if {plan.source} is: farshore link resume --link "
            f"{plan.link}"
        )
    if FailbackRefusal.BACK_TAIL_UNDECIDED in plan.refusals:
        hint = hint_of_back(plan.link_back)
    if FailbackRefusal.ACTIVE_ELSEWHERE in plan.refusals:
        hint = f"`farshore site role`; move from there first, as `farshore switchover --from {named['elsewhere']} --to "
        hint += f"{plan.target}` does, where a link goes that way"
    if FailbackRefusal.NO_LINK_BACK in plan.refusals:
        hint = f"add it to {app.file}:\n{table_back(link, name_back(link, app.links()))}"
    raise CommandRefused(f"{'; '.join(texts)}. Nothing was changed", hint, ExitCode.REFUSED)


def hint_of_back(back: str) -> str:
    return (
        f"see it: farshore stranded list --link {back}; save it: farshore stranded export --link {back} --to DIR; it "
        f"stays where it is: farshore stranded leave --link {back}; or it comes behind newer records: farshore link "
        f"resume --link {back} --stranded append"
    )


def show(plan: FailbackPlan) -> None:
    if plan.tails:
        print_table(
            to_document(plan.tails), ("topic", "partition", "first_offset", "end_offset", "records"), "", to_stderr=True
        )
        records = counted(sum(tail.records or 0 for tail in plan.tails), "record")
        text = f"{records} that {plan.source} alone has stay in its log, are nobody's to read next, and are saved to"
        click.echo(f"{text} {plan.export_to}", err=True)
    if not plan.groups_known:
        text = (
            f"which groups went along {plan.link}, or came back, the journals do not tell: all are taken to have gone"
        )
        click.echo(text, err=True)
    if plan.groups_back:
        click.echo(f"come back to {plan.source}: {_names(plan.groups_back)}", err=True)
    if plan.groups_stay:
        click.echo(f"were not moved to {plan.target}, and stay as they are: {_names(plan.groups_stay)}", err=True)
    click.echo(f"steps: {', '.join(plan.steps)}", err=True)


def _names(groups: Sequence[str]) -> str:
    more = f" and {len(groups) - NAMES_SHOWN} more" if len(groups) > NAMES_SHOWN else ""
    return ", ".join(groups[:NAMES_SHOWN]) + more
