"""What must hold: of each checkpoint when it is written, and of everything when the faults are over."""

from __future__ import annotations

from bisect import bisect_left

from broker.client.cluster import Cluster
from broker.wire.records import decode_records
from broker.wire.vocabulary import TopicPartition
from mirror.lag import link_lag
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Gap, GapStatus, decode_entry, decode_key
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.state import LinkState, load_link_state
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.logs import SimulatedPartition, Stored
from tests.mirror.simulation.trace import Found, Trace
from tests.mirror.simulation.truth import Content, Copy, Fortune, Written, content_of

EVERYTHING = 1 << 62


class PartitionOracle:
    """One partition of one link: what the source's own writers wrote, and what of it arrived, in its order."""

    def __init__(self, link: Link, where: TopicPartition, written: list[Written], trace: Trace) -> None:
        self.link = link
        self.where = where
        self.written = written
        self.arrived: list[tuple[int, Content]] = []
        self.copies: list[Copy] = []
        self.gap: Gap | None = None
        self._seen = 0
        self._trace = trace

    def see(self, stored: Stored) -> None:
        """A batch was appended to the target's partition."""
        if stored.header.is_control:
            return
        for record in decode_records(stored.data):
            content = content_of(record)
            if content.site == self.link.source.name:
                self.arrived.append((record.offset, content))

    def verify(self, position: int = EVERYTHING) -> None:
        """Every committed record before `position` is at the target, once and in order; nothing else came between."""
        index = self._seen
        while index < len(self.written) and self.written[index].offset < position:
            one = self.written[index]
            if one.fortune is Fortune.PENDING and position != EVERYTHING:
                raise self._found(f"position {position} passes offset {one.offset}, whose transaction is open")
            if one.fortune in (Fortune.COMMITTED, Fortune.COMPACTED):
                self._match(one, position)
            index += 1
            self._seen = index

    def verify_all(self) -> None:
        """Also nothing more than that came."""
        self.verify()
        if len(self.arrived) > len(self.copies):
            offset, content = self.arrived[len(self.copies)]
            raise self._found(f"{content} at target offset {offset} should not be there")

    def _match(self, one: Written, position: int) -> None:
        at = len(self.copies)
        arrived = self.arrived[at] if at < len(self.arrived) else None
        if arrived is not None and arrived[1] == one.content:
            self.copies.append(Copy(one.offset, arrived[0]))
        elif one.fortune is Fortune.COMMITTED:
            there = "nothing" if arrived is None else f"{arrived[1]} at {arrived[0]}"
            until = "the end" if position == EVERYTHING else f"position {position}"
            raise self._found(f"{until} passes {one.content} at {one.offset}, where the target has {there}")

    @property
    def is_complete(self) -> bool:
        """Whether the last one has arrived that must. Only `verify` looks at all."""
        last = next((one for one in reversed(self.written) if one.fortune is Fortune.COMMITTED), None)
        return last is None or any(content == last.content for _, content in reversed(self.arrived))

    def verify_map(self, offset_map: OffsetMap, target: SimulatedPartition) -> None:
        """Both translations, for every source offset and for every copy."""
        topic, number = self.where
        by_source = [copy.source_offset for copy in self.copies]
        for copy in self.copies:
            found = (
                offset_map.to_target(topic, number, copy.source_offset),
                offset_map.to_source(topic, number, copy.target_offset),
            )
            if found != (copy.target_offset, copy.source_offset):
                raise self._found(f"{copy} is translated to {found[0]}, and back to {found[1]}")
        end = offset_map.mirrored_end(topic, number)
        if end is None:
            raise self._found("the map knows no end")
        for one in self.written:
            index = bisect_left(by_source, one.offset)
            expected = self.copies[index].target_offset if index < len(self.copies) else EVERYTHING
            translated = offset_map.to_target(topic, number, one.offset)
            if translated is None:
                before = not self.copies or one.offset < by_source[0]
                if before:
                    continue
                raise self._found(f"source offset {one.offset} has no translation")
            if self.next_copy(translated) != expected:
                raise self._found(
                    f"source offset {one.offset} is translated to {translated}, where the next copy is "
                    f"{self.next_copy(translated)} and not {expected}"
                )
        if self.copies and end.target_next <= self.copies[-1].target_offset:
            raise self._found(f"the map ends at {end}, before {self.copies[-1]}")
        if end.target_next > target.log_end:
            raise self._found(f"the map ends at {end}, the target at {target.log_end}")

    def next_copy(self, target_offset: int) -> int:
        """The target offset of the first copy at or behind `target_offset`."""
        index = bisect_left(self.copies, target_offset, key=lambda copy: copy.target_offset)
        return self.copies[index].target_offset if index < len(self.copies) else EVERYTHING

    def _found(self, text: str) -> Found:
        return Found(f"link {self.link.name}, {self.where}: {text}")


class LinkOracle:
    """One link. `watch_state` sees every batch of its state topic."""

    def __init__(self, link: Link, trace: Trace) -> None:
        self.link = link
        self.partitions: dict[TopicPartition, PartitionOracle] = {}
        self.checkpoints = 0
        self._trace = trace

    def watch_state(self, stored: Stored) -> None:
        if stored.header.is_control:
            return
        for record in decode_records(stored.data):
            key = decode_key(record.key or b"")
            if key[0] not in ("position", "gap") or record.value is None:
                continue
            entry = decode_entry(key, record.value)
            if isinstance(entry, Checkpoint):
                self.checkpoints += 1
                self._trace(f"  {self.link.name} checkpoint", key[1:], entry.end, entry.position)
                oracle = self.partitions.get(TopicPartition(entry.topic, entry.partition))
                if oracle is not None:
                    oracle.verify(entry.position)
            elif isinstance(entry, Gap):
                self._trace(f"  {self.link.name} gap", entry)
                self._take_gap(entry)

    def _take_gap(self, gap: Gap) -> None:
        oracle = self.partitions[TopicPartition(gap.topic, gap.partition)]
        oracle.gap = gap if gap.status is GapStatus.STOPPED else None
        if gap.status is GapStatus.STOPPED:
            raise Found(f"link {self.link.name}: a gap without a cause: {gap}")

    @property
    def is_complete(self) -> bool:
        return all(oracle.is_complete for oracle in self.partitions.values())

    def missing(self) -> str:
        return ", ".join(
            f"{where}: {len(oracle.arrived)} of {sum(w.fortune is Fortune.COMMITTED for w in oracle.written)}"
            for where, oracle in self.partitions.items()
            if not oracle.is_complete
        )

    def verify_content(self) -> None:
        for oracle in self.partitions.values():
            oracle.verify_all()

    async def verify_words(self, source: Cluster, target: Cluster, target_site: SimulatedCluster) -> LinkState:
        """What the link says of itself when all is mirrored: its map, its ledger, its lag."""
        state = await load_link_state(self.link, target)
        for where, oracle in self.partitions.items():
            log = target_site.partition(*where)
            if log is None:
                raise Found(f"link {self.link.name}: {where} is not at the target")
            oracle.verify_map(state.map, log)
        lags = await link_lag(self.link, source, target, state)
        for lag in lags:
            if lag.lag_records:
                raise Found(f"link {self.link.name}: all is mirrored, and yet {lag}")
        if len(lags) < len(self.partitions):
            raise Found(f"link {self.link.name}: the lag of only {len(lags)} partitions is told")
        return state
