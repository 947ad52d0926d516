"""Does each group go on with the same record at the target? Values, and the judgement on what was seen: pure.

A group's offset says which record it reads next. What the source's says is brought to the target by the offset map;
then the record that is next there is held against the one that is next at the source: its place, and its content.

A difference that the link mends by itself is in flight, and none that counts. Two looks tell the one from the other,
with a whole pass of the link over its groups between them: what stood still meanwhile, and was not carried over, stays.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from monitoring.audit.missing_rights import MissingRight


class NextState(enum.StrEnum):
    """What reading from an offset on found."""

    RECORD = "record"
    END = "end"
    EXPIRED = "expired"
    OPEN_TRANSACTION = "open_transaction"
    NOT_READABLE = "not_readable"


@dataclass(frozen=True, slots=True)
class NextRecord:
    """The record that is read next: its offset at the site, and a digest of its content."""

    state: NextState
    offset: int | None = None
    digest: str | None = None


class Compared(enum.StrEnum):
    """What both sites' next records say. SAME_PLACE: where the map says, and nothing to compare its content with."""

    SAME_RECORD = "same_record"
    SAME_PLACE = "same_place"
    OTHER_RECORD = "other_record"
    AHEAD = "ahead"
    BEHIND = "behind"
    UNKNOWN = "unknown"


class GroupVerdict(enum.StrEnum):
    """On one partition of one group, of its offset at the target."""

    SAME = "same"
    AHEAD = "ahead"
    BEHIND = "behind"
    OTHER_RECORD = "other_record"
    MISSING_AT_TARGET = "missing_at_target"
    MISSING_AT_SOURCE = "missing_at_source"
    UNMAPPED = "unmapped"
    UNKNOWN = "unknown"


class GroupReason(enum.StrEnum):
    """Why it is so, where that is known."""

    NOT_MIRRORED_YET = "not_mirrored_yet"
    BEFORE_THE_MIRROR = "before_the_mirror"
    OFFSETS_IN_DOUBT = "offsets_in_doubt"
    MORE_SITES = "more_sites"
    NOT_LOOKED_AT_YET = "not_looked_at_yet"
    MOVING = "moving"
    NOT_CARRIED = "not_carried"
    ACTIVE_AT_TARGET = "active_at_target"
    MOVED_ON = "moved_on"
    SET_BACK = "set_back"
    PASS_FAILED = "pass_failed"
    LINK_PROMOTED = "link_promoted"
    OPEN_TRANSACTION = "open_transaction"
    NOT_READABLE = "not_readable"
    MAP_LEADS_ELSEWHERE = "map_leads_elsewhere"
    NOT_AT_SOURCE = "not_at_source"

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    GroupReason.NOT_MIRRORED_YET: "the group has read further than is mirrored",
    GroupReason.BEFORE_THE_MIRROR: "it stands before the first mirrored record: no offset at the target is equal",
    GroupReason.OFFSETS_IN_DOUBT: "an offset may mean another record than the mirrored one: see farshore status",
    GroupReason.MORE_SITES: "a third site writes the topic, too: which of its records were read is not known",
    GroupReason.NOT_LOOKED_AT_YET: "the link has not looked at it since; the target's is still where the link left it",
    GroupReason.MOVING: "it moved while it was looked at, and the link follows",
    GroupReason.NOT_CARRIED: "a whole pass of the link over its groups left it so",
    GroupReason.ACTIVE_AT_TARGET: "it has members at the target: their own offsets hold",
    GroupReason.MOVED_ON: "somebody else than the link moved it at the target",
    GroupReason.SET_BACK: "it was set back at the target, and has not moved at the source since",
    GroupReason.PASS_FAILED: "the link could not read or commit the group: see farshore group describe",
    GroupReason.LINK_PROMOTED: "the target took over: groups go on there, and are not carried over any more",
    GroupReason.OPEN_TRANSACTION: "the next record is behind a transaction that is open",
    GroupReason.NOT_READABLE: "a site did not say the group's offset, or the record there",
    GroupReason.MAP_LEADS_ELSEWHERE: "the offset is the one that the offset map gives, and another record stands there",
    GroupReason.NOT_AT_SOURCE: "only the target has the group here: its own, or one that was deleted at the source",
}
_FINDINGS: Final = frozenset(
    {GroupVerdict.AHEAD, GroupVerdict.BEHIND, GroupVerdict.OTHER_RECORD, GroupVerdict.MISSING_AT_TARGET}
)

