"""What a link back may bring to a source of the target's own records, and from where on: kept at the target. Pure.

Behind what a link has mirrored, a lost source had records of its own, which are lost, and such as a link back had
brought there, which the target has. Which they were stands in that link's state, at the lost source. So the link's
worker keeps beside the source's ends how far the link back had come ("returns" in the topic `__farshore-ends-LINK`):
then it is known how many it can have brought at the most. Like all in that topic it is fenced by nothing: once true it
stays true, whoever wrote it, whenever it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.ends_entries import ENDS_VERSION, dump_entry, ends_key, share_of
from mirror.offsets.entries import NO_TOPIC_IDS, TopicIds

RETURNS_KIND: Final = "returns"
SETTLED_MS: Final = 5_000
"""A position that was proved so long ago stands in the link's state: checkpoints come more often."""


class Returning(NamedTuple):
    """What the link back brings to the source's log at or behind `source_from`, it reads in the target's at or behind
    `target_from`. For it goes through that in order, and brings each record once.
    """

    source_from: int
    target_from: int


FROM_THE_START: Final = Returning(0, 0)


@dataclass(frozen=True, slots=True)
class Returns:
    """Of one partition of the source. `ways`: each holds; none: the records may come on ways of which nothing is known,
    or from other sites that the target has them from. `topic_ids`: which topics the offsets speak of.
    """

    ways: tuple[Returning, ...]
    topic_ids: TopicIds = NO_TOPIC_IDS

    def read_from(self, position: int, topic_ids: TopicIds) -> int | None:
        """Where the target's log begins to hold what may lie at or behind the source's `position`; None: not known."""
        if not self.ways:
            return None
        is_same = _may_be_same(self.topic_ids, topic_ids)
        ways = [way for way in self.ways if is_same and way.source_from <= position]
        return max((way.target_from for way in ways), default=0)


def _may_be_same(ids: TopicIds, others: TopicIds) -> bool:
    """Also where one of them is not known."""
    return all(one == other or not (one and other) for one, other in zip(ids, others, strict=True))


@dataclass(slots=True)
class _Seen:
    last: Returning
    topic_ids: TopicIds
    passed: list[tuple[float, Returning]] = field(default_factory=list)
    """Those behind whose `source_from` the link had come when it was looked at, in order, and when that was."""
    ahead: Returning | None = None
    """The first to which it has yet to come."""

    def take(self, way: Returning, position: int, steady_ms: float) -> None:
        for each in (self.ahead, way):
            if each is not None and each.source_from <= position:
                if not self.passed or self.passed[-1][1] != each:
                    self.passed.append((steady_ms, each))
                self.ahead = None
        if way.source_from > position and self.ahead is None:
            self.ahead = way
        while len(self.passed) > 1 and self.passed[1][0] <= steady_ms - SETTLED_MS:
            del self.passed[0]


class ReturnsSeen:
    """What one session saw, and which entries say it. `unit`: whose partitions they are."""

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self._seen: dict[TopicPartition, _Seen] = {}
        self._found: dict[TopicPartition, Returns] = {}
        self._changed: set[int] = set()

    def begin(self, kept: Mapping[TopicPartition, Returns]) -> None:
        """What the sessions before have kept: the link may stand still since then."""
        for where, returns in kept.items():
            if returns.ways:
                self._seen[where] = _Seen(returns.ways[-1], returns.topic_ids, [(0.0, way) for way in returns.ways])

    def see(self, where: TopicPartition, way: Returning, position: int, topic_ids: TopicIds, steady_ms: float) -> None:
        """The link back's state says `way`, and all that the link has to read before `position` is at the target."""
        seen = self._seen.get(where)
        if seen is None or not _may_be_same(seen.topic_ids, topic_ids):
            seen = self._seen[where] = _Seen(way, topic_ids)
        if way.source_from < seen.last.source_from or way.target_from < seen.last.target_from:
            seen = self._seen[where] = _Seen(way, topic_ids)  # the link back began anew: it may bring anything
        seen.last = way
        seen.take(way, position, steady_ms)
        known = [found for _, found in seen.passed] or [FROM_THE_START]
        self._put(where, Returns(tuple(dict.fromkeys((known[0], known[-1]))), topic_ids))

    def see_other_ways(self, where: TopicPartition, topic_ids: TopicIds) -> None:
        """Nothing tells how many come there, or from where."""
        self._put(where, Returns((), topic_ids))

    def _put(self, where: TopicPartition, returns: Returns) -> None:
        if self._found.get(where) != returns:
            self._found[where] = returns
            self._changed.add(share_of(where.topic))

    def write_all(self) -> None:
        """Nothing is known of what was written."""
        self._changed |= {share_of(where.topic) for where in self._found}

    def entries(self) -> list[tuple[bytes, bytes]]:
        """Keys and values of what has changed since the last call."""
        shares: dict[int, dict[str, dict[str, Any]]] = {share: {} for share in sorted(self._changed)}
        self._changed.clear()
        for where, returns in self._found.items():
            if (share := share_of(where.topic)) in shares:
                topic = shares[share].setdefault(where.topic, {"ids": returns.topic_ids, "ways": {}})
                topic["ways"][str(where.partition)] = [number for way in returns.ways for number in way]
        return [
            (ends_key(RETURNS_KIND, share, self._unit), dump_entry({"v": ENDS_VERSION, "topics": topics}))
            for share, topics in shares.items()
        ]


def read_returns(entries: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, Returns]:
    """What the newest entries of all units say together. One that cannot be understood says nothing."""
    found: dict[TopicPartition, Returns] = {}
    for entry in entries:
        try:
            for where, returns in _returns(entry).items():
                before = found.get(where)
                if before is None or not returns.ways or before.topic_ids != returns.topic_ids:
                    found[where] = returns
                elif before.ways:  # once it was another unit's
                    found[where] = replace(returns, ways=tuple(sorted({*before.ways, *returns.ways})))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def _returns(entry: Mapping[str, Any]) -> dict[TopicPartition, Returns]:
    found = {}
    for name, topic in entry["topics"].items():
        ids = TopicIds(*map(str, topic["ids"]))
        for number, flat in topic["ways"].items():
            pairs = zip(flat[::2], flat[1::2], strict=True)
            ways = tuple(Returning(int(source), int(target)) for source, target in pairs)
            found[TopicPartition(name, int(number))] = Returns(ways, ids)
    return found
