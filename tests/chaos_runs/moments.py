"""What came of each moment at which hands were laid on a cluster, and the table of all of them. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

WANTED_MOMENTS = 20
"""Of each action to each kind of cluster."""


class Outcome(StrEnum):
    """What a moment came to."""

    MIRRORED_ON = "mirrored on"
    WENT_ON = "stopped, went on"
    """It stood still, and the way on that farshore named worked."""
    REFUSED = "refused, went on"
    """What cannot be adopted was refused, and the way on that the refusal named worked."""
    FAULT = "fault"


@dataclass(frozen=True)
class Moment:
    """One action, the kind of cluster that it was done to, and what came of it."""

    action: str
    kind: str
    outcome: Outcome


@dataclass
class HandsResult:
    """What one seed came to: the moments, at which gaps the operator was asked, and what must not be."""

    seed: int
    pair: str
    actions: Sequence[str]
    records: int = 0
    accepted: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
    """By action, or "run"."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def line(self) -> str:
        text = (
            f"{'ok  ' if self.is_good else 'FAIL'} seed {self.seed} {self.pair}: {' '.join(self.actions)}; "
            f"{len(self.moments)} moments, {self.records} records, {len(self.accepted)} consents, {self.seconds:.0f} s"
        )
        return "\n     ".join([text, *(f"{name}: {said}" for name, all_ in self.problems.items() for said in all_[:6])])

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def result_from(text: str) -> HandsResult:
    """The inverse of `HandsResult.to_json`."""
    fields = json.loads(text)
    moments = [Moment(m["action"], m["kind"], Outcome(m["outcome"])) for m in fields.pop("moments")]
    return HandsResult(moments=moments, **fields)


def table(results: Iterable[HandsResult]) -> str:
    """Per action and kind of cluster how many moments there were and what came of them; then the runs."""
    results = list(results)
    counts = Counter((m.action, m.kind, m.outcome) for result in results for m in result.moments)
    rows = sorted({(action, kind) for action, kind, _ in counts})
    lines = [f"{'action':18} {'cluster':8} {'moments':>7} " + " ".join(f"{outcome:>16}" for outcome in Outcome)]
    for action, kind in rows:
        cells = [counts[action, kind, outcome] for outcome in Outcome]
        few = "" if sum(cells) >= WANTED_MOMENTS else f"  (fewer than {WANTED_MOMENTS})"
        lines.append(f"{action:18} {kind:8} {sum(cells):7} " + " ".join(f"{cell:16}" for cell in cells) + few)
    bad = [result for result in results if not result.is_good]
    consents = sum(len(result.accepted) for result in results)
    lines.append(
        f"{len(results)} runs, {len(bad)} with problems; {counts.total()} moments, "
        f"{sum(count for (_, _, outcome), count in counts.items() if outcome is Outcome.FAULT)} faults; "
        f"{consents} consents, {sum(result.records for result in results)} records at the sources in the end"
    )
    return "\n".join(lines)
