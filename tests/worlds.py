"""How many generated worlds of each family a run plays, and how many examples where there would be many hundreds."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

WHOLE: Final = os.environ.get("FARSHORE_WORLDS") == "all"
"""`make worlds`."""


def first_worlds(count: int, of: int) -> int:
    """The first `count` by `make test`, all by `make worlds`. What is drawn from them is asserted of either number."""
    assert count < of
    return of if WHOLE else count


EACH: Final = 1 if WHOLE else 2
"""Of the places at which something is cut short, where there are many alike: each by `make worlds`, or every second."""


def rarely_found(*values: object) -> Any:
    """Parameters of a test with a planted bug that only a long search sees: `make worlds` and `make chaos` play it."""
    return pytest.param(*values, marks=pytest.mark.slow)
