"""What a link's state says, as it was read; and what the parts of several units say together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeVar

from broker.client.model import Topic
from mirror.link import Link, Pin
from mirror.offsets.acceptance import GapKey
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.doubt import UNDECIDED, in_words, is_in_doubt
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    Owner,
    RunState,
)
from mirror.offsets.fenced_logs import LogsFenced
from mirror.offsets.group_entries import GroupSyncs
from mirror.offsets.hold_entries import Hold
from mirror.offsets.intervals import Interval
from mirror.offsets.limits import CLOSED_GAPS_MAX
from mirror.offsets.offset_map import Where
from mirror.offsets.origin_entries import OriginRuns
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page, standing_pages
from mirror.offsets.promotion_entries import BackPromotion
from mirror.offsets.topic_entries import TopicPause
from mirror.offsets.unit_entries import LinkDeal

K = TypeVar("K")
V = TypeVar("V")

_LETS_RUN: Final = {RunState.RUNNING: 2, RunState.PAUSED: 1, RunState.PROMOTED: 0}


@dataclass(frozen=True, slots=True)
class StateEntries:
    """What was read: all entries of one link, or of one of its units.

    `exists` is False when the link never ran (its topic is not there). `link` is cut as the state says.
    """

    link: Link
    exists: bool = False
    blocks: Mapping[Where, Mapping[int, Block]] = field(default_factory=dict)
    """Per partition by `Block.key_source`, in the order of their last writing."""
    pages: Mapping[Where, Mapping[int, Page]] = field(default_factory=dict)
    """Per partition by `Page.key_source`; also those that another one has taken in."""
    origins: Mapping[Where, tuple[OriginRuns, ...]] = field(default_factory=dict)
    """Per partition, in the order of their writing."""
    checkpoints: Mapping[Where, Checkpoint] = field(default_factory=dict)
    gaps: Mapping[GapKey, Gap] = field(default_factory=dict)
    """As if the link had seen already what was accepted."""
    outlived: frozenset[GapKey] = frozenset()
    """Of those that tell a deletion the ones behind which the partition was mirrored again, by the order of writing."""
    acceptances: Mapping[GapKey, Acceptance] = field(default_factory=dict)
    """What the link has not seen, or need not see any more."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    paused: Mapping[str, TopicPause] = field(default_factory=dict)
    """By topic, also where not all units' parts say so."""
    groups: GroupSyncs = field(default_factory=GroupSyncs)
    holds: Mapping[tuple[str, int | None], Hold] = field(default_factory=dict)
    """By (topic, partition; None for all of the topic): what the last worker could not mirror."""
    run: LinkRun | None = None
    """Of several units the one that lets least run."""
    backs: Mapping[str, BackPromotion] = field(default_factory=dict)
    """By link, what was last told of promotions of those that go back."""
    fenced_logs: LogsFenced = field(default_factory=dict)
    """Where the target's logs ended behind a promotion's fence, that of now or an earlier one."""
    owner: Owner | None = None
    """Of several units the one that gave the oldest sign of life."""
    unit_owners: Mapping[int, Owner | None] = field(default_factory=dict)
    units: int | None = None
    """Into how many units the link is cut, those of the `pins` not counted; None: the state does not say: it is one."""
    pins: tuple[Pin, ...] = ()
    deal: LinkDeal | None = None
    """What says so, of a link that was to be cut anew."""
    units_apart: bool = False
    """Not all units may do what the others may: an operation has changed some of them, or is about to change more."""

    def cut(self, link: Link) -> Link:
        """The link, cut as the state says; as it is where that says nothing."""
        return link if self.units is None else replace(link, units=self.units, pins=self.pins)

    def counting(self, unit: int) -> StateEntries:
        """What counts of a unit's part where the link was cut anew: what it says of other units' partitions was written
        before a cut, or for one that did not come about.
        """
        if self.deal is None:
            return self
        link = self.cut(self.link)
        return replace(
            self,
            blocks=_of_unit(link, unit, self.blocks),
            pages=_of_unit(link, unit, self.pages),
            origins=_of_unit(link, unit, self.origins),
            checkpoints=_of_unit(link, unit, self.checkpoints),
            gaps={key: gap for key, gap in self.gaps.items() if link.unit_of(*key[:2]) == unit},
            outlived=frozenset(key for key in self.outlived if link.unit_of(*key[:2]) == unit),
            acceptances={key: one for key, one in self.acceptances.items() if link.unit_of(*key[:2]) == unit},
            holds={at: hold for at, hold in self.holds.items() if at[1] is None or link.unit_of(at[0], at[1]) == unit},
            fenced_logs=_of_unit(link, unit, self.fenced_logs),
        )

    def mirrored_topics(self) -> frozenset[str]:
        """Those that were mirrored of what the link carries, but for the canary: the source has, or had, them."""
        named = {topic for topic, _ in self.checkpoints if self.link.selects_topic(topic)}
        return frozenset(named - {self.link.canary_topic})

    def paused_topics(self) -> tuple[str, ...]:
        """Those that are paused of what the link carries, sorted."""
        return tuple(sorted(filter(self.link.selects_topic, self.paused)))

    def owners(self) -> Mapping[int, Owner | None]:
        """Who owns each unit; None: nobody ever did."""
        return self.unit_owners or {self.link.unit or 0: self.owner}

    def most_restarted(self) -> Owner | None:
        """Of the units' owners the one that restarted most."""
        owners = [owner for owner in self.owners().values() if owner is not None]
        return max(owners, key=lambda owner: owner.restarts, default=None)

    def owner_of(self, where: Where) -> Owner | None:
        """Who owns the unit that a partition belongs to."""
        owners = self.owners()
        return owners.get(self.link.unit_of(*where)) if len(owners) > 1 else self.owner

    def producer_ids(self) -> set[int]:
        """All that the link is known to have written with."""
        writers = {checkpoint.writer[0] for checkpoint in self.checkpoints.values()}
        writers |= {block.writer[0] for blocks in self.blocks.values() for block in blocks.values()}
        writers |= {
            written for pages in self.pages.values() for page in pages.values() for written in page.producer_ids
        }
        return writers | {entry.writer[0] for known in self.origins.values() for entry in known}

    def left_to(self) -> frozenset[str]:
        """The sites whose records this link left to their direct links."""
        return frozenset(one.site for checkpoint in self.checkpoints.values() for one in checkpoint.left_out)

    def blocks_of(self, topic: str, partition: int) -> list[Block]:
        """In the order of their (last) writing."""
        return list(self.blocks.get((topic, partition), {}).values())

    def pages_of(self, topic: str, partition: int) -> list[Page]:
        """In order, also those that another one has taken in."""
        found = self.pages.get((topic, partition), {})
        return [found[key] for key in sorted(found)]

    def intervals(self, topic: str, partition: int) -> Intervals:
        """All recorded intervals of a partition, sorted; where two begin at one source offset, the newest."""
        pages = standing_pages(self.pages_of(topic, partition))
        starts: dict[int, Interval] = {}
        for block in self.blocks.get((topic, partition), {}).values():
            for interval in block.intervals:
                starts[interval.source_start] = interval
        packed_to = pages[-1].to if pages else 0
        return Intervals([starts[at] for at in sorted(starts) if at >= packed_to], pages)

    def open_gaps(self) -> dict[Where, Gap]:
        """Per partition the gap at which it stands still."""
        return {(g.topic, g.partition): g for g in self.gaps.values() if g.status is GapStatus.STOPPED}

    def left_at_source(self) -> list[Gap]:
        """Stranded records that stay at the source alone, whether the link has gone on behind them yet or not. Those of
        a topic that was made anew since went with it, and where a source was mirrored anew they were, too.
        """
        left = dict[tuple[str, int], list[Gap]]()
        for gap in self.gaps.values():  # in the order of their writing: times are of several machines' clocks
            where = gap.topic, gap.partition
            if gap.kind is GapKind.STRANDED and gap.status is not GapStatus.GONE:
                left.setdefault(where, []).append(gap)
            elif gap.kind in (GapKind.RECREATED, GapKind.MIRRORED_ANEW) and gap.status is GapStatus.PASSED:
                left.pop(where, None)
        return [gap for gaps in left.values() for gap in gaps]

    def in_doubt(self, *, asks_source: bool) -> dict[Where, Gap | Hold]:
        """The partitions where an offset may mean another record than the mirrored one, and why (`doubt.py`).

        `asks_source`: the source's offsets are those of now, so a partition that was held for an error there counts.
        """
        held = {}
        for topic, number in self.checkpoints if asks_source else ():
            hold = self.holds.get((topic, number)) or self.holds.get((topic, None))
            if hold is not None and is_in_doubt(hold):
                held[topic, number] = hold
        return held | {(gap.topic, gap.partition): gap for gap in self.gaps.values() if is_in_doubt(gap)}

    def surplus_gaps(self) -> list[Gap]:
        """The oldest closed lines of the ledger beyond `CLOSED_GAPS_MAX`, but those that a partition's state needs.

        Oldest by where they stand in the log: their times are of several machines' clocks.
        """
        closed = [
            gap
            for gap in self.gaps.values()
            if gap.status in (GapStatus.PASSED, GapStatus.GONE)
            and (gap.kind is not GapKind.DELETED or (gap.topic, gap.partition) not in self.checkpoints)
        ]
        return closed[: max(0, len(closed) - CLOSED_GAPS_MAX)]

    def doubts(self, source_topics: Mapping[str, Topic]) -> dict[Where, str]:
        """As `in_doubt`, in words, beside the source's topics as they are now: a gap is told only by a session."""
        found = {where: in_words(entry) for where, entry in self.in_doubt(asks_source=True).items()}
        for where, known in self.of_other_topics(source_topics).items():
            found.setdefault(where, f"the source topic's id was {known} and is {source_topics[where[0]].topic_id}")
        return found

    def only_held(self, source_topics: Mapping[str, Topic]) -> set[Where]:
        """Those of `doubts` that only a hold puts in doubt, which a worker wrote and none may live to take away."""
        held = {where for where, why in self.in_doubt(asks_source=True).items() if isinstance(why, Hold)}
        return held - self.of_other_topics(source_topics).keys()

    def of_other_topics(self, source_topics: Mapping[str, Topic]) -> dict[Where, str]:
        """The partitions whose offsets speak of a topic that the source's is not any more, and that one's id."""
        found = {}
        for where, checkpoint in self.checkpoints.items():
            known = checkpoint.topic_ids.source or self.topic_ids.get(where[0], "")
            topic = source_topics.get(where[0])
            if topic is not None and topic.topic_id and known and str(topic.topic_id) != known:
                found[where] = known
        return found

    def undecided_gaps(self) -> dict[Where, tuple[Gap, ...]]:
        """Per partition where it stands still, and what an operator accepted of it and the link has not yet passed."""
        found: dict[Where, tuple[Gap, ...]] = {}
        for gap in self.gaps.values():
            if gap.status in UNDECIDED:
                where = (gap.topic, gap.partition)
                found[where] = (*found.get(where, ()), gap)
        return found


