"""The plan of a link, as the operation's first entry keeps it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from failover.errors import JournalDamaged
from failover.journal.standing import NO_INTENT
from failover.journal.values import OperationLog


@contextmanager
def first_plan(log: OperationLog, link: str, what: str) -> Iterator[Mapping[str, Any]]:
    """Empty where the entry has none of the link. Raises JournalDamaged where `what` is looked for in it in the context
    cannot be read.
    """
    try:
        plans = log.entries[0].detail.get("plans", ())
        yield next((plan for plan in plans if plan["snapshot"]["link"] == link), {})
    except NO_INTENT as error:
        said = f"{what}, when it began, cannot be read"
        raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}") from error
