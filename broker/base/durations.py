"""Durations as people write them (500ms, 30s, 10m, 1h30m) and as they read them."""

from __future__ import annotations

import re
from typing import Final

from broker.base.errors import FarshoreError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


class DurationInvalid(FarshoreError):
    """Text that is no duration."""

    hint = "write a number and a unit, for example 500ms, 30s, 10m or 1h30m"


def parse_duration_ms(text: str) -> int:
    """Milliseconds of "10m" or "1h30m". Raises DurationInvalid."""
    parts = _FORM.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise DurationInvalid(f"{text!r} is no duration: write a number and a unit, for example 30s, 10m or 1h")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def human_seconds(seconds: float) -> str:
    """0.0421 -> "42 ms", 75.2 -> "1 min 15 s"."""
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:,.1f} days"
