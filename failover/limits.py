"""Named limits of an operation, with their units."""

from __future__ import annotations

from typing import Final

SOURCE_PROBE_MS: Final = 5_000
"""How long a source may take to answer before it counts as gone."""
SOURCE_LOOK_MS: Final = 15_000
"""How long a failover waits for the whole of a source that answers in part; then it counts as gone."""
DRAIN_TIMEOUT_S: Final = 60.0
QUIET_S: Final = 2.0
"""The source's ends must stand still this long before a switchover believes that its producers have stopped."""
DRAIN_POLL_S: Final = 0.25

assert QUIET_S < DRAIN_TIMEOUT_S
assert DRAIN_POLL_S < QUIET_S
