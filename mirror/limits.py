"""Named limits of the mirror, with their units in their names."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

GROUPS_IN_FLIGHT: Final = 256
"""Groups whose offsets are committed at the same time. Right before, the fence is asked and the target looked at again:
1,000 groups take four times three round trips."""
GROUP_COMMIT_TIMEOUT_MS: Final = 2_000
"""What may pass from the answer of the fence to the last commit that stands on it. A promotion waits as long."""
GROUP_SYNC_TIMEOUT_MS: Final = 4_000
"""What one group's offsets may take to be read in a pass: a bad one does not hold up the others."""
GROUPS_NOT_SEEN_AFTER_MS: Final = 60_000
"""A link whose worker lives and has not looked at its groups for so long has a finding."""
LAG_SCAN_MAX_BYTES: Final = MIB
"""The unmirrored tail of a partition is read up to this size for an exact lag; beyond it the lag is estimated."""
STATUS_REFRESH_INTERVAL_MS: Final = 2_000
HEARTBEAT_INTERVAL_MS: Final = 5_000
"""How often a worker says in the link's state that it lives."""
HEARTBEAT_MAX_AGE_MS: Final = 15_000
"""A worker whose newest heartbeat is older is taken for gone."""
CLOCK_DIFFERENCE_MAX_MS: Final = 5_000
"""By how much the clocks of a worker and of who looks may differ before a stamp means nothing."""
RESTARTS_IN_A_LOOP: Final = 2
"""So many sessions in a row that ended by an error, none of which lasted, are a link that restarts in a loop."""

assert 3 * HEARTBEAT_INTERVAL_MS <= HEARTBEAT_MAX_AGE_MS, "one late heartbeat is no death"
assert CLOCK_DIFFERENCE_MAX_MS < HEARTBEAT_MAX_AGE_MS
