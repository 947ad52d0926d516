"""A seed's run to its end: what ended it is its result, and the other seeds go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar


class Noted(Protocol):
    """What a run came to."""

    problems: list[str]
    seconds: float


R = TypeVar("R", bound=Noted)


async def noted(run: Callable[[], Awaitable[None]], result: R, evidence: Path) -> R:
    """`result`, with how long the run took and, where it failed, why; `evidence` is where its traceback is put."""
    started_s = time.monotonic()
    try:
        await run()
    except Exception as error:  # noqa: BLE001 whatever it was: it is this seed's result, and the other seeds go on
        evidence.write_text("".join(traceback.format_exception(error)))
        result.problems.append(f"{type(error).__name__}: {error}; see {evidence}")
    result.seconds = time.monotonic() - started_s
    return result
