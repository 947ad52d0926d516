"""What is stated as lost where both sites write a topic, held by content against random histories of the two logs.

The east is lost at some step of a history: with applications that wrote at both sites, in transactions or not, a link
each way, and a worker of the link to the west that looked at the link back now and then. What is stated is never more
than what the west lacks.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.losses.statements import PartitionLoss, state_loss
from failover.observing.returned import Returned
from failover.observing.snapshot import PartitionView
from mirror.api import Link, LinkState, Observation, OffsetMap, StateEntries
from mirror.offsets.entries import NO_TOPIC_IDS, Checkpoint, TopicIds, Writer
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.left_out import LeftOut
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.pages import pack_page
from mirror.offsets.returns import FROM_THE_START, Returning, Returns, ReturnsSeen
from mirror.offsets.runs import OthersCounter
from mirror.offsets.source_ends import read_observation
from tests.mirror.offsets.two_sites import BACK, NOTHING, THERE, WHERE, Sites

SHARED = replace(THERE, reverse_links=(BACK,))
VERBS = ("write", "write", "marker", "abort", "fence", "step", "move", "move", "acknowledge", "acknowledge")
WATCHING = ("keep", "look", "look", "end", "restart", "later")
steps = st.lists(st.tuples(st.sampled_from(VERBS + WATCHING), st.sampled_from("ew"), st.integers(1, 4)), max_size=80)


@dataclass
class Lost:
    """Both sites, and what the worker at the west kept: a checkpoint, where the east's log ended, and how far the link
    back had come.
    """

    sites: Sites = field(default_factory=Sites)
    kept: PartitionMap | None = None
    back_way: Returning = FROM_THE_START
    seen: ReturnsSeen = field(default_factory=lambda: ReturnsSeen(0))
    entries: dict[bytes, bytes] = field(default_factory=dict)
    end: int = 0
    now_ms: float = 0.0

    def apply(self, verb: str, at: str, count: int) -> None:
        match verb:
            case "keep" if at == "e":
                self.kept = copy.deepcopy(self.sites.links["e"].map)
            case "keep" if (back := self.sites.links["w"].map).end is not None:
                self.back_way = Returning(back.end.target_next, max(back.position, back.end.source_next))
            case "keep":
                pass
            case "look":
                own = self.sites.links["e"].map
                if own.end is not None:
                    position = max(own.position, own.end.source_next)
                    self.seen.see(WHERE, self.back_way, position, NO_TOPIC_IDS, self.now_ms)
                    self.entries |= self.seen.entries()
            case "restart":
                self.seen = ReturnsSeen(0)
                self.seen.begin(self.observation().returns)
            case "later":
                self.now_ms += 3_000 * count
            case "end":
                self.end = len(self.sites.logs["e"])
            case _:
                self.sites.apply(verb, at, count)

    def observation(self) -> Observation:
        return read_observation(self.entries.items())

    @property
    def recovered(self) -> PartitionMap:
        """What landed is found in the west's log; what was passed without that, only as it was written down."""
        link = copy.deepcopy(self.sites.links["e"])
        position = link.map.position
        link.acknowledge(len(link.in_flight))
        found = link.map
        if self.kept is not None and found.end is not None:
            found.position = max(found.end.source_next, min(self.kept.position, position))
        return found

    def stated(self, link: Link = SHARED) -> PartitionLoss:
        found, target = self.recovered, TopicPartition(*WHERE)
        offset_map = OffsetMap({WHERE: found} if found.end is not None and self.kept is not None else {})
        end, target_end = offset_map.mirrored_end(*WHERE), len(self.sites.logs["w"])
        checkpoints: dict[tuple[str, int], Checkpoint] = {}
        if end is not None:
            checkpoints[WHERE] = Checkpoint(*WHERE, end, end.source_next, Writer(1, 0), 0, self.end, -1, 0)
        state = LinkState(StateEntries(link, checkpoints=checkpoints), offset_map)
        returned = Returned(link, state, self.observation(), {target: target_end})
        first = end.source_next if end is not None else 0
        at_most = returned.at_most(WHERE, max(0, self.end - first))
        view = PartitionView(*WHERE, WHERE.topic, None, self.end, None, 0, first, target_end, returned_at_most=at_most)
        return state_loss(view, 0)

    def lacking(self, loss: PartitionLoss) -> int:
        """Offsets of the east, as far as they were seen, that hold nothing that the west has."""
        assert loss.first_offset is not None
        there = set(self.sites.logs["w"]) - NOTHING
        return sum(record not in there for record in self.sites.logs["e"][loss.first_offset : self.end])


@settings(max_examples=400, deadline=None)
@given(steps, st.booleans())
def test_never_more_is_stated_than_the_target_lacks(run: list[tuple[str, str, int]], fenced: bool) -> None:
    lost = Lost()
    for step in [*[("fence", at, 1) for at in "ew" if fenced], *run]:
        lost.apply(*step)
    lost.apply("end", "e", 1)
    loss = lost.stated()
    assert loss.offsets is not None
    assert loss.offsets <= lost.lacking(loss)
    assert loss.first_offset is not None
    assert loss.offsets + loss.unclear_offsets == max(0, lost.end - loss.first_offset), "all that was seen is stated"


