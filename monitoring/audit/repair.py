"""What can be mended of what a run found to differ, at which price, and what stands in the way: pure.

There is one way: the partition is mirrored anew. The mirror, which alone writes there, sends all that the source has
behind what the target has, under a map that begins there; groups follow by that map; and only when all is there the
old copy before it is deleted. Kafka deletes the beginning of a log and nothing else, so no single record can be mended.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from mirror.api import NEVER_ASKED
from monitoring.audit.model import Kind, Place, Span
from monitoring.errors import AuditResultDamaged


class RepairStage(enum.StrEnum):
    """How far the repair of a partition is; from each the same command goes on."""

    NOT_ASKED = "not_asked"
    ASKED = "asked"
    """The link's state says that it is to be mirrored anew, and its worker has not begun."""
    COPYING = "copying"
    """The map begins anew, behind the old copy."""
    COPIED = "copied"
    """All that was to come again is there."""
    OLD_COPY_DELETED = "old_copy_deleted"


class RepairBlocker(enum.StrEnum):
    """Why a partition is not mirrored anew."""

    LINK_STOPPED = "link_stopped"
    LINK_NOT_RUNNING = "link_not_running"
    SITE_DID_NOT_SAY = "site_did_not_say"
    NOT_AT_BOTH_SITES = "not_at_both_sites"
    NEVER_MIRRORED = "never_mirrored"
    STANDS_STILL = "stands_still"
    HELD = "held"
    SHARED_TARGET = "shared_target"
    MIRRORED_ON = "mirrored_on"
    CONFIGS_NOT_KNOWN = "configs_not_known"
    COMPACTED = "compacted"
    ONLY_AT_TARGET = "only_at_target"
    GROUPS_NOT_KNOWN = "groups_not_known"
    GROUPS_STAY = "groups_stay"

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_WHEN_IT_ANSWERS: Final = (
    "type the same again when it does; where it refuses to: farshore link rights --command 'audit repair'"
)
_EXPLANATIONS: Final = {
    RepairBlocker.LINK_STOPPED: "its target was promoted, or a person paused it, so it sends nothing: farshore status "
    "says how it is let run again",
    RepairBlocker.LINK_NOT_RUNNING: "its worker sends all again, and none is known to live: see farshore status",
    RepairBlocker.SITE_DID_NOT_SAY: "a site did not say what it has of it: type the same again when it answers",
    RepairBlocker.NOT_AT_BOTH_SITES: "one of the sites does not have it: see farshore status",
    RepairBlocker.NEVER_MIRRORED: "the link has mirrored nothing of it yet: see farshore status",
    RepairBlocker.STANDS_STILL: "it waits for a decision on a gap: see farshore status, and decide that first",
    RepairBlocker.HELD: "it is held, or its topic is paused: see farshore status",
    RepairBlocker.SHARED_TARGET: "others write the target topic, too: their records would go with the old copy. Repair "
    "it by hand from the differences: farshore audit diff",
    RepairBlocker.MIRRORED_ON: "another link reads the topic at this target, and would carry every record on a second "
    "time: take that link off the topic first, and repair its target behind this one",
    RepairBlocker.CONFIGS_NOT_KNOWN: "the target did not say whether it keeps the beginning of the topic (compacted): "
    f"{_WHEN_IT_ANSWERS}",
    RepairBlocker.COMPACTED: "of a compacted topic Kafka deletes no beginning. By hand: stop its readers there; "
    "farshore link pause, and ten seconds later, or groups get their old offsets again, farshore topic delete at the "
    "target; farshore link resume: the mirror makes it anew and stands still; farshore link resume --gap "
    "TOPIC:PARTITION begins each again",
    RepairBlocker.ONLY_AT_TARGET: "the target alone has records of it, and loses them: --allow-data-loss",
    RepairBlocker.GROUPS_NOT_KNOWN: "a site did not say where groups stand (a coordinator that is away, say), so it is "
    f"not known whether they follow: {_WHEN_IT_ANSWERS}; or leave each by its name: --leave-group GROUP",
    RepairBlocker.GROUPS_STAY: "groups at the target do not follow by the map (their reason is told), and would go by "
    "auto.offset.reset: stop or move them, or leave each by its name: --leave-group GROUP",
}