def join_units(link: Link, parts: Mapping[int, StateEntries]) -> StateEntries:
    """What the parts of a link's state say together; `parts` by unit. How many count is said by that of unit 0."""
    lead = parts[0]
    link = replace(link, units=lead.units or 1, pins=lead.pins)
    parts = {
        unit: replace(part, link=link, units=lead.units, pins=lead.pins, deal=lead.deal).counting(unit)
        for unit, part in parts.items()
    }
    if link.unit_count == 1:
        return parts[0]
    units = range(link.unit_count)
    known = [parts[unit] for unit in units if unit in parts]
    owners = {unit: parts[unit].owner if unit in parts else None for unit in units}
    runs = [part.run for part in known if part.run is not None]
    return StateEntries(
        link,
        exists=True,
        blocks=_all(part.blocks for part in known),
        pages=_all(part.pages for part in known),
        origins=_all(part.origins for part in known),
        checkpoints=_all(part.checkpoints for part in known),
        gaps=_all(part.gaps for part in known),
        outlived=frozenset().union(*(part.outlived for part in known)),
        acceptances=_all(part.acceptances for part in known),
        topic_ids=_all(part.topic_ids for part in known),
        paused=_all(part.paused for part in known),
        groups=parts[0].groups,
        holds=_all(part.holds for part in known),
        run=min(runs, key=lambda run: _LETS_RUN[run.state], default=None),  # of equals the newest: units go in turn
        backs=parts[0].backs,
        fenced_logs=_all(part.fenced_logs for part in known),
        owner=min((owner for owner in owners.values() if owner is not None), key=lambda one: one.at_ms, default=None),
        unit_owners=owners,
        units=lead.units,
        pins=lead.pins,
        deal=lead.deal,
        units_apart=len({part.run and (part.run.state, part.run.operation_id) for part in known}) > 1,
    )


def _of_unit(link: Link, unit: int, found: Mapping[Where, V]) -> dict[Where, V]:
    return {where: known for where, known in found.items() if link.unit_of(*where) == unit}


def _all(parts: Iterable[Mapping[K, V]]) -> dict[K, V]:
    return dict(chain.from_iterable(part.items() for part in parts))
