"""All that failover, monitoring and chaos may use of the mirror."""

from mirror.acls.record import AclRecord
from mirror.carried_back import CarriedBack, carried_back
from mirror.errors import LinkFenced, MirrorError
from mirror.findings import link_findings, next_command
from mirror.groups.committing import Commits, Due, OffsetsHeld, commit_groups, find_places, until_counted
from mirror.groups.decisions import carried_offset, is_set_back_there
from mirror.groups.moved import MovedPair, moved_groups, with_entries
from mirror.groups.sync import CONSUMER_PROTOCOL_TYPES
from mirror.heartbeat import Heartbeat, HeartbeatWatch, Pulse, judge_heartbeat
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, GROUPS_PER_TRANSACTION
from mirror.link import CHAOS_PREFIX, PRODUCERS_TOPIC, Link, named_literally
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.looking import LinkLook, look_at_link
from mirror.offsets.acceptance import anew_asked_at_ms, ask_to_accept
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, LinkRun, RunState
from mirror.offsets.fence import fence_groups
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, VoidGroup, Written
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.intervals import End
from mirror.offsets.last_looks import LastLooks
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.operations import Promotion, leave_stranded, promote_link, refuse_promotion, resume_link
from mirror.offsets.promotion_entries import BackPromotion
from mirror.offsets.promotions import is_later, promotion_of, tell_links_back
from mirror.offsets.returns import Returning, Returns
from mirror.offsets.runs import OthersCounter, last_landed
from mirror.offsets.shared import GroupMap
from mirror.offsets.source_ends import Ceased, LastLook, Observation, SeenEnd, SourceBrokers, load_observation
from mirror.offsets.state import LinkState, StateReader, StateReaders, load_link_state, load_partial_state, read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change, StateLog, check_compacted
from mirror.origins import may_carry_on, may_select, may_write_one_topic
from mirror.split import LocalWrites, NotRead, Split, promoted_backs
from mirror.status import STATUS_LIMITS, LinkCondition, LinkStatus, acls_of, condition_now, link_status
from mirror.tails import look_for_tails
from mirror.transactions import end_by_hand
from mirror.worker.carried_counter import CarriedCounter
from mirror.worker.declared import (
    Completed,
    DeclaredOtherwise,
    DeclaredPart,
    compare_at_target,
    complete_and_compare,
    complete_link,
)
from mirror.worker.group_map import load_group_map
from mirror.worker.outlived import in_doubt_now
from mirror.worker.parted import PartingKind, SourceParting, source_partings, that_are_missing
from mirror.worker.registry import registered_at
from mirror.worker.stranded_tail import StrandedTail
from mirror.worker.stranding import TailReader, records_in

__all__ = [
    "CHAOS_PREFIX",
    "CLOCK_DIFFERENCE_MAX_MS",
    "CONSUMER_PROTOCOL_TYPES",
    "GROUPS_PER_TRANSACTION",
    "NEVER_ASKED",
    "PRODUCERS_TOPIC",
    "STATUS_LIMITS",
    "Acceptance",
    "AclRecord",
    "BackPromotion",
    "CarriedBack",
    "CarriedCounter",
    "Ceased",
    "Change",
    "Checkpoint",
    "Commits",
    "Completed",
    "DeclaredOtherwise",
    "DeclaredPart",
    "Due",
    "End",
    "FenceEnd",
    "Gap",
    "GapKind",
    "GapStatus",
    "GroupAction",
    "GroupMap",
    "GroupSync",
    "GroupSyncs",
    "Heartbeat",
    "HeartbeatWatch",
    "HoldReason",
    "LastLook",
    "LastLooks",
    "Link",
    "LinkCondition",
    "LinkFenced",
    "LinkFinding",
    "LinkFindingKind",
    "LinkLook",
    "LinkRun",
    "LinkState",
    "LinkStatus",
    "LocalWrites",
    "MirrorError",
    "MovedPair",
    "NotRead",
    "Observation",
    "OffsetMap",
    "OffsetsHeld",
    "OthersCounter",
    "PartingKind",
    "Promotion",
    "Pulse",
    "Returning",
    "Returns",
    "RunState",
    "SeenEnd",
    "SourceBrokers",
    "SourceParting",
    "Split",
    "StateEntries",
    "StateLog",
    "StateReader",
    "StateReaders",
    "StrandedTail",
    "TailReader",
    "VoidGroup",
    "Written",
    "acls_of",
    "anew_asked_at_ms",
    "ask_to_accept",
    "carried_back",
    "carried_offset",
    "check_compacted",
    "commit_groups",
    "compare_at_target",
    "complete_and_compare",
    "complete_link",
    "condition_now",
    "end_by_hand",
    "fence_groups",
    "find_places",
    "in_doubt_now",
    "is_later",
    "is_set_back_there",
    "judge_heartbeat",
    "last_landed",
    "leave_stranded",
    "link_findings",
    "link_status",
    "load_group_map",
    "load_link_state",
    "load_observation",
    "load_partial_state",
    "look_at_link",
    "look_for_tails",
    "may_carry_on",
    "may_select",
    "may_write_one_topic",
    "moved_groups",
    "named_literally",
    "next_command",
    "promote_link",
    "promoted_backs",
    "promotion_of",
    "read_entries",
    "records_in",
    "refuse_promotion",
    "registered_at",
    "resume_link",
    "source_partings",
    "tell_links_back",
    "that_are_missing",
    "until_counted",
    "with_entries",
]
