"""Names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

NAMED_MAX = 5


def named(names: Sequence[str], most: int = NAMED_MAX) -> str:
    """The first of them, and whether there are more."""
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")
