"""What was seen of both sites at one moment: the values every plan and statement is made from."""

from __future__ import annotations

from dataclasses import dataclass

from failover.observing.contact import BrokerAnswer, SiteFinding
from mirror.api import Ceased, DeclaredOtherwise, LastLook


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One mirrored partition. Offsets are "next" offsets: the first one that is not there yet.

    `source_end` is None when the source did not answer; then `seen_source_end`, `seen_timestamp_ms` and `seen_at_ms`
    are the last the mirror saw of it (None: it never recorded any). A partition of which only the end was seen may
    never have been mirrored: it may not even be there at the target. `mirrored_source_next` is None when nothing of the
    partition was ever mirrored. Not `trusted`: the topic was recreated or a log was cut, at either site, so that the
    mirrored offsets do not mean the records that are there now. `has_local_writers`: the target's own producers write
    this topic too, and a reverse link carries that back. `mirrored_target_next` is where the mirrored records end at
    the target; behind it there may be markers, and after a promotion records of the target's own.
    `last_mirrored`: the offsets of the last mirrored record, at the source and at the target; None: not known exactly.
    `unanswered`: why the target's partition cannot be asked, "" where it can: then what the target has of it is not
    known, and `mirrored_source_next` is where the mirror had come at least.
    `returned_at_most`: of the source's offsets that were seen and not mirrored so many, at the most, may hold records
    that a link back had brought there from the target, which has them; None: any number of them.
    """

    topic: str
    partition: int
    target_topic: str
    source_end: int | None
    seen_source_end: int | None
    seen_timestamp_ms: int | None
    seen_at_ms: int | None
    mirrored_source_next: int | None
    target_end: int | None
    source_start: int | None = None
    trusted: bool = True
    has_local_writers: bool = False
    mirrored_target_next: int | None = None
    returned_at_most: int | None = 0
    unanswered: str = ""
    last_mirrored: tuple[int, int] | None = None
    target_start: int | None = None
    """The first offset that the target's log still has; None: not told."""
    held_since_ms: int | None = None
    """Where it is not trusted for a hold of the link's worker alone, which goes when that has compared both logs: since
    when, by the worker's clock.
    """
    is_source_recreated: bool = False
    """Whether the source's topic is known to be another one, of the same name, than was mirrored."""
    ceased: Ceased | None = None
    """Of one that tells no end while others of the source do: when it ceased to, and how fast it grew before that."""
    is_gone_at_source: bool = False
    """Whether the source, which told all of its topics, has it no more."""
    seen_beyond: int = 0
    """So far `seen_source_end` is beyond what was seen at `seen_at_ms`: it came later, nobody knows when."""

    @property
    def is_to_come(self) -> bool:
        """Whether the source has it, and the target is still to get it, with or without records."""
        is_told = self.source_end is not None and not self.unanswered
        return is_told and self.mirrored_source_next is None and self.target_end is None

    @property
    def name(self) -> str:
        """As options name it."""
        return f"{self.topic}:{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupPartitionView:
    """A group's committed offset at the source and at the target, and the source's translated (None: unknown).

    `set_back`: what stands at the target the mirror wrote, and the group was set back at the source since then.
    `ahead_from`: the first record at the target that the group read there and not at the source; None: there is none.
    `turn`: of the pair of offsets that a move writes into the link's state; 0: only the source has writers.
    `is_set_back_there`: the group stands at the source where the link carried it from, and was set back at the target.
    `brought_offset`: of one whose source does not say where it is, where the link's state says that it brought it at
    the target; None: it does not say.
    """

    topic: str
    partition: int
    target_topic: str
    source_offset: int | None
    translated_offset: int | None
    target_offset: int | None
    metadata: str
    set_back: bool = False
    ahead_from: int | None = None
    turn: int = 0
    is_set_back_there: bool = False
    brought_offset: int | None = None
    read_at_source: tuple[tuple[int, int], ...] | None = ()
    """Behind the first record at the target that it has not read: from where to where are those that it has read at
    the source, where the logs differ in order. None: not known.
    """
    read_to: int | None = None
    """Of one that is ahead: behind the last record that it has read at the target; between there and where it stands is
    nothing that anybody reads, and a mirror carries groups over that.
    """


@dataclass(frozen=True, slots=True)
class GroupView:
    """One consumer group. A state is Kafka's own word ("Empty", "Stable"...), None where it could not be asked.

    The members are None where the site answers and does not tell them: they are not known to be none. `unanswered`:
    why nothing can be asked of it at the target, and nothing set, "" where it can: it has a target offset nowhere then,
    which says nothing, and the partitions are those in which it was seen elsewhere. `is_pending`: a transaction at the
    source that has not ended commits offsets of it in mirrored topics, so that the source's are about to change.
    """

    group: str
    source_state: str | None
    target_state: str | None
    source_members: int | None
    target_members: int | None
    synced_at_ms: int | None
    partitions: tuple[GroupPartitionView, ...]
    unanswered: str = ""
    is_pending: bool = False
    other_type: str = ""
    """Of a protocol whose members at the source nobody tells: Kafka's word for it, "" where it is a consumer group."""
    has_offsets: bool = True
    """It may commit some, which share groups do not."""
    other_topics: tuple[str, ...] = ()
    """In which it has offsets at the source, and which the link does not carry."""

    @property
    def may_be_let_be(self) -> bool:
        """Whether who names it may leave it as it is: nothing of it is to be moved."""
        return not self.partitions and bool(self.other_type or not self.has_offsets)


