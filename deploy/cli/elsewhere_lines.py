"""Third sites that do not say whether they have a move's topics, in lines."""

from __future__ import annotations

from collections.abc import Iterable

from failover.planning.plan import Elsewhere, OperationPlan
from failover.running.result import OperationResult


def untold_lines(plan: OperationPlan) -> Iterable[str]:
    """Of a plan."""
    return [_untold(one, plan.snapshot.source) for one in plan.elsewhere if one.is_active is None]


def silent_lines(result: OperationResult) -> Iterable[str]:
    """Of those that the plan did not have as unknown: they told then, or were not asked."""
    return [
        f"{_untold(one, result.source)} right before the fence; the plan did not have it as unknown"
        for one in result.silent_at_fence
    ]


def _untold(one: Elsewhere, source: str) -> str:
    if one.site == source:
        return (
            f"whether an operation brings topics of it to {source} along {one.link} is not known: {source} does not say"
        )
    return f"whether {one.site} is active for topics of it ({one.link}) is not known: it does not say"
