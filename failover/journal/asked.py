"""Whether the source was asked where groups stand when their moves were decided on, as the journal has it. Pure."""

from __future__ import annotations

from failover.journal.values import Event, OperationLog
from failover.running.steps import OperationStep


def is_source_asked(log: OperationLog, link: str, step: OperationStep, at: Event = Event.DONE) -> bool:
    """Of the moves that this step last ended with, or began with, as `done_moves` reads them. Not known to be where an
    earlier version wrote it.
    """
    is_asked = False
    for entry in log.entries:
        if entry.event == at and entry.detail["step"] == step.value and link in entry.detail.get("moves", ()):
            named = entry.detail.get("source_asked")
            is_asked = isinstance(named, list) and link in named
    return is_asked
