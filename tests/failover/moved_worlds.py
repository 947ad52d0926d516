"""Worlds whose groups are moved under trouble, one per seed: what is lived through until a command ends with 0.

Applications write, read, and are set back at the site that is active; then a switchover or a failover moves some of
their groups. The machine that carries it on dies at some request, or its lines are cut; another one takes it up, or
gives it up and begins anew. What the world knows of records and groups is its own, by content: the code that is tested
is asked nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ConsumedPartition

from broker.base.errors import FarshoreError, first_of
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets_of_groups
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from failover.hooks import Hooks
from failover.intent import Intent
from failover.journal import OperationLog
from failover.journal_log import load_operations
from failover.standing import OPEN_STATES, OperationState, results_of, standing_of
from failover.steps import Operation
from failover.taking_up import abort, resume
from mirror.api import load_link_state, load_observation
from mirror.link import Link
from tests.broker.running import running_broker
from tests.chaos_runs.looking import read_committed
from tests.failover.failback.stage import transaction
from tests.failover.machines import VICTIM, Death, is_death, machine, mortal, operate
from tests.failover.stage import now_ms
from tests.mirror.harness import accept_all, eventually, link_between, make_topic, running, write

ATTEMPTS = 5
"""Of which the last one has no trouble."""
REQUESTS = 250
"""That one attempt sends, about."""
CUT_SHARE = 0.02
PATIENCE_S = 30.0
POLL_S = 0.02


class MovedWrongly(AssertionError):
    """A command ended with 0, and the world is not as it said."""


@dataclass
class Site:
    """One of the two, and the link that carries what is written there to the other one."""

    cluster: Cluster
    bootstrap: str
    link: Link


class MovedWorld:
    """One seed. `read`: per group and partition how many records it has read, as applications committed it at the
    active site; `synced`: those that the mirror may have carried since the last move; `stood`: where applications, or
    an operation, left it at the other site. `told` is what happened.
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
        self.synced: dict[tuple[str, TopicPartition], set[int]] = {}
        self.stood: dict[str, dict[TopicPartition, int]] = {group: {} for group in self.groups}
        self.known: dict[str, set[TopicPartition]] = {}
        """Per group the partitions of which the mirror has carried a place."""
        self.written = 0
        self.operations = 0
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
        """It reads on, or is set back, in some of the partitions."""
        offsets = {}
        for where in self.rng.sample(self.partitions, self.rng.randint(1, len(self.partitions))):
            known = self.values[where]
            before = self.read[group].get(where, 0)
            count = self.rng.randint(0, before) if back else self.rng.randint(before, len(known))
            offsets[where] = CommittedOffset(await self._offset(where, count))
            self._has_read(group, where, count)
        await commit_offsets(self.active.cluster, group, offsets)
        self.told.append(f"{group} {'set back' if back else 'read'} to {self.read[group]}")

    def _has_read(self, group: str, where: TopicPartition, count: int) -> None:
        self.read[group][where] = count
        self.synced.setdefault((group, where), set()).add(count)

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
        """The mirror has every record, its look at the source's ends, and for each group a place, and wrote so."""

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

    # -- what an operator does

    async def move(self, verb: Operation, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool = False) -> None:
        """Until the command, or who took it up, ended with 0: then applications go on at the other site."""
        readers = sorted(group for group, read in (self.known if is_dead else self.read).items() if read)
        chosen = tuple(sorted(self.rng.sample(readers, self.rng.randint(1, len(readers)))))
        link = self.active.link
        intent = Intent(
            verb,
            (link.name,),
            link.source.name,
            link.target.name,
            groups=chosen,
            allow_data_loss=verb is Operation.FAILOVER,
            even_if_source_answers=verb is Operation.FAILOVER and not is_dead,
            drain_timeout_s=PATIENCE_S,
        )
        for attempt in range(ATTEMPTS):
            death = self._trouble(is_last=attempt == ATTEMPTS - 1)
            with mortal(monkeypatch, death):
                try:
                    moves = await self._attempt(intent, is_dead=is_dead, may_give_up=attempt < ATTEMPTS - 2)
                except BaseException as error:  # a death is no Exception
                    if not is_death(error) and not isinstance(first_of(error), FarshoreError):
                        raise
                    self.told.append(f"{verb} failed: {first_of(error)!r}")
                    continue
            if moves is not None:
                self.told.append(f"{verb} of {chosen} ended with 0")
                await self._check(verb, chosen, moves, is_dead=is_dead)
                return
        raise MovedWrongly(f"{verb} did not end with 0, and nothing was in its way")

    def _trouble(self, *, is_last: bool) -> Death:
        kind = "none" if is_last else self.rng.choice(("death", "death", "death", "cuts", "none"))
        death = Death()
        if kind == "death":
            death = Death(self.rng.randint(1, REQUESTS), answered=self.rng.random() < 0.5)
        elif kind == "cuts":
            death = Death(cuts=lambda: self.rng.random() < CUT_SHARE)
        self.told.append(f"trouble: {kind} {death.at or ''}")
        return death

    async def _attempt(self, intent: Intent, *, is_dead: bool, may_give_up: bool) -> list[Mapping[str, Any]] | None:
        """One command -> the moves that it ended with, where that was with 0."""
        mine = f"operation-{self.operations}"
        operations = await load_operations(self.standby.cluster)
        before = operations.get(mine)
        if before is not None:
            standing = standing_of(before, now_ms())
            if standing.state is OperationState.VERIFIED:  # it died before it could tell
                return [move for result in results_of(before) for move in result["moves"]]
            if standing.state in OPEN_STATES:
                return await self._take_up(before, intent, is_dead=is_dead, may_give_up=may_give_up)
        self.operations += 1
        mine = f"operation-{self.operations}"
        async with self._machine(intent, is_dead=is_dead) as sites:
            (result,) = await operate(intent, sites, mine)
        return self._ended(result)

    async def _take_up(
        self, log: OperationLog, intent: Intent, *, is_dead: bool, may_give_up: bool
    ) -> list[Mapping[str, Any]] | None:
        async with self._machine(intent, is_dead=is_dead) as sites:
            if may_give_up and self.rng.random() < 0.2:
                found = await abort(log, sites, Hooks(), "an heir")
                self.told.append(f"aborted: {[finding.kind.value for finding in found]}")
                return None
            (result,) = await resume(log, sites, Hooks(), "an heir")
        self.told.append("taken up")
        return self._ended(result)

    def _ended(self, result: Any) -> list[Mapping[str, Any]] | None:
        if not result.verified or result.has_findings:
            self.told.append(f"not verified: {result.differences} {result.stranded}")
            return None
        return [
            {"group": m.group, "kind": m.kind.value, "topic": m.topic, "partition": m.partition} for m in result.moves
        ]

    @asynccontextmanager
    async def _machine(self, intent: Intent, *, is_dead: bool) -> AsyncIterator[list[Any]]:
        async with machine(VICTIM, self.active.link) as sites:
            chosen = [replace(one, groups=intent.groups) for one in sites]
            yield [replace(one, source=None) for one in chosen] if is_dead else chosen

    # -- what must be so then

    async def _check(
        self, verb: Operation, chosen: tuple[str, ...], moves: list[Mapping[str, Any]], *, is_dead: bool
    ) -> None:
        logs = {where: await values_at(self.standby.cluster, where) for where in self.partitions}
        there = {where: [value for _, value in records] for where, records in logs.items()}
        for where, values in there.items():
            if verb is Operation.SWITCHOVER and values != self.values[where]:
                raise MovedWrongly(f"{where}: {len(values)} records, and the source has {len(self.values[where])}")
            if values != self.values[where][: len(values)]:
                raise MovedWrongly(f"{where}: another history")
        kinds = {(move["group"], TopicPartition(move["topic"], move["partition"])): move["kind"] for move in moves}
        for group in chosen:
            consumed = await consume(self.standby.bootstrap, group, logs)
            for where, read in self.read[group].items():
                if is_dead and where not in self.known[group]:
                    continue  # it read there when no mirror looked
                if (group, where) not in kinds:
                    raise MovedWrongly(f"{group} {where} is in no move, and ended with 0")
                allowed = self.synced[group, where] if is_dead else {read}
                stood = self.stood[group].get(where, 0)
                if kinds[group, where] == "ahead" and stood > read:
                    allowed = {stood}
                tails = [there[where][min(at, len(there[where])) :] for at in allowed]
                if consumed[where] not in tails:
                    gets, wanted = _told(consumed[where]), [_told(tail) for tail in tails]
                    raise MovedWrongly(f"{group} {where} {kinds[group, where]}: gets {gets}, and not {wanted}")
                self.read[group][where] = len(there[where]) - len(consumed[where])
        self.values = there

    def change_sides(self) -> None:
        """Applications go on where they were moved to: what stayed behind counts for nothing there."""
        self.stood = {group: dict(read) for group, read in self.read.items()}
        self.synced = {(group, where): {at} for group, read in self.read.items() for where, at in read.items()}
        self.active, self.standby = self.standby, self.active

    async def resume_link_to_standby(self) -> None:
        """The link that was moved away from carries again, when it is to go the same way once more."""
        link = self.active.link
        await accept_all(link, self.standby.cluster, f"resume-{self.operations}")


