"""All that failover, monitoring and chaos may use of the mirror."""

from mirror.errors import MirrorError
from mirror.lag import PartitionLag, link_lag
from mirror.link import Link
from mirror.offsets.entries import GapStatus, RunState
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.operations import promote_link
from mirror.offsets.shared import GroupMap, load_group_map
from mirror.offsets.state import LinkState, StateEntries, load_link_state, read_entries

__all__ = [
    "GapStatus",
    "GroupMap",
    "Link",
    "LinkState",
    "MirrorError",
    "OffsetMap",
    "PartitionLag",
    "RunState",
    "StateEntries",
    "link_lag",
    "load_group_map",
    "load_link_state",
    "promote_link",
    "read_entries",
]
