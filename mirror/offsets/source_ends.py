"""Where a source's logs were last seen to end, as it is kept at the target: what is known when the source is gone.

The topic `__farshore-ends-LINK` has one partition and is compacted. Its entries are JSON: one for each share of the
source's topics ("ends"), written when something in it has changed, one ("seen") that says when the source last told
all of them, one ("brokers") of where it was reached, some ("returns", `returns.py`) of what a link back brings there,
and some ("fence", `fence_ends.py`) of a promotion. Of the first two each says itself when it was seen, and "seen" names
the shares that it speaks of by their times. So an entry is true whenever it arrives, and whoever wrote it: one of a
worker that hung makes the newest known end an older one, with its own time, and nothing untrue. That is why nothing
fences this topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.base.address import AddressInvalid, parse_address
from broker.client.cluster import Cluster
from broker.client.scan import scan_log
from broker.client.topics import describe_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.ends_entries import ENDS_VERSION, SHARES, dump_entry, ends_key, load_entry, share_of
from mirror.offsets.fence_ends import FENCE_KIND, FenceEnds, read_fence_ends
from mirror.offsets.log_pace import NOT_SEEN, TopicPace, fastest_per_s
from mirror.offsets.returns import RETURNS_KIND, Returns, read_returns

PACE_WINDOWS_MS: Final = (1_000, 2_000, 5_000, 10_000, 20_000, 40_000, 60_000)
"""How far back the growth of the logs is told."""


class Ceased(NamedTuple):
    """Of a log that ceased to tell its end while others did: when it was first asked in vain (Unix ms), and its own
    fastest second of the minute before. None: not known, of an older version, or of a log that was seen once.
    """

    unanswered_at_ms: int | None
    fastest_per_s: float | None


class SeenEnd(NamedTuple):
    """A source log [start, end) as it was at `at_ms` (Unix time, the worker's clock), of the topic with this id."""

    start: int
    end: int
    at_ms: int
    topic_id: str = ""
    ceased: Ceased | None = None


class Growth(NamedTuple):
    """So many offsets came to the source's logs, all together, in the last `within_ms` before it was last seen."""

    within_ms: int
    offsets: int


@dataclass(frozen=True, slots=True)
class LastLook:
    """When the source last told where its logs end (Unix ms, the worker's clock), and how fast they grew before that.

    `unanswered_at_ms`: the worker asked then, and since then no broker has answered; None: it did not say so.
    `grown` goes back a minute, or as far as the worker had looked; `fastest_per_s` is of its fastest second.
    """

    at_ms: int
    unanswered_at_ms: int | None = None
    grown: tuple[Growth, ...] = ()
    fastest_per_s: float = 0.0

    @property
    def watched_ms(self) -> int:
        """How far back the pace goes: less than a minute where the worker that looked had just begun."""
        return self.grown[-1].within_ms if self.grown else 0

    def seconds_of(self, offsets: int) -> float | None:
        """How long it took to write the last so many offsets; None: longer than `grown` goes back."""
        before = Growth(0, 0)
        for growth in self.grown:
            if growth.offsets >= offsets:
                more = growth.offsets - before.offsets
                part = (offsets - before.offsets) / more if more else 0.0
                return (before.within_ms + part * (growth.within_ms - before.within_ms)) / 1000
            before = growth
        return None


class SourceBrokers(NamedTuple):
    """Where the brokers of the source's cluster were, as they advertised it."""

    cluster_id: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """All that is kept; `last` is None where the source was never seen by a version that keeps this."""

    last: LastLook | None = None
    ends: Mapping[TopicPartition, SeenEnd] = field(default_factory=dict)
    brokers: SourceBrokers = field(default_factory=SourceBrokers)
    returns: Mapping[TopicPartition, Returns] = field(default_factory=dict)
    """Of partitions into which a link back brings the target's own records."""
    fence_ends: Mapping[str, FenceEnds] = field(default_factory=dict)
    """Where the logs ended at a promotion, by the operation that promoted the link."""


@dataclass(slots=True)
class _Logs:
    """One topic's, by partition: NOT_SEEN where none told. `late`: of one that does not tell its end any more, when it
    was last told.
    """

    topic_id: str
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    late: dict[int, int] = field(default_factory=dict)
    ceased: dict[int, Ceased] = field(default_factory=dict)
    pace: TopicPace = field(default_factory=TopicPace)

    def grow(self, count: int) -> None:
        self.starts += [0] * (count - len(self.starts))
        self.ends += [NOT_SEEN] * (count - len(self.ends))


class TopicShape(NamedTuple):
    """What the source's metadata says of a topic."""

    topic_id: str
    partitions: int


class EndsSeen:
    """What the worker saw, and which entries say it. One writer; time and answers are passed in."""

    def __init__(self) -> None:
        self._logs: dict[str, _Logs] = {}
        self._changed: set[int] = set()
        self._share_at_ms: dict[int, int] = {}
        self._at_ms: int | None = None
        self._unanswered_at_ms: int | None = None
        self._total = 0
        self._totals: deque[tuple[float, int]] = deque()
        self._seen: bytes = b""
        self._brokers = self._brokers_written = SourceBrokers()

    def take(
        self,
        asked_at_ms: int,
        steady_ms: float,
        topics: Mapping[str, TopicShape],
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
    ) -> None:
        """The source was asked at `asked_at_ms` and told these; what is not in `ends` did not answer.

        `starts` are those that were asked for this time.
        """
        for gone in self._logs.keys() - topics.keys():
            del self._logs[gone]
            self._changed.add(share_of(gone))
        is_first = self._at_ms is None
        unanswered_at_ms = asked_at_ms if self._unanswered_at_ms is None else self._unanswered_at_ms
        for name, shape in topics.items():
            logs = self._logs.get(name)
            if logs is None or logs.topic_id != shape.topic_id:
                logs = self._logs[name] = _Logs(shape.topic_id)
                self._changed.add(share_of(name))
            born_from = shape.partitions if is_first else len(logs.ends)
            logs.grow(shape.partitions)
            changed = self._take_logs(name, logs, ends, starts, born_from, unanswered_at_ms)
            logs.pace.add(steady_ms, logs.ends, changed=changed)
            if changed:
                self._changed.add(share_of(name))
        self._at_ms, self._unanswered_at_ms = asked_at_ms, None
        self._totals.append((steady_ms, self._total))
        while self._totals[0][0] < steady_ms - PACE_WINDOWS_MS[-1]:
            self._totals.popleft()

    def _take_logs(
        self,
        name: str,
        logs: _Logs,
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        born_from: int,
        unanswered_at_ms: int,
    ) -> bool:
        """Partitions from `born_from` on were made since the last look -> whether something of it has changed."""
        changed = False
        for number, before in enumerate(logs.ends):
            where = TopicPartition(name, number)
            end, start = ends.get(where), starts.get(where, logs.starts[number])
            if end is None:
                if before != NOT_SEEN and number not in logs.late and self._at_ms is not None:
                    logs.late[number] = self._at_ms
                    logs.ceased[number] = Ceased(unanswered_at_ms, logs.pace.fastest_per_s(number))
                    changed = True
                continue
            changed |= end != before or start != logs.starts[number] or number in logs.late
            logs.late.pop(number, None)
            logs.ceased.pop(number, None)
            logs.ends[number], logs.starts[number] = end, start
            if before != NOT_SEEN or number >= born_from:
                self._total += max(0, end - max(0, before))
        return changed

    def take_brokers(self, brokers: SourceBrokers) -> None:
        """The source said that these are its own."""
        self._brokers = brokers

    def miss(self, asked_at_ms: int) -> None:
        """The source was asked then, and no broker of it answered."""
        if self._at_ms is not None and self._unanswered_at_ms is None:
            self._unanswered_at_ms = asked_at_ms

    def entries(self) -> list[tuple[bytes, bytes]]:
        """Keys and values of what is to be written now: shares first, so that "seen" speaks of what is there."""
        if self._at_ms is None:
            return []
        for share in self._changed:
            self._share_at_ms[share] = self._at_ms
        written = [(ends_key("ends", share), self._share(share)) for share in sorted(self._changed)]
        self._changed.clear()
        seen = dump_entry(
            {
                "v": ENDS_VERSION,
                "at_ms": self._at_ms,
                "unanswered_at_ms": self._unanswered_at_ms,
                "shares": {str(share): at for share, at in sorted(self._share_at_ms.items())},
                "grown": self._grown(),
                "fastest_per_s": round(fastest_per_s(self._totals), 1),
            }
        )
        if seen == self._seen and not written:
            return []
        self._seen = seen
        if self._brokers != self._brokers_written:
            self._brokers_written = self._brokers
            written.append((ends_key("brokers"), dump_entry({"v": ENDS_VERSION, **self._brokers._asdict()})))
        return [*written, (ends_key("seen"), seen)]

    def write_all(self) -> None:
        """Nothing is known of what was written: the next entries are all."""
        self._changed |= {share_of(name) for name in self._logs} | self._share_at_ms.keys()
        self._seen, self._brokers_written = b"", SourceBrokers()

    def _share(self, share: int) -> bytes:
        topics = {name: _logs(logs) for name, logs in sorted(self._logs.items()) if share_of(name) == share}
        return dump_entry({"v": ENDS_VERSION, "at_ms": self._share_at_ms[share], "topics": topics})

    def _grown(self) -> list[Growth]:
        """Of each window, or of as much of it as was looked at."""
        now_ms, total = self._totals[-1]
        found: list[Growth] = []
        for window_ms in PACE_WINDOWS_MS:
            at_ms, before = next((s for s in reversed(self._totals) if s[0] <= now_ms - window_ms), self._totals[0])
            within_ms = round(now_ms - at_ms)
            if within_ms > (found[-1].within_ms if found else 0):
                found.append(Growth(within_ms, total - before))
        return found


def _logs(logs: _Logs) -> dict[str, Any]:
    value: dict[str, Any] = {"id": logs.topic_id, "ends": logs.ends}
    if any(logs.starts):
        value["starts"] = {str(at): start for at, start in enumerate(logs.starts) if start}
    if logs.late:
        value["late"] = {str(at): since_ms for at, since_ms in sorted(logs.late.items())}
        value["ceased"] = {str(at): ceased for at, ceased in sorted(logs.ceased.items())}
    return value


def read_observation(entries: Iterable[tuple[bytes | None, bytes | None]]) -> Observation:
    """What the records of the topic say, in their order. What cannot be understood says nothing: it is not known."""
    newest: dict[bytes, dict[str, Any]] = {}
    for key, value in entries:
        newest.pop(key or b"", None)
        decoded = load_entry(value)
        if key is not None and decoded is not None:
            newest[key] = decoded
    seen = newest.get(ends_key("seen"), {})
    try:
        last = _last_look(seen) if seen else None
        spoken_of = dict(seen.get("shares", {}))
    except (KeyError, TypeError, ValueError):
        last, spoken_of = None, {}
    ends: dict[TopicPartition, SeenEnd] = {}
    for share in range(SHARES):
        entry = newest.get(ends_key("ends", share))
        if entry is not None:
            stands = last is not None and spoken_of.get(str(share)) == entry.get("at_ms")
            try:
                ends |= _seen_ends(entry, last.at_ms if last is not None and stands else None)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
    fences = read_fence_ends(entry for key, entry in newest.items() if key.startswith(ends_key(FENCE_KIND)[:-1]))
    return Observation(last, ends, _brokers(newest.get(ends_key("brokers"), {})), _returned(newest), fences)


def _returned(newest: Mapping[bytes, dict[str, Any]]) -> Mapping[TopicPartition, Returns]:
    prefix = ends_key(RETURNS_KIND)[:-1]
    return read_returns(entry for key, entry in newest.items() if key.startswith(prefix))


async def load_observation(link: Link, target: Cluster) -> Observation:
    """What the target keeps of the link's source; nothing where no worker ever kept it. Raises ClientError."""
    where = TopicPartition(link.ends_topic, 0)
    if not await describe_topics(target, [where.topic]):
        return Observation()
    records: list[Record] = []
    await scan_log(target, where, records.append)
    return read_observation((record.key, record.value) for record in records)


def _last_look(seen: Mapping[str, Any]) -> LastLook:
    unanswered_at_ms = seen["unanswered_at_ms"]
    return LastLook(
        int(seen["at_ms"]),
        None if unanswered_at_ms is None else int(unanswered_at_ms),
        tuple(Growth(int(within_ms), int(offsets)) for within_ms, offsets in seen["grown"]),
        float(seen["fastest_per_s"]),
    )


def _brokers(entry: Mapping[str, Any]) -> SourceBrokers:
    cluster_id, addresses = entry.get("cluster_id"), entry.get("addresses")
    if not isinstance(cluster_id, str) or not isinstance(addresses, list):
        return SourceBrokers()
    try:
        return SourceBrokers(cluster_id, tuple(str(parse_address(one)) for one in addresses))
    except (AddressInvalid, AttributeError):
        return SourceBrokers()


def _seen_ends(entry: Mapping[str, Any], stands_to_ms: int | None) -> dict[TopicPartition, SeenEnd]:
    """`stands_to_ms`: the last look, where that found the share as this entry says."""
    at_ms = int(entry["at_ms"]) if stands_to_ms is None else stands_to_ms
    return {
        TopicPartition(name, number): SeenEnd(
            int(logs.get("starts", {}).get(str(number), 0)),
            int(end),
            int(logs.get("late", {}).get(str(number), at_ms)),
            str(logs["id"]),
            _ceased(logs, str(number)),
        )
        for name, logs in entry["topics"].items()
        for number, end in enumerate(logs["ends"])
        if end != NOT_SEEN
    }


def _ceased(logs: Mapping[str, Any], number: str) -> Ceased | None:
    if number not in logs.get("late", {}):
        return None
    unanswered_at_ms, per_s = logs.get("ceased", {}).get(number, (None, None))
    return Ceased(None if unanswered_at_ms is None else int(unanswered_at_ms), None if per_s is None else float(per_s))
