"""A move from the same site to a third one at the same time: its journal stands there, and neither fences the other."""

from __future__ import annotations

from failover.errors import OperationUnderWay
from failover.observing.elsewhere import look_elsewhere
from failover.observing.sites import Sites
from failover.planning.plan import OperationPlan


async def refuse_third_site(plan: OperationPlan, sites: Sites) -> None:
    """Raises OperationUnderWay where a third site has taken over topics of the move since the plan was made, or is
    about to; also of one that is taken up, and has not opened its target yet. To be asked when this one's own first
    entry is written: then of two that begin at once one sees the other, or both do. Whoever did not tell when it was
    planned is not asked again: the plan said so, and the fence would wait for him.
    """
    link = sites.link
    untold = {one.site for one in plan.elsewhere if one.is_active is None}
    for one in await look_elsewhere(link, sites.links, {view.topic for view in plan.snapshot.partitions}, untold):
        if one.operation_id or one.is_active:
            who = f"{one.operation_id} moves" if one.operation_id else "another operation moved"
            second = f"beside it {link.target.name} would be a second active site; nothing more was changed"
            raise OperationUnderWay(
                f"since the plan was made, {who} topics of {link.name} to {one.site}: {second}",
                hint="`farshore operation list` says how it ends, `farshore site role` who takes writes; then look "
                "again with --dry-run",
                subject=link.name,
                operation_id=one.operation_id,
            )
