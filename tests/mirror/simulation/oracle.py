"""What must hold: of each checkpoint when it is written, and of everything when the faults are over."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from broker.client.cluster import Cluster
from broker.wire.batch import BatchHeader
from broker.wire.records import decode_records
from broker.wire.vocabulary import TopicPartition
from mirror.lag import link_lag
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, decode_entry, decode_key
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.state import LinkState, load_link_state
from mirror.origins import direct_sites
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.logs import SimulatedPartition, Stored
from tests.mirror.simulation.trace import Found, Trace
from tests.mirror.simulation.truth import Content, Copy, Fortune, Written, content_of

EVERYTHING = 1 << 62
REPEATING_KINDS = (GapKind.TARGET_TRUNCATED, GapKind.TARGET_NOT_EMPTY)
"""Behind an accepted gap of these records may come again."""


class PartitionOracle:
    """One partition of one link: what the source's own writers wrote, and what of it arrived, in its order."""

    def __init__(self, link: Link, where: TopicPartition, written: list[Written], trace: Trace) -> None:
        self.link = link
        self.where = where
        self.written = written
        self.arrived: list[tuple[int, Content]] = []
        self.copies: list[Copy] = []
        self.gaps: dict[tuple[GapKind, int], Gap] = {}
        """By kind and first source offset, each as it was last told."""
        self.first_position = EVERYTHING
        """Where the mirror began."""
        self.proved_to = 0
        """The target's end by the last checkpoint."""
        self.asked: set[bytes] = set()
        """What an operator asked for, and no worker has heard yet."""
        self.struck: set[GapKind] = set()
        """What happened to one of the logs, by the gap that it may lead to."""
        self.due: list[set[GapKind]] = []
        """Of each disaster that took something, one of its kinds must be told."""
        self.settled: Checkpoint | None = None
        """The newest checkpoint, where it says how much of its writer stands behind it, and that no more will."""
        self._lost: set[Content] = set()
        self._stored: list[BatchHeader] = []
        self._seen = 0
        self._trace = trace

    def see(self, stored: Stored) -> None:
        """A batch was appended to the target's partition."""
        if stored.header.is_control:
            return
        self._stored.append(stored.header)
        self._verify_settled()
        for record in decode_records(stored.data):
            content = content_of(record)
            if content.site == self.link.source.name and content not in self._lost:
                self.arrived.append((record.offset, content))

    def take_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The state has another one."""
        self.first_position = min(self.first_position, checkpoint.position)
        self.proved_to = checkpoint.end.target_next
        self.settled = checkpoint if checkpoint.records_behind >= 0 else None
        self._verify_settled()
        self.verify(checkpoint.position)

    def _verify_settled(self) -> None:
        """As long as the state says so, what it says of its writer's records is so: a cut target knows of no fence."""
        known = self.settled
        if known is None or self.struck - {GapKind.TARGET_NOT_EMPTY}:
            return
        theirs = (each for each in self._stored if (each.producer_id, each.producer_epoch) == known.writer)
        count = sum(each.record_count for each in theirs if each.base_offset >= known.end.target_next)
        if count != known.records_behind:
            raise self._found(f"behind {known} there are {count} records of its writer")

    def verify(self, position: int = EVERYTHING) -> None:
        """Every committed record before `position` is at the target, once and in order; nothing else came between.

        After a disaster a link may not know of it yet: then only the end counts.
        """
        if self.struck and position != EVERYTHING:
            return
        index = self._seen
        while index < len(self.written) and self.written[index].offset < position:
            one = self.written[index]
            if one.fortune is Fortune.PENDING and position != EVERYTHING:
                raise self._found(f"position {position} passes offset {one.offset}, whose transaction is open")
            if one.fortune in (Fortune.COMMITTED, Fortune.COMPACTED, Fortune.EXPIRED):
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

    def strike(self, kinds: set[GapKind], lost: Iterable[Content] = (), arrived_to: int = EVERYTHING) -> None:
        """A disaster: the source has lost these, or the target what lay at `arrived_to` and behind it."""
        self.struck |= kinds
        proved = (at for at, _ in self.arrived if at < self.proved_to)  # what is behind is sent again without a word
        if any(content in lost for _, content in self.arrived) or any(at >= arrived_to for at in proved):
            self.due.append(kinds)
        self._lost.update(lost)
        self.arrived = [one for one in self.arrived if one[0] < arrived_to and one[1] not in self._lost]
        self._seen, self.copies = 0, []

    def take_gap(self, gap: Gap) -> None:
        """The ledger has an entry."""
        if gap.status is GapStatus.STOPPED and gap.kind not in self.struck:
            raise self._found(f"a gap without a cause: {gap}")
        known = self.gaps.get((gap.kind, gap.source_from))
        self.gaps[gap.kind, gap.source_from] = gap
        if gap.kind is GapKind.MIRRORED_ANEW:
            if known is not None and known.status is GapStatus.PASSED and known.at_ms == gap.at_ms:
                raise self._found(f"mirrored anew already: {gap}")
            if gap.status is GapStatus.PASSED:
                self._begin_anew(gap.target_offset)

    def _begin_anew(self, target_offset: int) -> None:
        """All that the source has is to come once more, behind the old copy, which counts no more."""
        self.arrived = [one for one in self.arrived if one[0] >= target_offset]
        self._seen, self.copies = 0, []

    @property
    def old_copy_to(self) -> int | None:
        """Where the copy ends that is not needed any more; None where that is not known."""
        repairs = [gap for gap in self.gaps.values() if gap.kind is GapKind.MIRRORED_ANEW]
        if not repairs or not self.is_complete:
            return None
        return max(gap.target_offset for gap in repairs)

    @property
    def untold(self) -> list[set[GapKind]]:
        told = {kind for kind, _ in self.gaps}
        return [kinds for kinds in self.due if not kinds & told]

    @property
    def stopped_at(self) -> list[Gap]:
        return [gap for gap in self.gaps.values() if gap.status is GapStatus.STOPPED]

    def verify_struck(self) -> None:
        """After a disaster, all accepted: what the source has is at the target, once and in order, and nothing else.

        Missing may only be what the ledger names, and there again what an accepted gap does: a target that lost records
        may have got later ones before anybody missed them, and from the first lost one on they are mirrored again.
        """
        runs = self._arrived_runs()
        counts = Counter(itertools.chain(*runs))
        arrived: set[int] = set()
        for run in runs:
            arrived = {place for place in arrived if place < run[0]}.union(run)
        for place, one in enumerate(self.written):
            if one.fortune is Fortune.COMMITTED and place not in arrived:
                raise self._found(f"{one.content} at {one.offset} is not at the target, or in another order")
            if counts[place] > 1 and not self._is_told_again(one):
                raise self._found(f"{one.content} at {one.offset} is there twice, and the ledger does not say so")
            expired = one.fortune is Fortune.EXPIRED and place not in arrived and one.offset >= self.first_position
            if expired and not any(g.source_from <= one.offset < g.source_to for g in self.gaps.values()):
                raise self._found(f"{one.content} at {one.offset} is not at the target, and the ledger does not say so")

    def _arrived_runs(self) -> list[list[int]]:
        """What arrived, by its place in what was written, in order; a run more where it goes back.

        Once for each accepted gap. And once more, since a target that is made anew knows of no fence: a writer that was
        overtaken, and does not know it yet, may be the first there.
        """
        places = {one.content: place for place, one in enumerate(self.written)}
        accepted = sum(gap.status is GapStatus.PASSED for gap in self.gaps.values())
        runs: list[list[int]] = []
        for offset, content in self.arrived:
            place = places.get(content, -1)
            if place < 0 or self.written[place].fortune in (Fortune.ABORTED, Fortune.PENDING):
                raise self._found(f"{content} at target offset {offset} should not be there")
            if not runs or place <= runs[-1][-1]:
                if len(runs) > accepted + 1:
                    raise self._found(f"{content} at target offset {offset} is there again, and once more")
                runs.append([])
            runs[-1].append(place)
        return runs

    def _is_told_again(self, one: Written) -> bool:
        """Whether somebody accepted that what the source has from there on is mirrored, some of it perhaps again."""
        accepted = [gap for gap in self.gaps.values() if gap.status is GapStatus.PASSED]
        return any(gap.kind in REPEATING_KINDS and gap.source_to <= one.offset for gap in accepted)

    def verify_struck_map(self, offset_map: OffsetMap) -> None:
        """Every record that the source has is where the map says."""
        at_target = dict(self.arrived)
        for one in self.written:
            if one.fortune is Fortune.COMMITTED:
                translated = offset_map.to_target(*self.where, one.offset)
                if translated is None or at_target.get(translated) != one.content:
                    held = at_target.get(translated) if translated is not None else None
                    raise self._found(f"{one.content} at {one.offset} is translated to {translated}, where {held} is")

    @property
    def is_complete(self) -> bool:
        """Whether the last one has arrived that must. Only `verify` looks at all."""
        repairs = (gap for gap in self.gaps.values() if gap.kind is GapKind.MIRRORED_ANEW)
        if self.asked or any(gap.status is GapStatus.ACCEPTED for gap in repairs):
            return False
        if self.struck:
            there = {content for _, content in self.arrived}
            return (
                not self.untold
                and not self.stopped_at
                and all(one.content in there for one in self.written if one.fortune is Fortune.COMMITTED)
            )
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
            if key[0] == "accepted" and key[4] == GapKind.MIRRORED_ANEW:
                asked = self.partitions[TopicPartition(key[1], key[2])].asked
                (asked.discard if record.value is None else asked.add)(record.key or b"")
            if key[0] not in ("position", "gap") or record.value is None:
                continue
            entry = decode_entry(key, record.value)
            if isinstance(entry, Checkpoint):
                self.checkpoints += 1
                self._trace(f"  {self.link.name} checkpoint", key[1:], entry.end, entry.position)
                oracle = self.partitions.get(TopicPartition(entry.topic, entry.partition))
                if oracle is not None:
                    oracle.take_checkpoint(entry)
            elif isinstance(entry, Gap):
                self._trace(f"  {self.link.name} gap", entry)
                self.partitions[TopicPartition(entry.topic, entry.partition)].take_gap(entry)

    @property
    def is_at_rest(self) -> bool:
        """Nothing more comes unless somebody accepts a gap."""
        return all(oracle.stopped_at or oracle.is_complete for oracle in self.partitions.values())

    @property
    def is_complete(self) -> bool:
        return all(oracle.is_complete for oracle in self.partitions.values())

    def missing(self) -> str:
        return ", ".join(
            f"{where}: {len(oracle.arrived)} of {sum(w.fortune is Fortune.COMMITTED for w in oracle.written)}"
            + (f", nobody told of {oracle.untold}" if oracle.untold else "")
            + (f", stopped at {oracle.stopped_at}" if oracle.stopped_at else "")
            for where, oracle in self.partitions.items()
            if not oracle.is_complete
        )

    def verify_content(self) -> None:
        for oracle in self.partitions.values():
            if oracle.struck:
                oracle.verify_struck()
            else:
                oracle.verify_all()

    def verify_carried(self, offset_map: OffsetMap, sites: Mapping[str, SimulatedCluster]) -> None:
        """What the link carried on for others is where the map says, too."""
        link = self.link
        for where, oracle in self.partitions.items():
            direct = direct_sites(link, where.topic) | {link.target.name}
            source, target = (sites[site.name].partition(*where) for site in (link.source, link.target))
            if oracle.struck or source is None or target is None:
                continue
            there = dict(target.contents())
            for offset, content in source.contents():
                if content.site in direct | {link.source.name}:
                    continue
                at = offset_map.to_target(*where, offset)
                if at is None or there.get(at) != content:
                    raise Found(f"link {link.name}, {where}: {content} at {offset} is translated to {at}")

    async def verify_words(self, source: Cluster, target: Cluster, target_site: SimulatedCluster) -> LinkState:
        """What the link says of itself when all is mirrored: its map, its ledger, its lag."""
        state = await load_link_state(self.link, target)
        for where, oracle in self.partitions.items():
            log = target_site.partition(*where)
            if log is None:
                raise Found(f"link {self.link.name}: {where} is not at the target")
            if oracle.struck:
                oracle.verify_struck_map(state.map)
            else:
                oracle.verify_map(state.map, log)
        lags = await link_lag(self.link, source, target, state)
        for lag in lags:
            if lag.lag_records:
                raise Found(f"link {self.link.name}: all is mirrored, and yet {lag}")
        if len(lags) < len(self.partitions):
            raise Found(f"link {self.link.name}: the lag of only {len(lags)} partitions is told")
        return state
