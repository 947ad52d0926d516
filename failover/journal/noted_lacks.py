"""What a plan said that its target lacks, as the operation's first entry keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from failover.errors import JournalDamaged
from failover.journal.standing import NO_INTENT
from failover.journal.values import OperationLog
from failover.observing.snapshot import Lacked
from mirror.api import PartingKind, SourceParting


def noted_lacks(log: OperationLog, link: str) -> tuple[tuple[SourceParting, ...], tuple[Lacked, ...]]:
    """By who found it while the source answered; none where an earlier version wrote it. Raises JournalDamaged where it
    cannot be read.
    """
    try:
        for plan in log.entries[0].detail.get("plans", ()):
            if plan["snapshot"]["link"] == link:
                lacks = tuple(_parting(one) for one in plan.get("lacks", ()))
                return lacks, tuple(_lacked(one) for one in plan["snapshot"].get("lacked", ()))
    except NO_INTENT as error:
        said = "what its target lacked, when it began, cannot be read"
        raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}") from error
    return (), ()


def _parting(document: Mapping[str, Any]) -> SourceParting:
    known = {name: document[name] for name in SourceParting.__slots__ if name in document}
    return SourceParting(**{**known, "kind": PartingKind(known["kind"])})


def _lacked(document: Mapping[str, Any]) -> Lacked:
    return Lacked(**{name: document[name] for name in Lacked.__slots__})
