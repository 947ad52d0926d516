"""What keeps the source's clients from writing, in lines of a plan."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.cli.tables import counted
from failover.planning.plan import OperationPlan
from failover.running.steps import Operation

OTHERS_SHOWN = 10


def freezing_lines(plan: OperationPlan) -> Iterable[str]:
    """What keeps the source's clients from writing, or that nothing does; of what is refused, how it is now."""
    source, freezing = plan.snapshot.source, plan.freezing
    if freezing.source is not None and not freezing.source.takes_writes:
        of = f" for {', '.join(freezing.source.topics)}" if freezing.source.topics else ""
        yield f"{source} is {freezing.source.role} already{of}, since {freezing.source.reason or 'somebody said so'}"
    if plan.refusals:
        return
    if plan.operation is Operation.SWITCHOVER:
        if freezing.source_denials is not None and freezing.is_by_acls:
            who, topics = ", ".join(freezing.source_denials.principals), ", ".join(freezing.topics) or "any topic"
            yield f"ACLs deny {who} to write to {topics} at {source}, from the freeze on until a move back ends that"
            yield "their producers fail, and do not wait; super users are not kept out, and are looked for"
        elif freezing.is_enforced and freezing.topics:
            topics = ", ".join(freezing.topics)
            yield f"no client writes at {source} from the freeze on, to {topics}; for those it is the standby site then"
        elif freezing.is_enforced:
            yield f"no client writes at {source} from the freeze on, to any topic; at the end it is the standby site"
        elif not freezing.hooks.freeze:
            yield f"nothing keeps clients from writing at {source}: what comes after the fence is only looked for"
    if freezing.source_denials is not None and freezing.source_denials.hidden:
        hidden = ", ".join(freezing.source_denials.hidden)
        yield f"{source} hides {hidden} from farshore: ACLs deny to write there, too, and what was written is not known"
    if freezing.source_denials is not None and freezing.source_denials.left_open:
        left_open = ", ".join(freezing.source_denials.left_open)
        yield f"{source} stays open to {left_open}: no ACL is about them, and the first would take all from everybody"
    if freezing.closed_at_both:
        topics = ", ".join(freezing.closed_at_both)
        yield f"{plan.snapshot.target} stays closed to {topics}, and so is {source}: no client writes there at either"
    if kept := ", ".join(one for one in freezing.target_kept if one not in freezing.closed_at_both):
        yield f"{plan.snapshot.target} stays closed to {kept}, which another site has, or may have"
    if freezing.is_enforced and freezing.others:
        shown = ", ".join(freezing.others[:OTHERS_SHOWN]) + (", ..." if len(freezing.others) > OTHERS_SHOWN else "")
        count = counted(len(freezing.others), "topic")
        alone = "" if freezing.beside else f", and that {source} alone has"
        yield f"among them {count} that {plan.snapshot.link} does not carry{alone}: {shown}"
    if freezing.is_enforced and freezing.beside:
        beside = ", ".join(freezing.beside)
        yield f"other links carry some of them ({beside}): of one that does not go, nobody writes what it carries then"