_NO_FINDINGS: Final = frozenset({GroupReason.LINK_PROMOTED, GroupReason.PASS_FAILED})
"""The one is as it should be; of the other it is not known whether the next pass comes through."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One partition of one group. Offsets are None where there are none; `expected_offset` is the source's, at the
    target, by the offset map. Digests are of the records that are next; None where there is none or none was read.
    """

    group: str
    topic: str
    partition: int
    target_topic: str
    source_offset: int | None
    target_offset: int | None
    expected_offset: int | None
    verdict: GroupVerdict
    reason: GroupReason | None = None
    is_in_flight: bool = False
    source_digest: str | None = None
    target_digest: str | None = None

    @property
    def is_finding(self) -> bool:
        """Whether a consumer would go on with another record than it should, and nobody mends that by himself."""
        return self.verdict in _FINDINGS and not self.is_in_flight and self.reason not in _NO_FINDINGS

    @property
    def is_compared(self) -> bool:
        return self.verdict is GroupVerdict.SAME or self.is_finding

    @property
    def is_by_content(self) -> bool:
        """Whether both records were read and are the same; else it is the same place alone, where none can be read."""
        is_read = self.source_digest is not None and self.source_digest == self.target_digest
        return self.verdict is GroupVerdict.SAME and is_read

    @property
    def is_due(self) -> bool:
        """Whether it is the link's to carry over: what only the target has is not."""
        return self.verdict is not GroupVerdict.MISSING_AT_SOURCE


@dataclass(frozen=True, slots=True)
class FrozenGroups:
    """All of a link, at `at_ms`. `is_pass_seen`: a whole pass of the link went by between the two looks.

    `not_listed` says why there may be more groups than these, "" where there are not; `not_selected` are how many
    groups of the source the link does not carry; of those that are `refused` a site does not say where they stand.
    """

    at_ms: int
    looked_at_ms: int | None
    is_pass_seen: bool
    not_selected: int
    not_listed: str
    offsets: tuple[GroupOffset, ...]
    refused: tuple[MissingRight, ...] = ()

    @property
    def due(self) -> int:
        return sum(item.is_due for item in self.offsets)

    @property
    def compared(self) -> int:
        return sum(item.is_compared for item in self.offsets)

    @property
    def is_full(self) -> bool:
        return self.compared == self.due and not self.not_listed

    @property
    def is_full_but_in_flight(self) -> bool:
        left_out = (item for item in self.offsets if item.is_due and not item.is_compared)
        return not self.not_listed and all(item.is_in_flight for item in left_out)

    @property
    def findings(self) -> int:
        return sum(item.is_finding for item in self.offsets)

    @property
    def in_flight(self) -> int:
        return sum(item.is_in_flight for item in self.offsets)

    @property
    def groups(self) -> int:
        return len({item.group for item in self.offsets})

    @property
    def by_content(self) -> int:
        return sum(item.is_by_content for item in self.offsets)

    def told(self) -> list[GroupOffset]:
        """Those that are not the same; what counts first, and what only the target has last."""
        found = [item for item in self.offsets if item.verdict is not GroupVerdict.SAME]
        return sorted(found, key=lambda item: (not item.is_finding, not item.is_due, item.group, item.topic))


@dataclass(frozen=True, slots=True)
class NextRecords:
    """What is read next from the target's offset on, from the expected one on, and from the source's on.

    `mapped_source` is the source offset of the target's next record by the offset map. `is_content_comparable`: no
    compaction, given up records or other writers make the next records differ though the place is the same.
    """

    at_target: NextRecord
    at_expected: NextRecord
    at_source: NextRecord
    mapped_source: int | None
    is_content_comparable: bool


