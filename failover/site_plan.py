"""The move of all links from one site to another: what is judged over them together. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from failover.link_run import LinkMove
from failover.plan import OperationPlan, RefusalReason


def found_together(moves: Sequence[LinkMove]) -> list[LinkMove]:
    """A group that one of the links knows is not missing where it has nothing along another one."""
    known = {group.group for move in moves for group in move.plan.snapshot.groups}
    return [replace(move, plan=_without_missing(move.plan, known)) for move in moves]


def _without_missing(plan: OperationPlan, known: Container[str]) -> OperationPlan:
    refusals = tuple(
        refusal
        for refusal in plan.refusals
        if refusal.reason is not RefusalReason.GROUP_NOT_FOUND or refusal.subject not in known
    )
    return replace(plan, refusals=refusals)
