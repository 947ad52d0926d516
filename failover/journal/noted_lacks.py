"""What was found of the source at first, as the plan in the operation's first entry keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.base.documents import read_time
from broker.wire.vocabulary import TopicPartition
from failover.journal.first_plan import first_plan
from failover.journal.values import OperationLog
from failover.observing.sites import Sites
from failover.observing.snapshot import Lacked
from mirror.api import PartingKind, SourceParting


def as_noted(log: OperationLog, sites: Sites) -> Sites:
    """With what the target lacks, and where the source's log was another one than was mirrored: a source that is gone
    by now tells neither any more. And when nobody listened there: what was lost does not grow while the operation waits
    for whom takes it up. Raises JournalDamaged.
    """
    lacks, lacked = _noted_lacks(log, sites.link.name)
    parted, found_at_ms = sites.parted | _noted_parted(log, sites.link.name), _noted_dead(log, sites.link.name)
    return replace(sites, lacks=lacks, lacked=lacked, parted=parted, found_dead_at_ms=found_at_ms)


def _noted_dead(log: OperationLog, link: str) -> int | None:
    """None also where an earlier version wrote it."""
    with first_plan(log, link, "when its source was found dead") as plan:
        return read_time(plan.get("snapshot", {}).get("found_dead_at"))


def _noted_lacks(log: OperationLog, link: str) -> tuple[tuple[SourceParting, ...], tuple[Lacked, ...]]:
    """By who found it while the source answered; none where an earlier version wrote it. Raises JournalDamaged where it
    cannot be read.
    """
    with first_plan(log, link, "what its target lacked") as plan:
        lacks = tuple(_parting(one) for one in plan.get("lacks", ()))
        lacked = tuple(_lacked(one) for one in plan.get("snapshot", {}).get("lacked", ()))
    return lacks, lacked


def _noted_parted(log: OperationLog, link: str) -> frozenset[TopicPartition]:
    """Whatever the doubt was: what somebody consented to lose as unknown is no number because nobody can tell now."""
    with first_plan(log, link, "which source logs were in doubt") as plan:
        views = plan.get("snapshot", {}).get("partitions", ())
        parted = [TopicPartition(view["topic"], view["partition"]) for view in views if not view.get("trusted", True)]
    return frozenset(parted)


def _parting(document: Mapping[str, Any]) -> SourceParting:
    known = {name: document[name] for name in SourceParting.__slots__ if name in document}
    return SourceParting(**{**known, "kind": PartingKind(known["kind"])})


def _lacked(document: Mapping[str, Any]) -> Lacked:
    return Lacked(**{name: document[name] for name in Lacked.__slots__})
