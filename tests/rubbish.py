"""How often Python looks for garbage while tests run."""

from __future__ import annotations

import gc

from broker.base.children import die_with_parent

BETWEEN_LOOKS = 20_000
"""In new objects. By Python's own 700 a simulation spends a twentieth of its time on looking."""


def look_for_garbage_rarely() -> None:
    """What is there now stays, and is not looked at again: modules, tests that were collected, what became of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(BETWEEN_LOOKS, *gc.get_threshold()[1:])


def begin_simulating() -> None:
    """First in a process that runs seeds for others."""
    die_with_parent()
    look_for_garbage_rarely()
