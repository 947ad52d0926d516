"""Named limits of the mirror, with their units in their names."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

GROUPS_PER_TRANSACTION: Final = 1_000
"""Groups whose offsets are committed together: some eight round trips, in four of which readers may wait for them."""
GROUP_COMMIT_ROUNDS: Final = 3
"""Transactions that are begun for the same groups, each without those that stood against the one before."""
HELD_NAMED_MAX: Final = 3
"""Partitions that are named where a transaction has a group's offsets."""
GROUP_TRANSACTION_TIMEOUT_MS: Final = 15_000
"""After that a broker takes back what a worker has staged that died amid a commit. A successor does so at once."""
GROUP_FENCE_PATIENCE_MS: Final = 10_000
"""What the markers of the last commit may take. Kafka has fenced before it waits for them."""
FENCE_PATIENCE_MS: Final = 2_000
"""What the markers of the link's fence may take before it is looked at who holds it up, and then between two looks."""
FENCE_AWAITS_NAMED_MAX: Final = 10
GROUP_SYNC_TIMEOUT_MS: Final = 4_000
"""What one group's offsets may take to be read or to be staged: a bad one does not hold up the others."""
GROUPS_NOT_SEEN_AFTER_MS: Final = 60_000
"""A link whose worker lives and has not looked at its groups for so long has a finding."""
ACLS_NOT_SEEN_AFTER_MS: Final = 300_000
"""So with its ACLs, where it carries them, which it looks at once a minute."""
LAG_SCAN_MAX_BYTES: Final = MIB
"""The unmirrored tail of a partition is read up to this size for an exact lag; beyond it the lag is estimated."""
TRANSACTION_OPEN_MAX_MS: Final = 60_000
"""A transaction at the source that holds up its partition for longer is a finding; one that is only long is none."""
SPLIT_COUNT_MS: Final = 5_000
"""How long each site's records are counted where both sites of a promoted link were written to."""
PARTED_LOOK_MS: Final = 30_000
"""How long a site's logs are held against what was mirrored from them; what is not compared then is said to be."""
LACKS_LOOK_MS: Final = 3_000
"""As PARTED_LOOK_MS, in a look at a promoted link: that ends before a monitor gives it up."""
TELL_LINKS_BACK_MS: Final = 2_000
"""What it may take to tell the links back of a promotion: a source that is half gone does not hold it up."""
KEEP_FENCE_ENDS_MS: Final = 2_000
"""What it may take to keep where the source's logs ended at a promotion, which it does not hold up; and then where the
target's end behind its fence."""
STATUS_REFRESH_INTERVAL_MS: Final = 2_000
HEARTBEAT_INTERVAL_MS: Final = 5_000
"""How often a worker says in the link's state that it lives."""
HEARTBEAT_MAX_AGE_MS: Final = 15_000
"""A worker whose newest heartbeat is older is taken for gone."""
CLOCK_DIFFERENCE_MAX_MS: Final = 5_000
"""By how much the clocks of a worker and of who looks may differ before a stamp means nothing."""
RESTARTS_IN_A_LOOP: Final = 2
"""So many sessions in a row that ended by an error, none of which lasted, are a link that restarts in a loop."""

assert 3 * GROUP_SYNC_TIMEOUT_MS < GROUP_TRANSACTION_TIMEOUT_MS, "staged, looked at, and ended with time to spare"
assert 3 * HEARTBEAT_INTERVAL_MS <= HEARTBEAT_MAX_AGE_MS, "one late heartbeat is no death"
assert CLOCK_DIFFERENCE_MAX_MS < HEARTBEAT_MAX_AGE_MS