class GroupStays(enum.StrEnum):
    """Why the link does not move a group's offset to where the same record is then."""

    ACTIVE_AT_TARGET = "active_at_target"
    NOT_CARRIED = "not_carried"
    """The link does not carry it, or it has no offset at the source."""
    BEFORE_SOURCE_LOG = "before_source_log"
    """At the source, what it reads next is gone."""
    SET_BACK = "set_back"
    """It was set back at the target, and the link leaves that."""
    NOT_KNOWN = "not_known"
    """A site did not tell its offsets."""


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A group with an offset in the partition at the target; `stays` None: it goes on with the same record by the new
    map. Offsets are None where a site did not say. `is_placed`: it stands where the map has its next record.
    """

    group: str
    source_offset: int | None
    target_offset: int | None
    stays: GroupStays | None
    is_placed: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a run says of one partition: its differences by kind, and the offsets that they are at.

    `is_whole`: these are all of them; of more than the document lists only the first are known, and of a moved range
    or a sampled one there may be others.
    """

    place: Place
    kinds: Mapping[Kind, int]
    source_offsets: Span | None
    target_offsets: Span | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition as both sites and the link's state show it now. Spans are whole logs, None where not known.

    `position` is the source offset to be mirrored next, None where nothing was mirrored; `needed_to` the one up to
    which all is to be there. `only_at_target`: so many source offsets at most are at the target, and neither at the
    source nor in the new copy; None: that is not known. `is_asked`: to be mirrored anew, since the run; `restarted_at`
    is the target offset from which all came again, None where that has not begun. `asked_at_ms`: when that was last
    asked for, also before the run. `links_on` read the topic at the target. `is_compacted` None: its configs are not
    known.
    """

    target_topic: str
    source: Span | None
    target: Span | None
    position: int | None
    needed_to: int | None = None
    is_at_both: bool = True
    stands_still: bool = False
    is_held: bool = False
    is_compacted: bool | None = False
    links_on: tuple[str, ...] = ()
    only_at_target: int | None = 0
    groups: tuple[GroupPlace, ...] = ()
    is_asked: bool = False
    restarted_at: int | None = None
    asked_at_ms: int = NEVER_ASKED


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """What holds for all of the link. `may_run`: nobody promoted or paused it; `is_running`: its workers live."""

    link: str
    may_run: bool
    is_running: bool
    shared_targets: bool
    partitions: Mapping[Place, PartitionSeen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Consents:
    """What was allowed by name."""

    loses_data: bool = False
    leaves_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartitionRepair:
    """The plan for one partition.

    `mirrored_to`: the source offset up to which it is mirrored now. `records_again`: no more records than so many
    source offsets are yet to be sent again, and read twice by who reads from the beginning while the old copy is there.
    `target_moves_by`: no less than this every record's target offset grows. `deleted_to`: target offsets before it go.
    `only_at_target`: of these so many records at most that the source has no more or never had; None where that is not
    known. `is_retriable`: all that is in the way may end by itself. `asked_at_ms`: when it was last asked to be
    mirrored anew, for whichever run; -1: never.
    """

    topic: str
    partition: int
    target_topic: str
    found: Mapping[str, int]
    found_is_whole: bool
    source_offsets: Span | None
    target_offsets: Span | None
    stage: RepairStage
    source_start: int
    mirrored_to: int
    records_again: int
    target_moves_by: int
    deleted_to: int | None
    only_at_target: int | None
    groups: tuple[GroupPlace, ...]
    blockers: tuple[RepairBlocker, ...]
    is_retriable: bool
    asked_at_ms: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def in_the_way(self) -> RepairBlocker | None:
        """What a person has to remove."""
        passing = PASSING if self.stage is not RepairStage.NOT_ASKED else frozenset()
        return next((blocker for blocker in self.blockers if blocker not in passing), None)

    @property
    def awaits_groups(self) -> tuple[str, ...]:
        """Those that follow by the map, and have not yet."""
        return tuple(place.group for place in self.groups if place.stays is None and not place.is_placed)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What of a run can be repaired. It stands for what was seen; nothing of it is written yet."""

    run_id: str
    link: str
    partitions: tuple[PartitionRepair, ...]


PASSING: Final = frozenset(
    {
        RepairBlocker.LINK_NOT_RUNNING,
        RepairBlocker.SITE_DID_NOT_SAY,
        RepairBlocker.HELD,
        RepairBlocker.CONFIGS_NOT_KNOWN,
        RepairBlocker.GROUPS_NOT_KNOWN,
    }
)
"""What may end by itself: once the mirror was asked it is waited for, and nothing is deleted meanwhile."""


def found_of(document: Mapping[str, Any]) -> tuple[Found, ...]:
    """What the run says, partition by partition, of those that differ or moved. Raises AuditResultDamaged."""
    try:
        whole = len(document["differences"]) == sum(document["differences_found"].values()) and not document.get(
            "sample"
        )
        told: dict[Place, list[Mapping[str, Any]]] = {
            (item["topic"], item["partition"]): []
            for item in document["partitions"]
            if item["verdict"] in ("differs", "moved")
        }
        for item in document["differences"]:
            told.setdefault((item["topic"], item["partition"]), []).append(item)
        return tuple(_found(place, items, whole) for place, items in sorted(told.items()))
    except (KeyError, TypeError, ValueError) as error:
        text = f"run {document.get('run_id')} does not say what differs: {error!r}"
        raise AuditResultDamaged(text, "run the audit again: farshore audit run") from error


def _found(place: Place, items: Sequence[Mapping[str, Any]], whole: bool) -> Found:
    kinds: dict[Kind, int] = {}
    for item in items:
        kind = Kind(item["kind"])
        kinds[kind] = kinds.get(kind, 0) + 1
    return Found(place, kinds, _span(items, "source_offset"), _span(items, "target_offset"), whole)


