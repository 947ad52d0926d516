"""What a drill finds: one thing at a time, and how old what it was told of is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from broker.base.durations import human_seconds
from mirror.api import CLOCK_DIFFERENCE_MAX_MS


@dataclass(frozen=True, slots=True)
class DrillFinding:
    """One thing that would be in the way, or would be lost unseen. `subject`: a group, a partition, a site, a link."""

    kind: str
    subject: str
    detail: str
    next_step: str = ""


def counts_by_kind(findings: Collection[DrillFinding]) -> dict[str, int]:
    """How many there are of each."""
    return dict(Counter(finding.kind for finding in findings))


def is_old_age(age_ms: int | None, limit_ms: int) -> bool:
    """Also where nobody can tell: a stamp of the future says only that the worker's clock is another one."""
    return age_ms is None or not -CLOCK_DIFFERENCE_MAX_MS <= age_ms <= limit_ms


def age_words(age_ms: int | None) -> str:
    if age_ms is None:
        return "never seen"
    if age_ms < -CLOCK_DIFFERENCE_MAX_MS:
        return f"seen at a time of a clock {human_seconds(-age_ms / 1000)} ahead of this one"
    return f"last seen {human_seconds(age_ms / 1000)} ago"
