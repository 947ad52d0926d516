"""Why gates say no to a site's move, in words: of which of its links, and what all of them need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deploy.cli.gate_words import reason_of, refused_by
from deploy.cli.next_steps import LEAVES_SOURCE
from failover.errors import GateRefused
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import OperationPlan
from failover.planning.site_plan import SitePlan
from failover.planning.staying import StayKind, StayReason
from failover.running.steps import Operation

_OF_THE_SOURCE: Final = frozenset(
    {RefusalReason.SOURCE_ANSWERS, RefusalReason.SOURCE_PARTLY_THERE, RefusalReason.SOURCE_SEEN_BY_WORKER}
)


def refusals_of_site(plan: SitePlan) -> list[GateRefusal]:
    """Of the whole, and of the links that stay for them."""
    own = [one for link in plan.links if link.snapshot.link in plan.refused for one in link.refusals]
    return list(dict.fromkeys([*plan.refusals, *own]))


def reasons_of_site(plan: SitePlan) -> list[tuple[str, str]]:
    """Of each of `refusals_of_site`: what a gate found, with the links where that is not so of all; and what to do. But
    for an operation under way, of which the error tells that ends the command.
    """
    return [_reason(plan, one) for one in _gates(plan)]


def site_refused_by(plan: SitePlan) -> GateRefused:
    """Of a plan with refusals."""
    return refused_by(_gates(plan), plan.source, plan.target, reasons_of_site(plan))


def _gates(plan: SitePlan) -> list[GateRefusal]:
    return [one for one in refusals_of_site(plan) if one.reason is not RefusalReason.OPERATION_UNDER_WAY]


def _reason(plan: SitePlan, refusal: GateRefusal) -> tuple[str, str]:
    message, hint = reason_of(refusal, plan.source, plan.target)
    asked = _asked(plan)
    consents = sorted({LEAVES_SOURCE.get(one.snapshot.source_finding, "") for one in asked} - {""})
    if refusal.reason in _OF_THE_SOURCE and plan.operation is Operation.FAILOVER and len(consents) > 1:
        if refusal.reason is RefusalReason.SOURCE_ANSWERS:
            message = (
                f"the source site {plan.source} is there in part, and answers all that was asked for this: nothing of "
                "it needs to be lost"
            )
        hint = _of_unlike_links(plan, consents)
    having = [one.snapshot.link for one in asked if refusal in one.refusals]
    if refusal.subject == plan.source and 0 < len(having) < len(asked):
        message = f"{', '.join(having)}: {message}"
    return message, hint


def _asked(plan: SitePlan) -> list[OperationPlan]:
    """Those that a filter or an earlier move does not leave out."""
    out = {
        stay.subject
        for stay in plan.stays
        if stay.kind is StayKind.LINK and stay.reason in (StayReason.NOT_SELECTED, StayReason.ALREADY_MOVED)
    }
    return [one for one in plan.links if one.snapshot.link not in out]


def _of_unlike_links(plan: SitePlan, consents: Sequence[str]) -> str:
    """A source that answers all for some of the links, and not for others: one option alone refuses all of them."""
    sites = f"--from {plan.source} --to {plan.target}"
    return (
        f"bring back what does not answer; or first `farshore switchover {sites}`, which moves the links for which all "
        f"answers, and loses nothing of them, then `farshore failover {sites}` for the others; or leave it as it is "
        f"for all at once, which may lose records: `farshore failover` with{''.join(consents)} (docs/runbook.md, "
        "Partial loss)"
    )