def _span(items: Iterable[Mapping[str, Any]], name: str) -> Span | None:
    offsets = [item[name] for item in items if item[name] is not None]
    return Span(min(offsets), max(offsets) + 1) if offsets else None


def frozen_at_ms(document: Mapping[str, Any]) -> int:
    """When both sites were frozen. Raises AuditResultDamaged."""
    try:
        return int(datetime.fromisoformat(document["frozen_at"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError) as error:
        text = f"run {document.get('run_id')} does not say when it was: {error!r}"
        raise AuditResultDamaged(text, "run the audit again: farshore audit run") from error


def plan_repair(run_id: str, found: Collection[Found], seen: LinkSeen, consents: Consents) -> RepairPlan:
    """What can be done for each partition, with what was consented to."""
    planned = [_plan(item, seen, seen.partitions[item.place], consents) for item in found]
    return RepairPlan(run_id, seen.link, tuple(planned))


def stage_of(seen: PartitionSeen) -> RepairStage:
    """How far it is, as both sites show it."""
    if not seen.is_asked:
        return RepairStage.NOT_ASKED
    if seen.restarted_at is None or seen.position is None:
        return RepairStage.ASKED
    if seen.needed_to is None or seen.position < seen.needed_to:
        return RepairStage.COPYING
    is_gone = seen.target is not None and seen.target.start >= seen.restarted_at
    return RepairStage.OLD_COPY_DELETED if is_gone else RepairStage.COPIED


def _plan(found: Found, link: LinkSeen, seen: PartitionSeen, consents: Consents) -> PartitionRepair:
    source, target, stage = seen.source, seen.target, stage_of(seen)
    topic, partition = found.place
    deleted_to = seen.restarted_at if seen.restarted_at is not None else target.end if target is not None else None
    done = stage is RepairStage.OLD_COPY_DELETED
    only_there = seen.only_at_target
    if only_there is not None:  # of what the run does not list, some may be extra, too
        only_there = only_there + found.kinds.get(Kind.EXTRA, 0) if found.is_whole else None
    if done:
        only_there = 0
    blockers = [] if done else _blockers(link, seen, only_there, consents)
    return PartitionRepair(
        topic=topic,
        partition=partition,
        target_topic=seen.target_topic,
        found={kind.value: number for kind, number in found.kinds.items()},
        found_is_whole=found.is_whole,
        source_offsets=found.source_offsets,
        target_offsets=found.target_offsets,
        stage=stage,
        source_start=source.start if source is not None else 0,
        mirrored_to=seen.position or 0,
        records_again=_comes_again(stage, seen),
        target_moves_by=target.offsets if target is not None and stage is RepairStage.NOT_ASKED else 0,
        deleted_to=deleted_to,
        only_at_target=only_there,
        groups=seen.groups,
        blockers=tuple(blockers),
        is_retriable=bool(blockers) and PASSING.issuperset(blockers),
        asked_at_ms=seen.asked_at_ms,
    )


def _comes_again(stage: RepairStage, seen: PartitionSeen) -> int:
    if seen.source is None or stage in (RepairStage.COPIED, RepairStage.OLD_COPY_DELETED):
        return 0
    begun = seen.position if stage is RepairStage.COPYING and seen.position is not None else seen.source.start
    return max(0, seen.source.end - begun)


def _blockers(link: LinkSeen, seen: PartitionSeen, only_there: int | None, consents: Consents) -> list[RepairBlocker]:
    """In the order in which one removes them."""
    stay = {place.stays for place in seen.groups if place.stays and place.group not in consents.leaves_groups}
    is_silent = seen.source is None or seen.target is None
    asked: list[tuple[RepairBlocker, bool]] = [
        (RepairBlocker.LINK_STOPPED, not link.may_run),
        (RepairBlocker.LINK_NOT_RUNNING, link.may_run and not link.is_running),
        (RepairBlocker.NOT_AT_BOTH_SITES, not seen.is_at_both),
        (RepairBlocker.SITE_DID_NOT_SAY, seen.is_at_both and is_silent),
        (RepairBlocker.NEVER_MIRRORED, seen.position is None),
        (RepairBlocker.STANDS_STILL, seen.stands_still),
        (RepairBlocker.HELD, seen.is_held),
        (RepairBlocker.SHARED_TARGET, link.shared_targets),
        (RepairBlocker.MIRRORED_ON, bool(seen.links_on)),
        (RepairBlocker.CONFIGS_NOT_KNOWN, seen.is_at_both and seen.is_compacted is None),
        (RepairBlocker.COMPACTED, bool(seen.is_compacted)),
        (RepairBlocker.ONLY_AT_TARGET, only_there != 0 and not is_silent and not consents.loses_data),
        (RepairBlocker.GROUPS_NOT_KNOWN, GroupStays.NOT_KNOWN in stay),
        (RepairBlocker.GROUPS_STAY, not stay <= {GroupStays.NOT_KNOWN}),
    ]
    return [blocker for blocker, stands in asked if stands]
