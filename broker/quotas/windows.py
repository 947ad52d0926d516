"""How fast something goes, and for how long it has to rest: Kafka's Rate, in eleven windows of a second. Pure."""

from __future__ import annotations

from typing import Final

WINDOW_MS: Final = 1000
WINDOWS: Final = 11
"""Kafka's quota.window.num: ten whole ones, and the one that is under way."""
KEPT_MS: Final = WINDOWS * WINDOW_MS


class Rate:
    """Once nothing was noted for `KEPT_MS` it is as a new one."""

    __slots__ = ("_at", "_windows")

    def __init__(self) -> None:
        # Of each: when it begins, when something was last noted in it, and how much was.
        self._windows: list[list[float]] = []
        self._at = 0

    def note(self, amount: float, now_ms: float) -> None:
        windows = self._windows
        if not windows:
            windows.append([now_ms, now_ms, 0.0])
        elif now_ms - windows[self._at][0] >= WINDOW_MS:
            self._at = (self._at + 1) % WINDOWS
            if self._at == len(windows):
                windows.append([now_ms, now_ms, 0.0])
            else:
                windows[self._at][:] = now_ms, now_ms, 0.0
        window = windows[self._at]
        window[1] = now_ms
        window[2] += amount

    def measure(self, now_ms: float) -> tuple[float, float]:
        """By the second, and of how many milliseconds that is: of ten windows at least."""
        kept = [window for window in self._windows if now_ms - window[1] < KEPT_MS]
        if not kept:
            return 0.0, (WINDOWS - 1) * WINDOW_MS
        elapsed_ms = now_ms - min(window[0] for window in kept)
        missing = WINDOWS - 1 - int(elapsed_ms // WINDOW_MS)
        span_ms = elapsed_ms + max(0, missing) * WINDOW_MS
        return sum(window[2] for window in kept) * 1000 / span_ms, span_ms

    def rest_ms(self, limit: float, now_ms: float) -> float:
        """Until it is as slow as `limit` by the second, if nothing more comes; 0: it is."""
        rate, span_ms = self.measure(now_ms)
        return (rate - limit) / limit * span_ms if rate > limit else 0.0
