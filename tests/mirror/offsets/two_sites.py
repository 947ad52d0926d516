"""A model of two sites that write the same topic: two logs, two links with real maps, and a group that reads at either
and is carried both ways by the real decisions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

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

    def step(self) -> None:
        """What others wrote lies before its end from now on, where nothing of its own is on its way."""
        if self.map.end is not None and not self.in_flight:
            end = End(self.map.end.source_next, len(self.target))
            self.map.intervals.put(Interval(*end))
            self.map.end = end

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

    def carry(self, at: str, commits: bool = True) -> GroupAction | None:
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
        if decision.action is GroupAction.COMMIT and commits:
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
            case "step":
                self.links[at].step()
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
            case "announce":
                self.carry(at, commits=False)


def nothing_to_read(log: Sequence[str], start: int, end: int) -> bool:
    return set(log[min(start, end) : max(start, end)]) <= NOTHING


def set_back_to(sites: Sites, at: str, offset: int) -> None:
    """By a person; what lies behind is unread again."""
    sites.read -= set(sites.logs[at][offset : sites.committed[at]])
    sites.committed[at] = offset


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