def history(rng: random.Random, *, is_stalled: bool, aborts: bool) -> Lost:
    """Both links run, with looks; the one that is lost with its source goes to its end, or stood still for long."""
    lost = Lost()
    for at in "ew":
        lost.apply("fence", at, 1)
    for number in range(60):
        stands = is_stalled and number > 30
        for at in "ew":
            lost.apply(rng.choice(("write", "write", "write", "abort" if aborts else "write")), at, rng.randint(1, 4))
            if at == "w" or not stands:
                lost.apply("move", at, 50)
                lost.apply("acknowledge", at, 50)
                lost.apply("keep", at, 1)
        if number % 3 == 0:
            lost.apply("look", "e", 1)
            lost.apply("later", "e", 1)
    lost.apply("write", "e", rng.randint(1, 9))
    lost.apply("end", "e", 1)
    return lost


@pytest.mark.parametrize(
    ("is_stalled", "aborts", "least"), [(False, True, 0.0), (True, True, 0.4), (True, False, 0.85)]
)
def test_where_the_links_ran_most_of_what_is_lost_is_stated(is_stalled: bool, aborts: bool, least: float) -> None:
    """Markers and aborted records of the target are not told from records that came back: so much is not stated."""
    sums: Counter[str] = Counter()
    for seed in range(40):
        lost = history(random.Random(seed), is_stalled=is_stalled, aborts=aborts)
        loss = lost.stated()
        assert loss.offsets is not None
        assert loss.offsets <= lost.lacking(loss)
        sums.update(stated=loss.offsets, lacking=lost.lacking(loss))
    assert sums["lacking"] > 0
    assert sums["stated"] >= least * sums["lacking"], sums


MIRRORED = PartitionMap((Interval(0, 5), Interval(10, 25)), End(20, 35), 20)
"""At the target: 5 of others, 10, 10 of others, 10; its log ends at 40."""
AT = TopicPartition(*WHERE)


def at_most(link: Link, returns: Returns | None, unmirrored: int | None = 100, *, left_out: bool = False) -> int | None:
    ids = TopicIds("here", "there")
    left = (LeftOut("north", 0, 5),) if left_out else ()
    checkpoint = Checkpoint(*WHERE, End(20, 35), 20, Writer(1, 0), 0, 0, -1, 0, topic_ids=ids, left_out=left)
    state = LinkState(StateEntries(link, checkpoints={WHERE: checkpoint}), OffsetMap({WHERE: MIRRORED}))
    observation = Observation(returns={} if returns is None else {AT: returns})
    returned = Returned(link, state, observation, {AT: 40})
    assert returned.is_shared(AT) is (link is not THERE or returns is not None)
    return returned.at_most(AT, unmirrored)


def test_it_is_as_much_as_the_target_has_of_others_since_the_link_back_was_seen() -> None:
    ids = TopicIds("here", "there")
    assert at_most(SHARED, None) == 20, "nobody looked: all that others wrote"
    for read_from, expected in ((0, 20), (3, 17), (5, 15), (20, 10), (30, 5), (37, 3), (40, 0), (41, None)):
        assert at_most(THERE, Returns((Returning(20, read_from),), ids)) == expected
    way = Returning(21, 37)
    assert at_most(SHARED, Returns((way,), ids)) == 20, "the link had not come there"
    assert at_most(SHARED, Returns((Returning(20, 37),), TopicIds("here", "other"))) == 20
    assert at_most(SHARED, None, 7) == 7
    assert at_most(SHARED, None, 0) == 0
    assert at_most(THERE, None) == 0, "no link back"


def test_where_records_come_on_more_ways_it_may_be_any_number() -> None:
    north = Site("north", "north:9092")
    side, around = (
        Link("north-west", north, THERE.target, ("fl.*",)),
        Link("north-east", north, THERE.source, ("fl.*",)),
    )
    assert at_most(THERE, Returns(())) is None
    assert at_most(replace(SHARED, side_links=(side,)), None) is None
    assert at_most(replace(SHARED, round_links=(around,)), None) is None
    assert at_most(replace(SHARED, side_links=(replace(side, topics=("gates",)),)), None) == 20
    assert at_most(replace(SHARED, reverse_links=(BACK, replace(BACK, name="renamed"))), None) is None
    assert at_most(SHARED, None, left_out=True) is None
    assert at_most(SHARED, None, None) is None, "what is there will be read"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)), max_size=12),
    st.integers(0, 3),
    st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 60)),
)
def test_others_are_counted_from_the_end_as_far_as_it_tells(
    batches: list[tuple[int, int, int]], packed: int, asked: tuple[int, int, int]
) -> None:
    found, ours = PartitionMap((Interval(0, 0),), End(0, 0)), set[int]()
    assert found.end is not None
    for gap_here, gap_there, count in batches:
        source, target = found.end.source_next + gap_here, found.end.target_next + gap_there
        found.advance(intervals_for(found.end, (Piece(source, 0),), target), End(source + count, target + count))
        ours |= set(range(target, target + count))
    start, more, up_to = asked
    end = found.end.target_next + more
    true = min(up_to, len(set(range(start, end)) - ours))
    assert OthersCounter(1_000).count(found, start, end, up_to) == true
    if packed and len(found.intervals) > packed:
        page = pack_page(*WHERE, found.intervals[:packed], found.intervals[packed].source_start, [1])
        found.intervals.pack(0, packed, page)
        assert OthersCounter(packed).count(found, start, end, up_to) == true
        assert true <= OthersCounter(packed - 1).count(found, start, end, up_to) <= up_to
        both = OthersCounter(packed)
        assert both.count(found, 0, end, 1_000) <= both.count(found, 0, end, 1_000), "the second is not opened any more"