@dataclass(frozen=True, slots=True)
class Lacked:
    """What links back had mirrored from the target, which has it no more, and no link brings it: so many `records`
    among the source's offsets [first_offset, end_offset). None: they were not counted, and may be as many as there are
    offsets; of `first_offset` None: nor is it known whether there are any, or where.
    """

    topic: str
    partition: int
    first_offset: int | None
    end_offset: int
    records: int | None

    @property
    def offsets(self) -> int:
        """How many records it is at most, as far as that is known."""
        if self.records is not None or self.first_offset is None:
            return self.records or 0
        return max(0, self.end_offset - self.first_offset)

    def behind(self, source_offset: int) -> int | None:
        """How many of them are still to be read at that offset, at most; None: not known."""
        if self.first_offset is None:
            return None
        return min(self.offsets, max(0, self.end_offset - max(source_offset, self.first_offset)))


@dataclass(frozen=True, slots=True)
class LeftRange:
    """Offsets [first_offset, end_offset) of the source, whose records stay there alone, as somebody decided at
    `decided_at_ms` (Unix time): no link brings them. `records` were counted by reading; None: they were not, and are at
    most as many as there are offsets. `reason`: in what that was decided, as the gap ledger has it. `may_be_replayed`:
    whether some of them stand at the target all the same, since somebody replayed them, was not read there.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    records: int | None
    decided_at_ms: int
    reason: str
    may_be_replayed: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Both sites of one link at `taken_at_ms` (Unix time).

    `link_state` is "running", or "paused" or "promoted" since the operation `operation_id`; `interrupted` says that it
    began here and was cut short, so that it may be gone on with. `asked_groups` are those that were asked for by name;
    empty: all that the link selects. `evidence`: which broker of the source answered, and when. `last_look`: when the
    mirror's worker last saw the ends of the source's logs; None where the source tells them itself, or that was never.
    """

    link: str
    source: str
    target: str
    taken_at_ms: int
    source_finding: SiteFinding
    link_state: str
    operation_id: str
    partitions: tuple[PartitionView, ...]
    groups: tuple[GroupView, ...]
    interrupted: bool = False
    asked_groups: tuple[str, ...] = ()
    evidence: tuple[BrokerAnswer, ...] = ()
    last_look: LastLook | None = None
    units_apart: bool = False
    """Some units of the link are as another operation left them."""
    paused_topics: tuple[str, ...] = ()
    """Of which a person wants nothing more mirrored; the link's others are."""
    groups_not_listed: str = ""
    """Why the target does not list all of its groups, "" where it does: `groups` lacks those that it alone has."""
    is_map_lost: bool = False
    """The link wrote to the target, and its state there says of nothing that it was mirrored: it was deleted. Then the
    target's topics of these names are among the partitions; those with records are not trusted.
    """
    declared_otherwise: tuple[DeclaredOtherwise, ...] = ()
    """What of the link this file declares otherwise than the link's worker ran it."""
    seen_by: tuple[str, ...] = ()
    """Links whose workers saw the source while it was called from here in vain."""
    groups_elsewhere: tuple[str, ...] = ()
    """Of those that were asked for such as have offsets at the source in other topics alone."""
    groups_carried_before: tuple[str, ...] = ()
    """That the link's passes have carried, and that it does not select any more, as its state at the target says."""
    is_untold: bool = False
    """Of the operation that promoted the link the target's journal has nothing: how far it came nobody knows."""
    moved_back_by: tuple[str, ...] = ()
    """Of a promoted link the links back by which its clients went back to the source since."""
    lacked: tuple[Lacked, ...] = ()
    """At the target of a failover, as it was when that was planned."""
    found_dead_at_ms: int | None = None
    """When the operation, or its plan, first found that nobody listened at the source, which is dead still; None: it
    never did, or the source is only silent.
    """
    left_at_source: tuple[LeftRange, ...] = ()
    """What the target does not get of the source, by an earlier decision."""

    @property
    def is_promoted(self) -> bool:
        """Whether the link was moved before: its mirror brings nothing more."""
        return self.link_state == "promoted"

    @property
    def is_source_there(self) -> bool:
        """At least in part."""
        return self.source_finding in (SiteFinding.ALIVE, SiteFinding.PARTLY_THERE)

    @property
    def source_answers(self) -> bool:
        """Whether everything that was asked of the source was answered."""
        return self.source_finding is SiteFinding.ALIVE

    @property
    def is_behind_pause(self) -> bool:
        """Whether the link was paused, and its source does not tell all of its ends: what of it was seen counts."""
        return self.link_state == "paused" and not self.source_answers

    @property
    def silent_brokers(self) -> tuple[str, ...]:
        """Those of the source that were called in vain, by their addresses."""
        return tuple(answer.address for answer in self.evidence if not answer.may_live)

    @property
    def closing_addresses(self) -> tuple[str, ...]:
        """Of a dead source, where something took connections and closed them."""
        is_dead = self.source_finding is SiteFinding.DEAD
        return tuple(answer.address for answer in self.evidence if answer.taken and is_dead)

    @property
    def missing_groups(self) -> tuple[str, ...]:
        """The groups that were asked for by name and have no offset in a mirrored topic at a site that answers."""
        there = {group.group for group in self.groups}
        return tuple(name for name in self.asked_groups if name not in there)

    @property
    def unanswered(self) -> frozenset[tuple[str, str]]:
        """What of the target does not answer: partitions and groups, by kind and name."""
        partitions = {("partition", view.name) for view in self.partitions if view.unanswered}
        return frozenset(partitions | {("group", group.group) for group in self.groups if group.unanswered})

    @property
    def pending_groups(self) -> tuple[str, ...]:
        return tuple(group.group for group in self.groups if group.is_pending)

    @property
    def read_topics(self) -> frozenset[str]:
        """In which a selected group has an offset."""
        return frozenset(at.topic for group in self.groups for at in group.partitions)
