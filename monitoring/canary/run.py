"""`farshore canary run`: one canary for some time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from mirror.api import Link
from monitoring.canary.probe import CanaryProbe
from monitoring.canary.verdict import CanaryJudge, CanaryReport


async def run_canary(link: Link, duration_ms: int, tick: Callable[[], None]) -> CanaryReport:
    """Write for `duration_ms`, wait for what is under way, and report. Raises CanaryError and the mirror's errors."""
    judge = CanaryJudge(link.name, new_run())
    probe = CanaryProbe(link, judge, now_ms)
    await probe.prepare()
    await probe.run(duration_ms, tick)
    return judge.report()


def new_run() -> str:
    """A name that no other canary has."""
    return uuid.uuid4().hex[:12]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
