"""What the state topic of a link holds, as values, and as the keys and values of its records.

Keys and values are JSON, so that a stock consumer can read them. A key is a list that starts with the entry's kind; a
value is an object with the version `v`; a null value (a tombstone) takes the entry back. Topics are the source's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from mirror.offsets.acceptance_entries import Acceptance, acceptance_key, unpack_acceptance
from mirror.offsets.group_entries import GroupEntry, GroupSync, GroupSyncTimes, VoidGroup, pack_group, unpack_group
from mirror.offsets.histories import EpochStart
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.offsets.intervals import End, Interval, pack_intervals, unpack_intervals
from mirror.offsets.keys import UNSAID, check_key, dump_json
from mirror.offsets.left_out import LeftOut
from mirror.offsets.origin_entries import OriginRuns, VoidOrigins, origins_key, pack_origins, unpack_origins
from mirror.offsets.pages import PAGE_VERSION, Page, VoidPage, decode_page, encode_page, page_key
from mirror.offsets.promotion_entries import BackPromotion, FencedLogs, PromotionEntry, promotion_key, unpack_promotion
from mirror.offsets.topic_entries import TopicIdentity, TopicPause, VoidPause
from mirror.offsets.unit_entries import CutEntry, LinkDeal, LinkUnits, cut_key, unpack_cut

ENTRY_VERSION = 1
OPERATION_PREFIX = "operation "
"""Before an operation's id, where the owner is no worker."""


class Writer(NamedTuple):
    """Who wrote a batch: the link's producer id, and the epoch that its fence gave."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Block:
    """The intervals of one batch (at least one), written before it is sent, and again if it landed elsewhere.

    `sequence`: of the record at the first interval's target. Where blocks overlap, the one written last holds.
    """

    topic: str
    partition: int
    writer: Writer
    sequence: int
    intervals: tuple[Interval, ...]

    @property
    def key_source(self) -> int:
        """The source offset that the block is kept under. A batch that never landed has it at or after the end."""
        return self.intervals[0].source_start


class LastRecord(NamedTuple):
    """The last record that was mirrored: its offsets, and the producer id that it was written with."""

    source_offset: int
    target_offset: int
    producer_id: int


class TopicIds(NamedTuple):
    """Which topics a partition's offsets speak of, "" where a cluster has no ids: a recreated topic has another."""

    source: str = ""
    target: str = ""


