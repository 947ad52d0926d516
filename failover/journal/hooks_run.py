"""Which of the operator's own programs an operation has run, as its journal says it. Pure."""

from __future__ import annotations

from typing import Final

from failover.journal.first_plan import first_plan
from failover.journal.standing import intent_of
from failover.journal.values import Event, OperationLog
from failover.running.steps import OperationStep

FREEZE_HOOK: Final = "freeze_hook"
"""Of the entry that begins the freeze: whether the file of that machine had one."""


def is_freeze_hook_run(log: OperationLog) -> bool:
    """Whether a machine that carried it on ran a freeze_hook, or was about to. An earlier version wrote that in the
    first plan alone. Raises JournalDamaged.
    """
    begun = [entry.detail for entry in log.entries if entry.event == Event.STARTED]
    freezes = [detail for detail in begun if detail["step"] == OperationStep.FREEZE.value]
    return any(detail[FREEZE_HOOK] if FREEZE_HOOK in detail else _is_planned(log) for detail in freezes)


def _is_planned(log: OperationLog) -> bool:
    with first_plan(log, intent_of(log).links[0], "which hooks it had") as plan:
        return bool(plan.get("freezing", {}).get("hooks", {}).get("freeze"))
