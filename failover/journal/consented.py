"""What was consented to when an operation began, as its first entry keeps it: a later run is held against it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from failover.errors import JournalDamaged
from failover.journal.standing import NO_INTENT
from failover.journal.values import OperationLog
from failover.losses.statements import Certainty, LossTotal
from failover.planning.moves import GroupMove, MoveKind


def consented_moves(log: OperationLog, link: str) -> tuple[GroupMove, ...] | None:
    """Those of the link's plan, but for when the mirror last synced; None where the entry has no plan of it. Raises
    JournalDamaged where they are none.
    """
    try:
        plan = _plan_of(log, link)
        if plan is None or "moves" not in plan:
            return None
        return tuple(
            GroupMove(
                **{name: one[name] for name in GroupMove.__slots__ if name in one} | {"kind": MoveKind(one["kind"])}
            )
            for one in plan["moves"]
        )
    except NO_INTENT as error:
        raise _damaged(log, "where groups were to go") from error


def consented_loss(log: OperationLog, link: str) -> LossTotal | None:
    """That of the link's plan, as far as it says how much the loss may have grown since; None where the entry has none.
    Raises JournalDamaged where it is none.
    """
    try:
        plan = _plan_of(log, link)
        if plan is None or "loss" not in plan:
            return None
        loss = plan["loss"]
        counts = ("offsets", "records", "partitions_with_loss", "fastest_per_s", "unclear_offsets", "open_offsets")
        known = {name: loss[name] for name in (*counts, "lacked_offsets") if name in loss}
        return LossTotal(**known, certainty=Certainty(loss["certainty"]), stated_at_ms=_unix_ms(loss.get("stated_at")))
    except NO_INTENT as error:
        raise _damaged(log, "what was to be lost") from error


def _plan_of(log: OperationLog, link: str) -> Mapping[str, Any] | None:
    plans: list[Mapping[str, Any]] = log.entries[0].detail.get("plans", [])
    return next((plan for plan in plans if plan["snapshot"]["link"] == link), None)


def _unix_ms(time: str | None) -> int | None:
    return None if time is None else round(datetime.fromisoformat(time).timestamp() * 1000)


def _damaged(log: OperationLog, what: str) -> JournalDamaged:
    said = f"{what}, when it began, cannot be read"
    return JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}")