def _told(values: list[bytes]) -> str:
    return f"{len(values)} records, first {values[:1]}"


async def values_at(cluster: Cluster, where: TopicPartition) -> list[tuple[int, bytes]]:
    """Of the committed records, in order, with their offsets; none where there is no such partition."""
    if where.topic not in (await cluster.metadata([where.topic])).topics:
        return []
    return [(record.offset, record.value or b"") for record in await read_committed(cluster, where)]


async def consume(
    bootstrap: str, group: str, wheres: Mapping[TopicPartition, list[tuple[int, bytes]]]
) -> dict[TopicPartition, list[bytes]]:
    """What an unmodified consumer of the group gets, from where it goes on to the end."""
    consumer = AIOKafkaConsumer(
        *sorted({where.topic for where in wheres}),
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="latest",
    )
    found: dict[TopicPartition, list[bytes]] = {where: [] for where in wheres}
    ends = {where: records[-1][0] + 1 if records else 0 for where, records in wheres.items()}
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while {TopicPartition(*at) for at in consumer.assignment()} != set(wheres):
                await asyncio.sleep(POLL_S)
            while any([await consumer.position(ConsumedPartition(*where)) < end for where, end in ends.items()]):
                for at, messages in (await consumer.getmany(timeout_ms=50)).items():
                    found[TopicPartition(*at)] += [message.value for message in messages]
    finally:
        await consumer.stop()
    return found


