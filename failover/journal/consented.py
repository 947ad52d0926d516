"""What was consented to when an operation began, as its first entry keeps it: a later run is held against it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.base.documents import read_time
from failover.journal.first_plan import first_plan
from failover.journal.values import OperationLog
from failover.losses.statements import Certainty, LossTotal
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import OperationPlan
from failover.planning.unplanned import unplanned_skips
from failover.running.steps import Operation


def consented_moves(log: OperationLog, link: str) -> tuple[GroupMove, ...] | None:
    """Those of the link's plan, but for when the mirror last synced; None where the entry has no plan of it. Raises
    JournalDamaged where they are none.
    """
    moves = None
    with first_plan(log, link, "where groups were to go") as plan:
        if "moves" in plan:
            moves = tuple(_move(one) for one in plan["moves"])
    return moves


def refusing_skips(log: OperationLog, plan: OperationPlan) -> OperationPlan:
    """The plan, refused for the groups that a failover, which begins its fence only now, would have skip more than was
    consented to. Of a switchover that is judged behind its drain. Raises JournalDamaged.
    """
    consented = consented_moves(log, plan.snapshot.link)
    if plan.operation is not Operation.FAILOVER or consented is None:
        return plan
    skips = unplanned_skips(consented, plan.moves, plan.left_groups)
    refused = (GateRefusal(RefusalReason.GROUP_WENT_ON, group) for group in sorted({one.group for one in skips}))
    return replace(plan, refusals=(*plan.refusals, *refused))


def _move(document: Mapping[str, Any]) -> GroupMove:
    known = {name: document[name] for name in GroupMove.__slots__ if name in document}
    return GroupMove(**{**known, "kind": MoveKind(document["kind"])})


def consented_loss(log: OperationLog, link: str) -> LossTotal | None:
    """That of the link's plan, as far as it says how much the loss may have grown since; None where the entry has none.
    Raises JournalDamaged where it is none.
    """
    total = None
    with first_plan(log, link, "what was to be lost") as plan:
        if "loss" in plan:
            total = _loss(plan["loss"])
    return total


def was_paused(log: OperationLog, link: str) -> bool:
    """Whether the link was paused when it was planned to move it. Raises JournalDamaged where the plan is none."""
    state = None
    with first_plan(log, link, "whether the link was paused") as plan:
        if plan:
            state = plan["snapshot"].get("link_state")
    return state == "paused"


def _loss(document: Mapping[str, Any]) -> LossTotal:
    counts = ("offsets", "records", "partitions_with_loss", "fastest_per_s", "unclear_offsets", "open_offsets")
    known = {name: document[name] for name in (*counts, "lacked_offsets") if name in document}
    stated_at_ms = read_time(document.get("stated_at"))
    return LossTotal(**known, certainty=Certainty(document["certainty"]), stated_at_ms=stated_at_ms)
