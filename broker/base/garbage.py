"""Python's looks for garbage, in a process that holds much and for long.

A full look goes over every object of the process, and nothing else runs meanwhile: 0.1 s with ten thousand partitions.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FULL: Final = 2
"""The generation of a full look."""
SLOW_LOOK_S: Final = 0.02
MUCH_OBJECTS: Final = 200_000
"""A look over so many is a slow one; of fewer it is cheap to find out which died in cycles."""
BETWEEN_WHOLE_LOOKS_S: Final = 3600.0


@contextmanager
def without_looks() -> Iterator[None]:
    """None while much is made at once that stays. If `passing_over_what_stays`, and it was much, that is left out of
    later looks, too; else the first one finds all that died meanwhile.

    These may overlap: it ends with the one that began it, so that no row of them keeps looks away for good.
    """
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            if gc.get_freeze_count() and gc.get_count()[0] >= MUCH_OBJECTS:
                gc.freeze()
            gc.enable()


@contextmanager
def passing_over_what_stays(
    monotonic: Callable[[], float], *, slow_look_s: float = SLOW_LOOK_S, whole_every_s: float = BETWEEN_WHOLE_LOOKS_S
) -> Iterator[None]:
    """What a slow full look has found to be alive is left out of later ones, for `whole_every_s` at most.

    Right after a full look nothing is garbage, so that only what dies later in cycles waits for the hour's end
    (`gc.freeze`). Looks cost by what came since, not by all that is held.
    """
    began = monotonic()
    whole_at = began + whole_every_s

    def looked(phase: str, info: dict[str, int]) -> None:
        nonlocal began, whole_at
        now = monotonic()
        if phase == "start":
            began = now
        elif now >= whole_at:
            whole_at = now + whole_every_s
            gc.unfreeze()
        elif info["generation"] == FULL and now - began >= slow_look_s:
            gc.freeze()

    gc.collect()
    gc.freeze()
    gc.callbacks.append(looked)
    try:
        yield
    finally:
        gc.callbacks.remove(looked)
        gc.unfreeze()
