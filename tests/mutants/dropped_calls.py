"""A kind of bug that mutmut does not plant: a call made for its effect is left out."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst
from mutmut.mutation import mutators


def drop_call(node: cst.Expr) -> Iterable[cst.BaseSmallStatement]:
    """`self._settle()` and `await queue.put(item)` become `pass`."""
    value = node.value.expression if isinstance(node.value, cst.Await) else node.value
    if isinstance(value, cst.Call):
        yield cst.Pass()


def plant_dropped_calls() -> None:
    """Add them to what mutmut plants, once."""
    if (cst.Expr, drop_call) not in mutators.mutation_operators:
        assert isinstance(mutators.mutation_operators, list)
        mutators.mutation_operators.append((cst.Expr, drop_call))
