"""What happened in one seed, kept cheaply and written out only when something was found."""

from __future__ import annotations

from collections.abc import Callable

SHOWN_LINES = 120


class Found(AssertionError):
    """The simulation found something that must not be."""


class Trace:
    """Lines with the simulated time; each is kept as its parts and put together when it is shown."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._lines: list[tuple[float, str, tuple[object, ...]]] = []

    def __call__(self, what: str, *parts: object) -> None:
        self._lines.append((self._time(), what, parts))

    def lines(self) -> list[str]:
        return [f"{at:10.4f}  {what} {' '.join(map(str, parts))}" for at, what, parts in self._lines]

    def shown(self, *, whole: bool) -> str:
        """The last lines, or all."""
        lines = self.lines()
        if whole or len(lines) <= SHOWN_LINES:
            return "\n".join(lines)
        return "\n".join([f"... {len(lines) - SHOWN_LINES} lines before", *lines[-SHOWN_LINES:]])
