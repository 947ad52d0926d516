"""A plan as a document: written by one command, looked at by people, carried out by another, as long as it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.base.documents import read_time, to_document
from failover.errors import PlanUnreadable, WorldChanged
from failover.observing.sites import Sites
from failover.planning.intent import Intent, read_intent
from failover.planning.world import ChangeKind, World, changes, read_world, told_changes, world_of
from failover.running.link_run import LinkMove
from failover.running.steps import Operation

PLAN_VERSION: Final = 5
ANEW = "write it anew, with --out, and look at it again"


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What was asked for, what it was made from, per link, and the digest that names it, "" where it is no file.
    `found_dead_at_ms`: as in the links' snapshots, by their names.
    """

    intent: Intent
    worlds: tuple[World, ...]
    digest: str = ""
    found_dead_at_ms: Mapping[str, int | None] = field(default_factory=dict)

    def as_found(self, sites: Iterable[Sites]) -> list[Sites]:
        """With when the sources were found dead first: what was lost does not grow while a person reads."""
        return [replace(one, found_dead_at_ms=self.found_dead_at_ms.get(one.link.name)) for one in sites]


def plan_document(intent: Intent, moves: Sequence[LinkMove]) -> dict[str, Any]:
    """`plans` are for people; the others are what is carried out, and held against the world."""
    content = {
        "plan_version": PLAN_VERSION,
        "intent": intent.document(),
        "worlds": [world_of(move.plan, move.sites.link).document() for move in moves],
        "plans": [to_document(move.plan) for move in moves],
    }
    return {**content, "digest": _digest(content)}


def write_plan(path: Path, intent: Intent, moves: Sequence[LinkMove]) -> None:
    """Raises OSError."""
    path.write_text(json.dumps(plan_document(intent, moves), indent=2, ensure_ascii=False) + "\n")


def read_plan(path: Path) -> PlanFile:
    """Raises PlanUnreadable for what is no plan, of another version, or was edited; OSError."""
    try:
        document = json.loads(path.read_text())
        digest = document.pop("digest")
        if document["plan_version"] != PLAN_VERSION:
            raise PlanUnreadable(f"{path} is of another version of farshore", hint=ANEW)
        if digest != _digest(document):
            raise PlanUnreadable(f"{path} is not as it was written", hint=ANEW)
        intent = read_intent(document["intent"])
        if intent.operation is Operation.FAILBACK:
            raise PlanUnreadable(f"{path} is of a failback, which is no move of one plan", hint=ANEW)
        seen = [plan["snapshot"] for plan in document["plans"]]
        found = {one["link"]: read_time(one.get("found_dead_at")) for one in seen}
        return PlanFile(intent, tuple(map(read_world, document["worlds"])), digest, found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanUnreadable(f"{path} holds no plan of farshore's", hint=ANEW) from error


def check_holds(
    worlds: Sequence[World], moves: Sequence[LinkMove], hint: str = ANEW, but: Container[ChangeKind] = ()
) -> None:
    """Raises WorldChanged, which names what is not as it was when the plan was made; `but`: what may be so."""
    found = [
        change
        for before, move in zip(worlds, moves, strict=True)
        for change in changes(before, world_of(move.plan, move.sites.link))
        if change.kind not in but
    ]
    if found:
        raise WorldChanged(f"the plan holds no more: {told_changes(found)}; nothing was changed", hint=hint)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
