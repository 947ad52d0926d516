"""The verbs, and the steps that they are made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """The verbs: one for a living source, one for a lost one, and the way back (`failover/failback/`), which has a
    switchover among its steps.
    """

    SWITCHOVER = "switchover"
    FAILOVER = "failover"
    FAILBACK = "failback"


class OperationStep(StrEnum):
    """The steps in the order in which they run; each may be repeated without harm."""

    BEFORE_HOOK = "before_hook"
    """A program of the operator's, which may refuse: nothing was changed yet."""
    FREEZE = "freeze"
    """Clients of the source stop writing; undone where the operation is given up before the fence."""
    DRAIN = "drain"
    FENCE = "fence"
    MOVE_GROUPS = "move_groups"
    HAND_OVER = "hand_over"
    """The source becomes the standby site, then the target the active one."""
    VERIFY = "verify"
    AFTER_HOOK = "after_hook"


BEFORE_FENCE: Final = (OperationStep.BEFORE_HOOK, OperationStep.FREEZE, OperationStep.DRAIN)
"""What is undone, or has changed nothing, where the operation is given up."""
