"""The nearest-rank percentile: always a value that was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that `share` (0 to 1) of the values do not exceed; None of no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