NO_TOPIC_IDS: Final = TopicIds()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A proved position, and what was last seen of the source: its end offset and its newest timestamp in ms.

    Everything before `end` was acknowledged, and all its intervals stand in the state topic before this entry.
    `position` is the source offset to read next: at or after `end.source_next`, with nothing to mirror in between.
    `sequence` is the one that the record at `end` gets.
    """

    topic: str
    partition: int
    end: End
    position: int
    writer: Writer
    sequence: int
    source_end_offset: int
    source_timestamp_ms: int
    observed_at_ms: int
    leader_epochs: tuple[EpochStart, ...] = ()
    """Of the source, as read before `position`: they tell whether its log is still the one that was read."""
    last: LastRecord | None = None
    """None: nothing was mirrored yet, or an older version wrote this."""
    topic_ids: TopicIds = NO_TOPIC_IDS
    epochs_to: int = -1
    """The source offset up to which `leader_epochs` are those that were read; -1: up to `position`."""
    left_out: tuple[LeftOut, ...] = ()
    """What was left to links that bring it to the target directly."""
    marker_may_follow: bool = False
    """Its writer may have put markers behind the end (an extended fence), which no epoch tells."""
    records_behind: int = -1
    """How many records of its writer stand right behind the end, where no more can come; -1: that is not known."""

    @property
    def epochs_end(self) -> int:
        """What an answer about the last leader epoch is held against: behind it the epochs were not seen."""
        return self.epochs_to if self.epochs_to >= 0 else self.position


class GapKind(StrEnum):
    """Why source records are missing at the target, or why a partition stands still."""

    TRUNCATED_START = "truncated_start"
    """Retention (or DeleteRecords) at the source passed the mirror: the range is gone."""
    TRUNCATED_END = "truncated_end"
    """The source lost records that were mirrored (an unclean election, a restored disk); it may have others there."""
    RECREATED = "recreated"
    """The source topic was deleted and recreated: its offsets mean other records now."""
    FOREIGN_WRITER = "foreign_writer"
    """Somebody else wrote into a partition that only the mirror may write."""
    UNREADABLE_BATCH = "unreadable_batch"
    """A source batch is damaged."""
    REFUSED_BATCH = "refused_batch"
    """The target refuses a batch for what is in it (size, timestamps, a missing key)."""
    TARGET_TRUNCATED = "target_truncated"
    """The target lost what it had acknowledged (a topic recreated there, an unclean election)."""
    TARGET_NOT_EMPTY = "target_not_empty"
    """The target has records that the link's state does not know: others', or of another link from the same source."""
    MIXED_ORIGINS = "mixed_origins"
    """Another mirror brought records under one producer id, of which some came from the target and some did not."""
    LEFT_OUT = "left_out"
    """Records of another site were left to a link that brings them directly, and is gone: which, nobody knows."""
    STRANDED = "stranded"
    """Only the source had these when the target was promoted, and a person decided that they stay there."""
    DELETED = "deleted"
    """The source has the partition no more; the range is what the mirror had seen of it and not mirrored."""
    MIRRORED_ANEW = "mirrored_anew"
    """An operator has all that the source has of it mirrored again, behind what the target has: it never stops one."""


class GapStatus(StrEnum):
    STOPPED = "stopped"
    """The partition stands still until an operator decides."""
    ACCEPTED = "accepted"
    """An operator accepted it; the link goes on at `source_to` at its next start."""
    PASSED = "passed"
    """The link went on behind the gap."""
    GONE = "gone"
    """What had stopped the partition was not there any more at a later start: for this gap nothing was left out."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An entry of the gap ledger: source offsets [source_from, source_to) are not mirrored, and why.

    For a recreated topic `source_to` is in the new topic, where the link goes on if the gap is accepted. Where the
    source's end or the target was lost it lies before `source_from`: from there on the source's records are not at the
    target, and would be mirrored (at a truncated target: some perhaps again; of one MIRRORED_ANEW: all).
    """

    topic: str
    partition: int
    kind: GapKind
    source_from: int
    source_to: int
    target_offset: int
    status: GapStatus
    at_ms: int
    detail: str


class RunState(StrEnum):
    RUNNING = "running"
    PROMOTED = "promoted"
    PAUSED = "paused"
    """By a person; it keeps its positions."""


@dataclass(frozen=True, slots=True)
class LinkRun:
    """What the link may do, decided by an operation of an operator (or by nobody yet). `at_ms`: when; a link that is
    promoted again, and was not left in between, keeps the first time. `after`: what promoted links back before it was.
    """

    state: RunState
    operation_id: str
    at_ms: int
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The last worker (or operation) that fenced the link, and when it was last known to live, by its own clock.

    `restarts` sessions before this one ended in a row by an error before they had lasted, the last by `restart_reason`.
    """

    writer: Writer
    worker: str
    at_ms: int
    restarts: int = 0
    restart_reason: str = ""

    @property
    def is_worker(self) -> bool:
        """False for an operator's command, which fences the link and does not stay."""
        return not self.worker.startswith(OPERATION_PREFIX)


Entry: TypeAlias = (
    Block
    | Page
    | OriginRuns
    | Checkpoint
    | Gap
    | Acceptance
    | PromotionEntry
    | LinkRun
    | CutEntry
    | Owner
    | TopicIdentity
    | TopicPause
    | GroupEntry
    | Hold
)


def encode_key(entry: Entry) -> bytes:
    return dump_json(_key(entry))


def encode_value(entry: Entry) -> bytes:
    return dump_json({"v": ENTRY_VERSION, **_value(entry)})


@dataclass(frozen=True, slots=True)
class VoidBlock:
    """Takes back a block that was written ahead of a batch that never landed."""

    topic: str
    partition: int
    key_source: int


@dataclass(frozen=True, slots=True)
class VoidEntry:
    """Takes back what is known of a partition or a topic that is gone, or an old line of the gap ledger."""

    entry: Checkpoint | TopicIdentity | Gap | Acceptance


Void: TypeAlias = VoidBlock | VoidPage | VoidGroup | VoidHold | VoidPause | VoidOrigins | VoidEntry


def encode_void_key(void: Void) -> bytes:
    match void:
        case VoidHold():
            return dump_json(["held", void.topic, void.partition])
        case VoidGroup():
            return dump_json(["group", void.group])
        case VoidPause():
            return dump_json(["paused", void.topic])
        case VoidBlock():
            return dump_json(["interval", void.topic, void.partition, void.key_source])
        case VoidPage():
            return dump_json(page_key(void))
        case VoidEntry() | VoidOrigins():
            return encode_key(void.entry)


def decode_key(key: bytes) -> list[Any]:
    """[kind, ...]; raises ValueError for what is no key of a state topic."""
    return check_key(json.loads(key))


def decode_entry(key: list[Any], value: bytes) -> Entry:
    """Raises ValueError (or KeyError) for an unknown kind or version, or a value that cannot be read."""
    return read_entry(key, json.loads(value))


