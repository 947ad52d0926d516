"""Worlds whose groups are moved under trouble, one per seed: what is lived through until a command ends with 0.

Applications write, read, and are set back at the site that is active; then a switchover or a failover moves some of
their groups. The machine that carries it on dies at some request, or its lines are cut; another one takes it up, or
gives it up and begins anew. What the world knows of records and groups is its own, by content: the code that is tested
is asked nothing.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker.base.documents import read_time
from broker.client.groups import commit_offsets, committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from failover.planning.intent import Intent
from failover.running.steps import Operation
from mirror.api import load_link_state, load_observation
from tests.failover.failback.stage import transaction
from tests.failover.moved_refusals import MovedWrongly, Reach
from tests.failover.moved_sites import Site, consume, values_at
from tests.failover.moved_transactions import Transaction
from tests.failover.stage import now_ms
from tests.mirror.harness import eventually, make_topic, write

HELD_S = 8.0
"""At the most: a whole move mostly takes less, if nobody waits."""
Places = Mapping[str, Mapping[TopicPartition, int]]
"""Offsets of groups."""


class ReadTo(NamedTuple):
    """A group has read so many records of a partition, from then on."""

    at_ms: int
    records: int


class MovedWorld:
    """One seed. `read`: per group and partition how many records it has read, as applications committed it at the
    active site; `synced`: those that the mirror may have carried since the last move, in order; `stood`: where
    applications, or an operation, left it at the other site. `told` is what happened.
    """

    def __init__(self, seed: int, east: Site, west: Site) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.active, self.standby = east, west
        self.topics = [f"flights-{number}" for number in range(self.rng.randint(1, 2))]
        self.partitions: list[TopicPartition] = []
        self.groups = [f"group-{number}" for number in range(self.rng.randint(1, 4))]
        self.values: dict[TopicPartition, list[bytes]] = {}
        self.read: dict[str, dict[TopicPartition, int]] = {group: {} for group in self.groups}
        self.synced: dict[tuple[str, TopicPartition], list[ReadTo]] = {}
        self.stood: dict[str, dict[TopicPartition, int]] = {group: {} for group in self.groups}
        self.moved: set[tuple[str, TopicPartition]] = set()
        """Where an operation brought groups to the site that is active now: what it did there is known to the next."""
        self.known: dict[str, set[TopicPartition]] = {}
        """Per group the partitions in which the other site has a place, of the mirror or of its own."""
        self.held: asyncio.Task[None] | None = None
        """A transaction of a group that has not ended."""
        self.holding: Transaction | None = None
        """The same, by what it commits; None behind `released`."""
        self.written = 0
        self.brought: dict[TopicPartition, int] = {}
        """How many records of each partition the mirror was last known to have brought."""
        self.told: list[str] = []

    # -- what applications do

    async def begin(self) -> None:
        for topic in self.topics:
            count = self.rng.randint(1, 2)
            await make_topic(self.active.cluster, topic, count)
            self.partitions += [TopicPartition(topic, number) for number in range(count)]
        self.values = {where: [] for where in self.partitions}
        for where in self.partitions:
            await self.write(where)
        await self.commit(self.groups[0])

    async def write(self, where: TopicPartition | None = None) -> None:
        where = where or self.rng.choice(self.partitions)
        new = [b"%s %d" % (str(where).encode(), self.written + number) for number in range(self.rng.choice((1, 5, 20)))]
        self.written += len(new)
        kind = self.rng.choice(("plain", "plain", "committed", "aborted"))
        if kind == "plain":
            stamp = 1_700_000_000_000
            await write(self.active.cluster, where, [Record(at, stamp, None, value) for at, value in enumerate(new)])
        else:
            async with transaction(self.active.bootstrap) as producer:
                for value in new:
                    await producer.send_and_wait(where.topic, value, partition=where.partition)
                await (producer.commit_transaction() if kind == "committed" else producer.abort_transaction())
        if kind != "aborted":
            self.values[where] += new
        self.told.append(f"{len(new)} records {kind} to {where}")

    async def commit(self, group: str, *, back: bool = False) -> None:
        """It reads on, or is set back, in some of the partitions; one that reads on may do so in a transaction."""
        offsets, counts = await self._places(group, back=back)
        in_transaction = not back and self.rng.random() < 0.3
        if in_transaction:
            await Transaction(group, offsets).live(self.active, asyncio.Event(), lambda: None)
        else:
            await commit_offsets(self.active.cluster, group, offsets)
        self._has_read(group, counts)
        how = " in a transaction" * in_transaction
        self.told.append(f"{group} {'set back' if back else 'read'} to {self.read[group]}{how}")

    async def read_apart(self, group: str, where: TopicPartition, *, there: int, here: int) -> None:
        """It reads so many records at the standby itself, and then so many where it is active."""
        self.groups.append(group)
        self.read[group] = {}
        records = await values_at(self.standby.cluster, where)
        await commit_offsets(self.standby.cluster, group, {where: CommittedOffset(records[there][0])})
        await commit_offsets(self.active.cluster, group, {where: CommittedOffset(await self._offset(where, here))})
        self.stood[group] = {where: there}
        self._has_read(group, {where: here})
        self.known = {group: {where}}
        self.told.append(f"{group} read {there} of {where} at the standby, and {here} where it is active")

    async def until_synced(self, group: str, where: TopicPartition) -> None:
        """The mirror has looked at where the group read last, and wrote where that is at the standby."""
        read_at_ms = self.synced[group, where][-1].at_ms

        async def synced() -> bool:
            known = (await load_link_state(self.active.link, self.standby.cluster)).entries.groups
            is_brought = group in known.by_group and where in known.by_group[group].written
            return is_brought and (known.synced_at(group) or 0) > read_at_ms

        await eventually(synced, f"the mirror to bring {group}")

    async def hold(self, group: str) -> None:
        """It reads on in a transaction that ends in a moment, amid what comes next."""
        offsets, counts = await self._places(group, back=False)
        one = Transaction(group, offsets, self.rng.uniform(0.2, HELD_S), self.rng.random() < 0.7)
        is_pending = asyncio.Event()
        self.holding = one
        self.held = asyncio.create_task(one.live(self.active, is_pending, lambda: self._has_read(group, counts)))
        waiting = asyncio.create_task(is_pending.wait())
        await asyncio.wait([self.held, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self.told.append(f"{group} holds {counts} for {one.held_s:.1f} s, and commits them: {one.commits}")

    async def released(self) -> None:
        """What was held has ended, and counts or does not."""
        if self.held is not None:
            held, self.held, self.holding = self.held, None, None
            await held

    async def _places(
        self, group: str, *, back: bool
    ) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, int]]:
        """Where it goes in some of the partitions: offsets, and how many records it has read then."""
        offsets, counts = {}, {}
        for where in self.rng.sample(self.partitions, self.rng.randint(1, len(self.partitions))):
            before, known = self.read[group].get(where, 0), len(self.values[where])
            counts[where] = self.rng.randint(0, before) if back else self.rng.randint(min(before + 1, known), known)
            offsets[where] = CommittedOffset(await self._offset(where, counts[where]))
        return offsets, counts

    def _has_read(self, group: str, counts: Mapping[TopicPartition, int]) -> None:
        for where, count in counts.items():
            self.read[group][where] = count
            self.synced.setdefault((group, where), []).append(ReadTo(now_ms(), count))

    async def _offset(self, where: TopicPartition, count: int) -> int:
        """Behind so many records: right behind the last of them, or before the next one, past markers between."""
        offsets = [offset for offset, _ in await values_at(self.active.cluster, where)]
        behind = offsets[count - 1] + 1 if count else 0
        if count < len(offsets) and self.rng.random() < 0.5:
            return offsets[count]
        return behind

    async def live(self, actions: int) -> None:
        for _ in range(actions):
            match self.rng.randrange(6):
                case 0 | 1:
                    await self.write()
                case 2:
                    await self.commit(self.rng.choice(self.groups), back=True)
                case _:
                    await self.commit(self.rng.choice(self.groups))

    async def until_carried(self) -> None:
        """The mirror has every record, and its look at the source's ends, and wrote so; each group has a place there,
        which may be one that it had of its own.
        """

        async def carried() -> bool:
            for where in self.partitions:
                if [value for _, value in await values_at(self.standby.cluster, where)] != self.values[where]:
                    return False
            link, target = self.active.link, self.standby.cluster
            ends = await log_end_offsets(self.active.cluster, self.partitions)
            seen = (await load_observation(link, target)).ends
            if not all(where in seen and seen[where].end >= end for where, end in ends.items()):
                return False
            known = (await load_link_state(link, target)).map
            if not all((at := known.mirrored_end(*where)) and at.source_next >= end for where, end in ends.items()):
                return False
            groups = await committed_offsets_of_groups(target, self.groups)
            return all(
                isinstance(found := groups[group], dict) and found.keys() >= read.keys()
                for group, read in self.read.items()
            )

        await eventually(carried, "the mirror to carry everything")
        self.known = {group: set(read) for group, read in self.read.items()}
        self.brought = {where: len(values) for where, values in self.values.items()}

    # -- what must be so then

    def reach(self) -> Reach:
        return Reach(self.brought, {where: len(values) for where, values in self.values.items()})

    async def check(
        self, intent: Intent, moves: list[Mapping[str, Any]], before: Places, *, is_dead: bool, mirror_ran: bool
    ) -> None:
        """The command that asked for this ended with 0, with these moves. `before`: where groups stood then at the
        other site; while the mirror ran, that moved them on.
        """
        logs = {where: await values_at(self.standby.cluster, where) for where in self.partitions}
        there = {where: [value for _, value in records] for where, records in logs.items()}
        for where, values in there.items():
            if intent.operation is Operation.SWITCHOVER and values != self.values[where]:
                raise MovedWrongly(f"{where}: {len(values)} records, and the source has {len(self.values[where])}")
            if values != self.values[where][: len(values)]:
                raise MovedWrongly(f"{where}: another history")
        now = await places_at(self.standby, self.groups)
        untouched = set() if mirror_ran else {group for group in self.groups if group not in intent.groups}
        for group in sorted(untouched):
            if now.get(group) != before.get(group):
                raise MovedWrongly(
                    f"{group} was not asked for, stood at {before.get(group)}, and is at {now.get(group)}"
                )
        told = {(move["group"], TopicPartition(move["topic"], move["partition"])): move for move in moves}
        kinds = {at: move["kind"] for at, move in told.items()}
        for group in intent.groups:
            consumed = await consume(self.standby.bootstrap, group, logs)
            for where, read in self.read[group].items():
                if is_dead and where not in self.known[group]:
                    continue  # it read there when no mirror looked
                if (group, where) not in kinds:
                    raise MovedWrongly(f"{group} {where} is in no move, and ended with 0")
                kind = kinds[group, where]
                if kind == "unknown":
                    if group not in intent.left_groups:
                        raise MovedWrongly(f"{group} {where} is unknown, nobody consented, and it ended with 0")
                    stands_at = now.get(group, {}).get(where)
                    if not mirror_ran and stands_at != before.get(group, {}).get(where):
                        raise MovedWrongly(f"{group} {where} was to be left as it is, and is at {stands_at}: {before}")
                    if stands_at is None:
                        continue
                stood = self.stood[group].get(where, 0)
                allowed = {read}
                if kind == "kept" and is_dead:
                    allowed = self._kept_at(told[group, where])
                elif is_dead or kind == "unknown":
                    allowed = {at.records for at in self.synced[group, where]}
                if kind == "unknown":
                    allowed |= {stood}
                if kind == "ahead" and stood > read and (group, where) not in self.moved:
                    allowed = {stood}
                tails = [there[where][min(at, len(there[where])) :] for at in allowed]
                if consumed[where] not in tails:
                    gets, wanted = _told(consumed[where]), [_told(tail) for tail in tails]
                    raise MovedWrongly(f"{group} {where} {kind}: gets {gets}, and not {wanted}")
                if kind != "unknown":  # what was left behind has its place where it was
                    self.read[group][where] = len(there[where]) - len(consumed[where])
        self.values = there
        self.moved = {at for at, kind in kinds.items() if kind not in ("unknown", "kept")}

    def _kept_at(self, move: Mapping[str, Any]) -> set[int]:
        """Where its document allows that the group goes on, by how many records it has read: where the mirror's last
        sync, or a later one, may have brought it; but where it stood itself if nothing was brought there.
        """
        group, where = move["group"], TopicPartition(move["topic"], move["partition"])
        stood = {self.stood[group][where]} if where in self.stood[group] else set()
        if move["target_offset"] != move["brought_offset"]:
            return stood
        places, synced_at_ms = self.synced[group, where], read_time(move["synced_at"])
        if synced_at_ms is None:
            return {at.records for at in places}
        since = bisect_left(places, synced_at_ms, key=lambda at: at.at_ms)
        if not since:  # that was before the last move
            return {*stood, *(at.records for at in places)}
        return brought_to([at.records for at in places], max(stood, default=0), since - 1)

    async def change_sides(self) -> None:
        """Applications go on where the groups stand at the other site: one that nobody asked to move, or that was left
        as it is, was brought there by the mirror, if at all, and maybe not as far as it had read here.
        """
        self.active, self.standby = self.standby, self.active
        self.stood = {group: dict(read) for group, read in self.read.items()}
        offsets = {
            where: [offset for offset, _ in await values_at(self.active.cluster, where)] for where in self.values
        }
        stand = await places_at(self.active, self.groups)
        self.read = {
            group: {where: bisect_left(offsets[where], at) for where, at in stand.get(group, {}).items()}
            for group in self.groups
        }
        began_ms = now_ms()
        self.synced = {
            (group, where): [ReadTo(began_ms, at)] for group, read in self.read.items() for where, at in read.items()
        }
        self.brought = {}


def brought_to(read: Sequence[int], stood: int, last: int) -> set[int]:
    """Where a mirror may have brought a group that stood at its target and reads so, one place after the other, at its
    source: of those it last saw the one at `last`, or a later one, and of the others any.

    What the group read at the target alone counts as read, until it is set back from a place that the mirror saw.
    """
    is_own = stood > read[0]
    """It came further there than anybody brought it to where it reads now."""
    seen: set[tuple[int | None, int]] = {(None if is_own else read[0], stood)}
    found: set[int] = set()
    for number, to in enumerate(read):
        goes_on = {max(at, to) for saw, at in seen if saw is None or saw <= to}
        goes_back = {to for saw, _ in seen if saw is not None and saw >= to}  # by offset, past markers alone as well
        seen |= {(to, at) for at in goes_on | goes_back}
        found |= goes_on | goes_back if number >= last else set()
    return found


async def places_at(site: Site, groups: Sequence[str]) -> Places:
    """The offsets that these groups have there."""
    found = await committed_offsets_of_groups(site.cluster, groups)
    return {
        group: {at: committed.offset for at, committed in offsets.items()}
        for group, offsets in found.items()
        if isinstance(offsets, dict)
    }


def _told(values: list[bytes]) -> str:
    return f"{len(values)} records, first {values[:1]}"
