"""Groups of two sites that write the same topics.

A model of two logs, of two links with real maps, and of one group that reads at either site and is carried both ways by
the real decisions. Wherever a link puts the group: no record that it has not read lies behind it; it comes to rest; and
there it stands at the first record that it has not read, at both sites.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.groups.decisions import plan_group_sync
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, Written
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import Examined, GroupMap

EAST, WEST = Site("east", "east:9092"), Site("west", "west:9092")
THERE = Link("east-west", EAST, WEST, ("flights",), shared_targets=True)
BACK = Link("west-east", WEST, EAST, ("flights",), shared_targets=True)
LINKS = {"e": THERE, "w": BACK}
WHERE = TopicPartition("flights", 0)
MARKER, ABORTED = "marker", "aborted"
NOTHING = {MARKER, ABORTED}
OTHER = {"e": "w", "w": "e"}


@dataclass
class LinkModel:
    """A link between two logs, as its worker moves them: batches land, are acknowledged later, fences leave markers."""

    origin: str
    source: list[str]
    target: list[str]
    map: PartitionMap = field(default_factory=PartitionMap)
    cursor: int = 0
    in_flight: list[tuple[tuple[Piece, ...], int, int]] = field(default_factory=list)

    def fence(self) -> None:
        """A new session: what landed is recovered, and the marker is stepped over."""
        self.acknowledge(len(self.in_flight))
        self.target.append(MARKER)
        end = self.map.end or End(0, len(self.target))
        found = End(end.source_next, len(self.target))
        position = self.map.position
        self.map.advance([Interval(*found)], found)
        self.map.position = self.cursor = max(position, found.source_next)

    def move(self, count: int) -> None:
        """One batch lands; what came from the target is left out."""
        taken: list[int] = []
        while self.cursor < len(self.source) and len(taken) < count:
            if self.source[self.cursor].startswith(self.origin):
                taken.append(self.cursor)
            self.cursor += 1
        if taken:
            starts = [(at, n) for n, at in enumerate(taken) if not n or at != taken[n - 1] + 1]
            pieces = tuple(Piece(at, n) for at, n in starts)
            self.in_flight.append((pieces, len(self.target), len(taken)))
            self.target += [self.source[at] for at in taken]
        elif not self.in_flight:
            self.map.position = self.cursor

    def acknowledge(self, count: int) -> None:
        for pieces, base, records in self.in_flight[:count]:
            assert self.map.end is not None
            last = pieces[-1]
            end = End(last.source_start + records - last.ordinal, base + records)
            self.map.advance(intervals_for(self.map.end, pieces, base), end)
        del self.in_flight[:count]
        if not self.in_flight:
            self.map.position = max(self.map.position, self.cursor)


@dataclass
class Sites:
    """Two sites, and a group that any reader of either may be. `seen`: what a link last read of the reverse link."""

    logs: dict[str, list[str]] = field(default_factory=lambda: {"e": [], "w": []})
    committed: dict[str, int] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    written: dict[str, dict[tuple[str, int], Written]] = field(default_factory=lambda: {"e": {}, "w": {}})
    seen: dict[str, OffsetMap] = field(default_factory=lambda: {"e": OffsetMap(), "w": OffsetMap()})
    examined: dict[str, dict[TopicPartition, Examined]] = field(default_factory=lambda: {"e": {}, "w": {}})

    def __post_init__(self) -> None:
        self.links = {at: LinkModel(at, self.logs[at], self.logs[OTHER[at]]) for at in "ew"}

    def consume(self, at: str, count: int) -> None:
        start = self.committed.get(at, 0)
        records = self.logs[at][start : start + count]
        self.read |= set(records) - NOTHING
        self.committed[at] = start + len(records)

    def look(self, at: str) -> None:
        """The link from `at` reads the state of the reverse link."""
        self.seen[at] = OffsetMap({WHERE: copy.deepcopy(self.links[OTHER[at]].map)})

    def group_map(self, at: str) -> GroupMap:
        own, target = OffsetMap({WHERE: self.links[at].map}), self.logs[OTHER[at]]
        examined = self.examined[at].setdefault(WHERE, Examined())
        while True:
            backs = ((LINKS[OTHER[at]], self.seen[at]),)
            found = GroupMap(own, backs, frozenset(), self.examined[at], (), {"g": self.written[OTHER[at]]})
            nothing = {
                offset
                for offset, looked_to in found.unexplained().values()
                if target[offset] == MARKER or (target[offset] == ABORTED and offset < looked_to)
            }
            if not nothing:
                return found
            examined.without_records |= nothing

    def carry(self, at: str) -> GroupAction | None:
        """One pass of the link from `at`."""
        if at not in self.committed or self.links[at].map.end is None:
            return None
        there = OTHER[at]
        at_target = {WHERE: CommittedOffset(self.committed[there])} if there in self.committed else {}
        at_source = {WHERE: CommittedOffset(self.committed[at])}
        (decision,) = plan_group_sync(
            LINKS[at], "g", self.group_map(at), at_source, at_target, self.written[at], target_group_empty=True
        )
        if decision.written is not None:
            self.written[at][WHERE] = decision.written
        if decision.action is GroupAction.COMMIT:
            assert decision.target_offset is not None
            self.committed[there] = decision.target_offset
            unread = [record for record in self.logs[there][: decision.target_offset] if record not in self.read]
            assert set(unread) <= NOTHING, f"{unread} would never be read"
        return decision.action

    def settle(self) -> None:
        """Everything is mirrored and known."""
        for at in "ewew":
            self.links[at].move(1000)
            self.links[at].acknowledge(1000)
            self.links[at].move(1)
        for at in "ew":
            self.look(at)

    def first_unread(self, at: str) -> int:
        """The first offset that holds a record which was not read."""
        log = self.logs[at]
        return next((n for n, record in enumerate(log) if record not in NOTHING and record not in self.read), len(log))

    def apply(self, verb: str, at: str, count: int) -> None:
        match verb:
            case "write":
                self.logs[at] += [f"{at}{len(self.logs[at]) + n}" for n in range(count)]
            case "marker":
                self.logs[at].append(MARKER)
            case "abort":
                self.logs[at] += [ABORTED] * count + [MARKER]
            case "fence":
                self.links[at].fence()
            case "move" if self.links[at].map.end is not None:
                self.links[at].move(count)
            case "acknowledge":
                self.links[at].acknowledge(count)
            case "consume":
                self.consume(at, count)
            case "look":
                self.look(at)
            case "carry":
                self.carry(at)


VERBS = ("write", "write", "marker", "abort", "fence", "move", "move", "acknowledge", "consume", "look", "carry")
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from("ew"), st.integers(1, 4)), max_size=60)


def nothing_to_read(log: Sequence[str], start: int, end: int) -> bool:
    return set(log[min(start, end) : max(start, end)]) <= NOTHING


@settings(max_examples=600)
@given(steps, st.booleans())
def test_nothing_unread_is_left_out_and_all_comes_to_rest_at_the_first_unread_record(
    run: list[tuple[str, str, int]], fenced_first: bool
) -> None:
    """Also where a link has brought nothing since it began, and its own end stays where it was."""
    sites = Sites()
    for step in [*[("fence", at, 1) for at in "ew" if fenced_first], *run]:
        sites.apply(*step)
    for at in "" if fenced_first else "ew":
        sites.links[at].fence()
    sites.settle()
    for _ in range(3):
        actions = {sites.carry(at) for at in "ew"}
    assert actions <= {GroupAction.UP_TO_DATE, None}, "two links drive the group to and fro"
    for at, offset in sites.committed.items():
        found = f"{at}: stands at {offset}, the first unread is {sites.first_unread(at)}"
        assert nothing_to_read(sites.logs[at], offset, sites.first_unread(at)), found


@given(steps, st.integers(0, 30))
def test_a_group_that_has_read_at_one_site_only_lands_there_where_it_began(
    run: list[tuple[str, str, int]], count: int
) -> None:
    sites = Sites()
    for verb, at, number in run:
        if verb not in ("consume", "carry"):
            sites.apply(verb, at, number)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    sites.consume("e", count)
    began = sites.committed["e"]
    for at in "ewew":
        sites.carry(at)
    assert nothing_to_read(sites.logs["e"], began, sites.committed["e"])


@settings(max_examples=600)
@given(steps, st.sampled_from("ew"), st.integers(0, 30), st.lists(st.sampled_from("ew"), max_size=4))
def test_a_group_set_back_at_either_site_goes_back_at_both(
    run: list[tuple[str, str, int]], at: str, offset: int, order: list[str]
) -> None:
    """What it is to read again is unread again; whichever link looks first does not undo it."""
    sites = Sites()
    for step in run:
        sites.apply(*step)
    for site in "ew":
        sites.links[site].fence()
    sites.settle()
    for site in "ewewew":
        sites.carry(site)
    began = sites.committed.get(at, 0)
    back_to = min(offset, began)
    if back_to == began:
        return
    set_back_to(sites, at, back_to)
    for site in [*order, *"ewewew"]:
        sites.carry(site)
    assert nothing_to_read(sites.logs[at], back_to, sites.committed[at]), "it was not undone, and went no further"
    for site, stands_at in sites.committed.items():
        assert stands_at <= sites.first_unread(site) or nothing_to_read(
            sites.logs[site], sites.first_unread(site), stands_at
        ), f"{site}: stands at {stands_at}"


carries = st.lists(st.sampled_from("ew"), max_size=3)


@settings(max_examples=600)
@given(steps, st.lists(st.tuples(st.integers(1, 4), carries), min_size=1, max_size=3), st.integers(0, 30), carries)
def test_a_group_that_reads_at_one_site_and_is_set_back_there_goes_back_at_both_however_far_the_links_are(
    run: list[tuple[str, str, int]], reads: list[tuple[int, list[str]]], offset: int, order: list[str]
) -> None:
    """Neither link need have seen it at rest: what stands at the other site is what the link there put."""
    sites = Sites()
    for verb, at, number in run:
        if verb not in ("consume", "carry"):
            sites.apply(verb, at, number)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    for count, looks in reads:
        sites.consume("e", count)
        for at in looks:
            sites.carry(at)
    back_to = min(offset, sites.committed["e"])
    set_back_to(sites, "e", back_to)
    for at in [*order, *"ewewew"]:
        sites.carry(at)
    assert nothing_to_read(sites.logs["e"], back_to, sites.committed["e"]), "it was not undone, and went no further"
    if "w" in sites.committed:
        first = sites.first_unread("w")
        assert sites.committed["w"] <= first or nothing_to_read(sites.logs["w"], first, sites.committed["w"])


def set_back_to(sites: Sites, at: str, offset: int) -> None:
    """By a person; what lies behind is unread again."""
    sites.read -= set(sites.logs[at][offset : sites.committed[at]])
    sites.committed[at] = offset


def test_a_set_back_that_came_from_the_other_site_is_not_carried_back_there() -> None:
    """It would go further back than was asked for, by how far the two logs differ in their order: to the beginning."""
    sites = two("e0 e1 e2 e3 w0 w1 w2 w3", "w0 w1 w2 w3 e0 e1 e2 e3")
    for at in "ew":
        sites.look(at)
    sites.consume("w", 6)
    for site in "wewe":
        sites.carry(site)
    assert sites.committed == {"e": 2, "w": 6}
    set_back_to(sites, "w", 3)
    for site in "ewewewew":
        sites.carry(site)
    assert sites.committed == {"e": 0, "w": 3}, "w3, e0 and e1 are read again, and nothing else"


def two(east: str, west: str) -> Sites:
    """Two logs as they are written here, all mirrored: records by name, "-" a marker; the links have no more to do."""
    sites = Sites()
    for at, log in (("e", east), ("w", west)):
        sites.logs[at][:] = [MARKER if name == "-" else name for name in log.split()]
    for link in sites.links.values():
        placed = [(n, link.target.index(r)) for n, r in enumerate(link.source) if r in link.target and r != MARKER]
        placed = [(source, target) for source, target in placed if link.source[source].startswith(link.origin)]
        first = placed[0] if placed else (0, len(link.target))
        link.map.advance([Interval(*first)], End(*first))
        for source, target in placed:
            link.map.advance(
                intervals_for(link.map.end or End(0, 0), (Piece(source, 0),), target), End(source + 1, target + 1)
            )
        link.map.position = link.cursor = len(link.source)
    return sites


def test_a_group_goes_on_at_the_first_record_of_either_kind_that_it_has_not_read() -> None:
    sites = two("e0 e1 w0 e2 e3 w1", "w0 e0 e1 w1 e2 e3")
    sites.look("e")
    assert sites.links["e"].map.to_target(3) == 4, "behind w1, which the group has not read"
    assert sites.group_map("e").to_target(*WHERE, 3) == 3
    assert sites.group_map("e").to_target(*WHERE, 3, read_to=4) == 4, "w1 was read there"
    assert sites.group_map("e").to_target(*WHERE, 3, read_to=5) == 5, "and so was e2"
    assert sites.group_map("e").to_target(*WHERE, 6) == 6
    sites = two("e0 w0 w1 e1 w2", "e0 w0 w1 e1 w2")
    sites.look("e")
    assert sites.group_map("e").to_target(*WHERE, 5) == 5, "all was read, also what the target wrote last"


def test_a_reverse_link_that_never_ran_sends_no_group_to_the_beginning() -> None:
    """It has brought nothing, so whatever is not this link's own is unread; but markers are nobody's records."""
    sites = two("e0 e1 e2 e3", "- e0 e1 - e2 e3")
    assert sites.group_map("e").to_target(*WHERE, 3) == 5
    assert sites.group_map("e").to_target(*WHERE, 4) == 6
    sites = two("e0 e1 e2 e3", "- e0 e1 - w0 e2 e3")
    assert sites.group_map("e").to_target(*WHERE, 3) == 4, "w0 was never brought to the east"


def test_what_retention_deleted_at_the_target_is_nobodys_to_read() -> None:
    """A group that were sent there would find its offset out of range, and start where its own policy says."""
    sites = two("e0 e1 e2 e3", "- e0 e1 w0 e2 e3")
    own = OffsetMap({WHERE: sites.links["e"].map})
    for log_start, expected in ((0, 0), (3, 3), (4, 5)):
        found = GroupMap(own, ((BACK, OffsetMap()),), frozenset(), {WHERE: Examined(log_start)})
        assert found.to_target(*WHERE, 3) == expected


def test_the_end_is_not_passed_by_a_record_that_landed_unacknowledged() -> None:
    """The reverse link has read past it; this link does not know yet that it is there."""
    sites = Sites()
    for at in "ew":
        sites.links[at].fence()
    sites.logs["e"] += ["e1"]
    sites.settle()
    sites.logs["e"] += ["e2"]
    sites.links["e"].move(1)
    sites.links["w"].move(1)
    sites.look("e")
    sites.consume("e", 2)
    sites.carry("e")
    assert sites.logs["w"][sites.committed["w"]] == "e2"


def test_what_one_site_lost_track_of_is_declined() -> None:
    sites = two("e0 e1", "e0 e1")
    doubted = GroupMap(sites.group_map("e").own, (), frozenset({WHERE}))
    assert doubted.to_target(*WHERE, 1) is None


def test_what_stays_at_the_target_is_passed_also_where_no_link_brought_anything_behind_it() -> None:
    """A link back that has fenced and brought nothing yet: its groups, and its switchover, ended with a TypeError."""
    own, back = PartitionMap(), PartitionMap()
    own.advance([], End(0, 28))
    back.advance([], End(20, 21))
    found = GroupMap(
        OffsetMap({WHERE: own}), ((BACK, OffsetMap({WHERE: back})),), left_at_target={WHERE: (range(20, 27),)}
    )
    assert found.unexplained() == {WHERE: (27, 20)}


@pytest.mark.parametrize("between", ["marker", "abort"])
def test_a_group_comes_back_to_where_it_read_to_by_a_link_that_has_brought_nothing_since_it_began(between: str) -> None:
    """The link's own end stays before all that was written and mirrored away since."""
    sites = Sites()
    for at in "ew":
        sites.links[at].fence()
    for verb in ("write", between, "write"):
        sites.apply(verb, "e", 2)
    sites.settle()
    sites.consume("w", 4)
    assert sites.read == {"e1", "e2", sites.logs["e"][-2]}
    sites.carry("w")
    assert sites.committed["e"] == len(sites.logs["e"]) - 1