def read_entry(key: list[Any], fields: Any) -> Entry:
    """As `decode_entry`, of what the value says as JSON, which is used up."""
    if not isinstance(fields, dict):
        raise ValueError("not a value of a link's state")
    if fields.pop("v") != (PAGE_VERSION if key[0] == "page" else ENTRY_VERSION):
        raise ValueError("written by a newer version")
    match key:
        case ["page", *_]:
            return decode_page(key, fields)
        case ["interval", topic, partition, _source]:
            return Block(
                topic=topic,
                partition=partition,
                writer=Writer(*fields["writer"]),
                sequence=fields["sequence"],
                intervals=unpack_intervals(fields["intervals"]),
            )
        case ["origins", *_]:
            return unpack_origins(key, fields)
        case ["position", topic, partition]:
            return _checkpoint(topic, partition, fields)
        case ["gap", topic, partition, source, *_kind]:
            kind, status = GapKind(fields.pop("kind")), GapStatus(fields.pop("status"))
            return Gap(topic=topic, partition=partition, source_from=source, kind=kind, status=status, **fields)
        case ["accepted", *_]:
            return unpack_acceptance(key, fields)
        case ["link"]:
            return LinkRun(RunState(fields.pop("state")), after=tuple(fields.pop("after", ())), **fields)
        case ["back", _] | ["fenced", _]:
            return unpack_promotion(key, fields)
        case ["units"] | ["deal"]:
            return unpack_cut(key, fields)
        case ["owner"]:
            return Owner(writer=Writer(*fields.pop("writer")), **fields)
        case ["identity", topic]:
            return TopicIdentity(topic=topic, **fields)
        case ["paused", topic]:
            return TopicPause(topic=topic, **fields)
        case ["group", group]:
            return unpack_group(group, fields)
        case ["groups"]:
            return GroupSyncTimes(**fields)
        case ["held", topic, partition]:
            return Hold(topic=topic, partition=partition, reason=HoldReason(fields.pop("reason")), **fields)
    raise ValueError(f"unknown entry {key[0]!r}")


def _checkpoint(topic: str, partition: int, fields: dict[str, Any]) -> Checkpoint:
    return Checkpoint(
        topic=topic,
        partition=partition,
        end=End(*fields.pop("end")),
        writer=Writer(*fields.pop("writer")),
        leader_epochs=tuple(EpochStart(*start) for start in fields.pop("leader_epochs", ())),
        last=None if (last := fields.pop("last", None)) is None else LastRecord(*last),
        topic_ids=TopicIds(*fields.pop("topic_ids", ())),
        left_out=tuple(LeftOut(*one) for one in fields.pop("left_out", ())),
        **fields,
    )


def _key(entry: Entry) -> list[Any]:
    match entry:
        case Block():
            return ["interval", entry.topic, entry.partition, entry.key_source]
        case Page():
            return page_key(entry)
        case OriginRuns():
            return origins_key(entry)
        case Checkpoint():
            return ["position", entry.topic, entry.partition]
        case Gap():
            return ["gap", entry.topic, entry.partition, entry.source_from, entry.kind]
        case Acceptance():
            return acceptance_key(entry)
        case LinkRun():
            return ["link"]
        case BackPromotion() | FencedLogs():
            return promotion_key(entry)
        case LinkUnits() | LinkDeal():
            return cut_key(entry)
        case Owner():
            return ["owner"]
        case TopicIdentity():
            return ["identity", entry.topic]
        case TopicPause():
            return ["paused", entry.topic]
        case GroupSync():
            return ["group", entry.group]
        case GroupSyncTimes():
            return ["groups"]
        case Hold():
            return ["held", entry.topic, entry.partition]


def _value(entry: Entry) -> dict[str, Any]:
    match entry:
        case Block():
            return {"writer": entry.writer, "sequence": entry.sequence, "intervals": pack_intervals(entry.intervals)}
        case Page():
            return encode_page(entry)
        case OriginRuns():
            return pack_origins(entry)
        case GroupSync():
            return pack_group(entry)
        case GroupSyncTimes(looked_at_ms=None):  # as versions before each group had its entry wrote it
            return {"synced_at_ms": dict(entry.synced_at_ms)}
        case Owner(restarts=0):  # as versions before there were restarts wrote it, and read it
            return {"writer": entry.writer, "worker": entry.worker, "at_ms": entry.at_ms}
    fields = {at: getattr(entry, at) for at in entry.__slots__ if at not in ("topic", "partition", "source_from")}
    fields = {name: value for name, value in fields.items() if name not in UNSAID or value != UNSAID[name]}
    if isinstance(entry, Checkpoint) and entry.last is None and not entry.leader_epochs and not any(entry.topic_ids):
        for name in ("last", "leader_epochs", "topic_ids"):  # as versions before there were these wrote it, and read it
            del fields[name]
    return fields
