"""Names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_MAX = 5


def named(names: Sequence[str]) -> str:
    """The first of them, and whether there are more."""
    return ", ".join(names[:NAMED_MAX]) + (" and others" if len(names) > NAMED_MAX else "")
