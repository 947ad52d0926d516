"""Named limits of the mirror, with their units in their names."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

GROUPS_IN_FLIGHT: Final = 16
"""Groups whose offsets are fetched or committed at the same time."""
GROUP_SYNC_TIMEOUT_MS: Final = 4_000
"""What one group's commit may take within a pass, so that one bad group does not hold up the others."""
LAG_SCAN_MAX_BYTES: Final = MIB
"""The unmirrored tail of a partition is read up to this size for an exact lag; beyond it the lag is estimated."""
STATUS_REFRESH_INTERVAL_MS: Final = 2_000
