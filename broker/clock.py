"""Time as the broker sees it. Passed in everywhere, so that tests can move it."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, as Kafka's timestamps."""
        ...

    def monotonic(self) -> float:
        """Seconds from a fixed but unknown start; never goes back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
