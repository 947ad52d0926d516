from __future__ import annotations

import pytest

from broker.base.durations import DurationInvalid, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("2h", 7_200_000), ("1d", 86_400_000), ("1h30m", 5_400_000)],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "10", "m", "-5s", "1.5h", "10 m", "10mm", "5sx"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(DurationInvalid, match="is no duration"):
        parse_duration_ms(text)
