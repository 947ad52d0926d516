"""Which of the operator's own programs an operation has run, or was to run, as its journal says it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failover.errors import OtherFile
from failover.freezing.hooks import Hooks
from failover.journal.first_plan import first_plan
from failover.journal.standing import intent_of, is_behind_fence, within
from failover.journal.values import Event, OperationLog
from failover.running.steps import OperationStep

FREEZE_HOOK: Final = "freeze_hook"
"""Of the entry that begins the freeze: whether the file of that machine had one."""
NO_AFTER_HOOK: Final = "the after_hook was not run: this machine's file has none"


def is_freeze_hook_run(log: OperationLog) -> bool:
    """Whether a machine that carried it on ran a freeze_hook, or was about to. An earlier version wrote that in the
    first plan alone. Raises JournalDamaged.
    """
    begun = [entry.detail for entry in log.entries if entry.event == Event.STARTED]
    freezes = [detail for detail in begun if detail["step"] == OperationStep.FREEZE.value]
    return any(
        detail[FREEZE_HOOK] if FREEZE_HOOK in detail else bool(_planned(log).get("freeze")) for detail in freezes
    )


def check_hooks(log: OperationLog, hooks: Hooks) -> None:
    """Until the fence nothing is moved without a program that was consented to, and has not run to its end: the one may
    say no, and the other tells clients where they go. The before_hook of a failback's step the failback has asked,
    also where an earlier version noted it of the step. Raises OtherFile, JournalDamaged.
    """
    if is_behind_fence(log):
        return
    planned = _planned(log)
    refuse_lacking(log, {**planned, "before": ()} if within(log) else planned, hooks)


def refuse_lacking(log: OperationLog, planned: Mapping[str, Any], hooks: Hooks) -> None:
    """Raises OtherFile where a program that was `planned`, and whose step is not done, is none of these `hooks`."""
    done = {entry.detail.get("step") for entry in log.entries if entry.event == Event.DONE}
    here = {
        OperationStep.BEFORE_HOOK: ("before", hooks.before),
        OperationStep.FREEZE: ("freeze", hooks.freeze),
        OperationStep.AFTER_HOOK: ("after", hooks.after),
    }
    lacking = [name for step, (name, hook) in here.items() if step not in done and planned.get(name) and not hook]
    if lacking:  # not by its arguments, which may be nobody else's to read
        parts = {f"{name}_hook": ("a program", "none") for name in lacking}
        raise OtherFile(log.operation_id, "[failover]", parts)


def lacks_after_hook(log: OperationLog, hooks: Hooks) -> bool:
    """Whether it was to run one, and these have none. Raises JournalDamaged."""
    return bool(_planned(log).get("after")) and not hooks.after


def _planned(log: OperationLog) -> Mapping[str, Any]:
    """The hooks of the file that it was begun with. Raises JournalDamaged."""
    with first_plan(log, intent_of(log).links[0], "which hooks it had") as plan:
        return dict(plan.get("freezing", {}).get("hooks", {}))