async def play(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> MovedWorld:
    """A whole life of one world. Raises AssertionError with all that happened in it."""
    async with AsyncExitStack() as stack:
        world = MovedWorld(seed, *await _sites(stack, folder))
        try:
            await _live(world, monkeypatch)
        except BaseException as error:  # whatever it is, it is told what the world had lived through
            first_of(error).add_note("\n".join([f"seed {seed}:", *world.told]))
            raise
    return world


async def _sites(stack: AsyncExitStack, folder: Path) -> list[Site]:
    """Both, with a link each way."""
    bootstraps = [await stack.enter_async_context(running_broker(folder / name)) for name in ("east", "west")]
    there = replace(
        link_between(bootstraps[0], bootstraps[1], ["flights-.*"], name="east-west", groups=(".*",)),
        shared_targets=True,
    )
    back = replace(there, name="west-east", source=there.target, target=there.source)
    links = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
    clusters = [await stack.enter_async_context(Cluster(link.source, client_id="farshore-test")) for link in links]
    return [Site(*of_site) for of_site in zip(clusters, bootstraps, links, strict=True)]


async def _live(world: MovedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = world.rng
    legs = rng.choices((1, 2, 3), (6, 3, 1))[0]
    await world.begin()
    async with AsyncExitStack() as workers:
        links = [world.active.link, world.standby.link] if legs > 1 else [world.active.link]
        await workers.enter_async_context(running(*links))
        await world.until_carried()
        for leg in range(legs):
            if leg > 1:
                await world.resume_link_to_standby()
            await world.live(rng.randint(2, 8))
            kind = rng.choice(("switchover", "switchover", "failover", "dead")) if leg == legs - 1 else "switchover"
            if kind == "switchover":
                if rng.random() < 0.5:
                    await world.until_carried()
                await world.move(Operation.SWITCHOVER, monkeypatch)
            else:
                await world.until_carried()
                if rng.random() < 0.5 or kind == "dead":
                    await workers.aclose()
                await world.live(rng.randint(0, 4))
                await world.move(Operation.FAILOVER, monkeypatch, is_dead=kind == "dead")
            world.change_sides()