def compare_next(target_offset: int, expected_offset: int, found: NextRecords) -> Compared:
    """The target's offset against the one that the map gives for the source's."""
    there, expected, here = found.at_target, found.at_expected, found.at_source
    is_same_place = target_offset == expected_offset or (
        there.state is expected.state
        and there.offset == expected.offset
        and there.state in (NextState.RECORD, NextState.END, NextState.EXPIRED)
    )
    if not is_same_place:
        return Compared.AHEAD if target_offset > expected_offset else Compared.BEHIND
    states = {there.state, here.state}
    if states & {NextState.NOT_READABLE, NextState.OPEN_TRANSACTION}:
        return Compared.UNKNOWN
    if NextState.EXPIRED in states or states == {NextState.END}:
        return Compared.SAME_PLACE
    if states == {NextState.RECORD} and here.digest == there.digest and here.offset == found.mapped_source:
        return Compared.SAME_RECORD
    return Compared.OTHER_RECORD if found.is_content_comparable else Compared.SAME_PLACE


@dataclass(frozen=True, slots=True)
class OffsetsSeen:
    """One look at one partition of a group, None for no offset. `expected` by the map as it was at the second look."""

    source: int | None
    target: int | None
    expected: int | None


@dataclass(frozen=True, slots=True)
class Carrying:
    """What the link's state says at the second look. `is_pass_seen`: a pass began behind the first look, and has ended.

    `unmapped` is why the map gives no offset, `declined` why the link leaves the group as it is; `is_left_so`: what
    stands at the target is what the link put there, or nothing.
    """

    is_pass_seen: bool
    is_promoted: bool
    is_left_so: bool
    unmapped: GroupReason | None = None
    declined: GroupReason | None = None


def judge(
    before: OffsetsSeen, now: OffsetsSeen, compared: Compared | None, carrying: Carrying
) -> tuple[GroupVerdict, GroupReason | None, bool]:
    """-> the verdict, its reason, and whether it is in flight. `compared` is None where an offset is missing."""
    if now.source is None:
        return GroupVerdict.MISSING_AT_SOURCE, GroupReason.NOT_AT_SOURCE, False
    if now.expected is None:
        reason = carrying.unmapped or GroupReason.OFFSETS_IN_DOUBT
        return GroupVerdict.UNMAPPED, reason, reason is GroupReason.NOT_MIRRORED_YET
    if compared in (Compared.SAME_RECORD, Compared.SAME_PLACE):
        return GroupVerdict.SAME, None, False
    if compared is Compared.OTHER_RECORD:
        return GroupVerdict.OTHER_RECORD, GroupReason.MAP_LEADS_ELSEWHERE, False
    if compared is Compared.UNKNOWN:
        return GroupVerdict.UNKNOWN, GroupReason.NOT_READABLE, False
    verdict = GroupVerdict.MISSING_AT_TARGET if compared is None else GroupVerdict(compared.value)
    if carrying.is_promoted:
        return verdict, GroupReason.LINK_PROMOTED, False
    if carrying.declined is not None:
        return verdict, carrying.declined, False
    if carrying.is_pass_seen:
        return _behind_a_pass(before, now, verdict)
    if carrying.is_left_so:
        return verdict, GroupReason.NOT_LOOKED_AT_YET, True
    return verdict, GroupReason.MOVED_ON, False


def _behind_a_pass(
    before: OffsetsSeen, now: OffsetsSeen, verdict: GroupVerdict
) -> tuple[GroupVerdict, GroupReason | None, bool]:
    """A pass has seen the source's offset of before, or a later one: what moves since is followed by the next.

    What moved at the target meanwhile was moved by the link, or by somebody of whom its next pass tells.
    """
    has_passed_by = before.target == now.target and before.source is not None and now.source is not None
    if has_passed_by and before.source == now.source:
        return verdict, GroupReason.NOT_CARRIED, False
    # It read on: then the pass was to bring it to where it had stood, at the least.
    is_short = before.expected is not None and (now.target is None or now.target < before.expected)
    if has_passed_by and is_forward(before, now) and (is_short or verdict is GroupVerdict.AHEAD):
        return verdict, GroupReason.NOT_CARRIED, False
    return verdict, GroupReason.MOVING, True


def is_forward(before: OffsetsSeen, now: OffsetsSeen) -> bool:
    """Whether the group read on at the source between the two looks."""
    return before.source is not None and now.source is not None and now.source > before.source
