"""Durations as people write them: 500ms, 30s, 10m, 2h, 1d."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"(\d+)(ms|s|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Milliseconds of "10m" or "1h30m". Raises ValueError."""
    parts = _FORM.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f"{text!r} is no duration: write a number and a unit, for example 30s, 10m or 1h")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


class Duration(click.ParamType[int]):
    """A click type that gives milliseconds, at least `at_least_ms`."""

    name = "duration"

    def __init__(self, at_least_ms: int) -> None:
        self._at_least_ms = at_least_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            duration_ms = parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration_ms < self._at_least_ms:
            self.fail(f"{value!r} is too short: at least {self._at_least_ms / 1000:g}s", param, ctx)
        return duration_ms
