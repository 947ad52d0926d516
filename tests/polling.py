"""How soon a test that waits asks again.

One that asks a cluster, or runs a command, each time would keep a processor busy, which what it waits for needs.
"""

from __future__ import annotations

from typing import Final

SOONEST_S: Final = 0.05
LATEST_S: Final = 1.0
PAUSES_PER_QUESTION: Final = 3


def pause_s(took_s: float) -> float:
    """`took_s`: the question. A dear one is asked a quarter of the time at most."""
    return min(max(SOONEST_S, PAUSES_PER_QUESTION * took_s), LATEST_S)
