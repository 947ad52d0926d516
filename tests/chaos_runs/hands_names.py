"""The link forgets what it mirrored: its state topic is deleted, it gets another name, or an old one again. In turn.

Each topic then goes on in one of the ways that farshore offers, and what the target must hold in the end is known
exactly: what it held when it stopped, and behind that the source's records from one offset on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import delete_records, delete_topics
from broker.wire.records import Record
from mirror.offsets.entries import GapKind, GapStatus
from mirror.offsets.state import LinkState, load_link_state, read_entries
from tests.chaos_runs.actions import create, target_recreate
from tests.chaos_runs.hands_runs import SETTLE_TIMEOUT_S, HandsRun, until
from tests.chaos_runs.looking import content_of, mistranslated
from tests.chaos_runs.moments import Outcome
from tests.chaos_runs.oracle import Content
from tests.chaos_runs.stage import CLOCK_STEP_MS, Topic

NAMES_ACTIONS = ("state-delete", "link-rename", "link-rename-back")
WAYS = ("adopt", "accept", "start-at-offset", "start-at-time", "start-over")
TURNS = 5
TOPICS = 3
WRITE_PAUSE_S = 0.1
STOP_TIMEOUT_S = 240.0
NOT_EMPTY = f"{GapKind.TARGET_NOT_EMPTY.value}:"


@dataclass(frozen=True)
class Expected:
    """What the target must hold when the mirror came to rest, and how it came to that."""

    way: str
    base: tuple[Content, ...]
    goes_on_at: int
    """The first source offset that is mirrored behind `base`."""
    mapped_from: int
    """From this source offset on the map must know all that is at both sites."""
    was_refused: bool = False


class NamesRun(HandsRun):
    """Its one action is of `NAMES_ACTIONS`, and makes a moment, as does the way on of each topic."""

    def make_topics(self) -> list[Topic]:
        seed = f"{self.pair}-{self.seed}"
        return [Topic(f"{self.prefix}-{at}", self.actions[0], seed) for at in range(TOPICS)]

    async def act(self) -> None:
        (action,) = self.actions
        for turn in range(TURNS):
            await self._bring_something_new()
            before = {name: len(said) for name, said in self.result.problems.items()}
            async with self.stage.writing(WRITE_PAUSE_S):
                await self.until_all_mirrored()
                await asyncio.sleep(self.chance.uniform(0.5, 3.0))
                if self.chance.random() < 0.3:
                    await self._cut_a_start()
                await self._forget(action, turn)
                stopped = await self._until_all_stopped()
                is_busy = self.chance.random() < 0.5
                if is_busy:
                    expected = [await self._go_on(topic) for topic in self.stage.topics if topic.name in stopped]
            if not is_busy:
                expected = [await self._go_on(topic) for topic in self.stage.topics if topic.name in stopped]
            await self._come_to_rest()
            await self._compare(stopped, expected)
            is_well = {name: len(said) for name, said in self.result.problems.items()} == before
            self.note_moment(action, Outcome.WENT_ON if is_well and stopped else Outcome.FAULT)
            if not is_well:
                return

    async def _bring_something_new(self) -> None:
        """So that a name that the link had before knows less than the target has."""
        async with Cluster(self.stage.site(self.source)) as cluster:
            for topic in self.stage.topics:
                topic.clock_ms += CLOCK_STEP_MS
                await self.stage.write(cluster, topic, topic.clock_ms)
        await self._come_to_rest()

    async def _cut_a_start(self) -> None:
        """Retention, in one go: what is left at the target (or the source) begins later."""
        topic, server = self.chance.choice(self.stage.topics), self.chance.choice((self.source, self.target))
        async with Cluster(self.stage.site(server)) as cluster:
            start = (await log_start_offsets(cluster, [topic.where]))[topic.where]
            end = (await log_end_offsets(cluster, [topic.where]))[topic.where]
            if server is self.source:  # not what was not mirrored yet: that is another moment's action
                end = (start + end) // 2
            await delete_records(cluster, {topic.where: self.chance.randint(start, max(start, end - 1))})

    async def _forget(self, action: str, turn: int) -> None:
        operator = self.operator
        if action != "state-delete" or self.chance.random() < 0.4:
            self.chance.choice((operator.kill_mirrors, operator.stop_mirrors))()
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        if action != "state-delete":
            number = turn % 2 if action == "link-rename-back" else turn
            operator.link = replace(operator.link, name=f"hands-{self.seed}-{number}")
            operator.write_config()
        else:
            async with Cluster(self.stage.site(self.target)) as cluster:
                await delete_topics(cluster, [operator.link.state_topic])
        if not operator.children:
            operator.start_mirror()

    async def _until_all_stopped(self) -> set[str]:
        """The topics that stand still: all that have records at the target."""

        async def all_stopped() -> bool:
            names = {stop["topic"] for stop in await self.stops() if stop["detail"].startswith(NOT_EMPTY)}
            left = [topic for topic in self.stage.topics if topic.name not in names]
            return not [topic for topic in left if await self.stage.read(self.target, topic)]

        await until(all_stopped, "every topic with records to stop", STOP_TIMEOUT_S)
        return {stop["topic"] for stop in await self.stops()}

    async def _go_on(self, topic: Topic) -> Expected:
        (stop,) = [stop for stop in await self.stops() if stop["topic"] == topic.name]
        self.stage.notes.append(stop["detail"])
        self.result.accepted.append(f"{stop['detail'].split(':')[0]} {topic.name}")
        source = await self.stage.read(self.source, topic)
        target = await self.stage.read(self.target, topic)
        base = tuple(content_of(record) for record in target)
        is_old = (
            self.actions[0] == "link-rename-back"
        )  # then a target that was emptied goes on, and does not start over
        way = topic.chance.choice(WAYS[:-1] if is_old else WAYS)
        plain = stop["next_step"].removesuffix(" --adopt")
        async with Cluster(self.operator.link.target) as west:
            gap = (await read_entries(self.operator.link, west)).open_gaps()[topic.where]
        async with Cluster(self.stage.site(self.source)) as cluster:
            begin = (await log_start_offsets(cluster, [topic.where]))[topic.where]
            end = (await log_end_offsets(cluster, [topic.where]))[topic.where]
        start = max(begin, gap.source_to)
        match way:
            case "adopt":
                return await self._adopt(topic, stop["next_step"], source, base, (begin, start))
            case "accept":
                await self.consent(plain, way)
                return Expected(way, base, start, start)
            case "start-at-offset":
                at = topic.chance.choice((start, topic.chance.randint(start, end), end))
                await self._start_at(f"{plain} --start-at {at}", way, at)
                return Expected(way, base, at, at)
            case "start-at-time":
                at, moment = some_time(topic.chance, [record for record in source if record.offset >= start])
                await self._start_at(f"{plain} --start-at {moment}", way, at)
                return Expected(way, base, at, at)
            case _:
                await self._start_over(topic, plain)
                return Expected(way, (), start, start)

    async def _adopt(
        self, topic: Topic, command: str, source: list[Record], base: tuple[Content, ...], starts: tuple[int, int]
    ) -> Expected:
        """It must be possible exactly where the target's records are the source's, in their order, from one on.

        `starts`: where the source begins, and where the mirror goes on if it is refused.
        """
        contents = [content_of(record) for record in source]
        copies = find_copies(base, contents, starts[0])
        is_done = await self.consent(command, "adopt")
        if is_done != bool(copies.good) and (is_done or copies.is_clear):
            self.problem("adopt", f"{topic.name}: adopting is {bool(copies.good)} by content, and was {is_done}")
        if not is_done or not copies.good:
            return Expected("adopt", base, starts[1], starts[1], was_refused=True)
        skipped, first = copies.good[0]
        last = source[first + len(base) - skipped - 1]
        return Expected("adopt", base, last.offset + 1, source[first].offset)

    async def _start_at(self, command: str, way: str, at: int) -> None:
        """What is shown before consent must be where it goes on."""
        dry = await asyncio.to_thread(self.operator.as_printed, command, "--dry-run")
        if str(at) not in dry.out.replace(",", "").split():
            self.stage.notes.append(f"offset {at} is not shown: {dry.out}")
        await self.consent(command, way)

    async def _start_over(self, topic: Topic, plain: str) -> None:
        """The target is emptied; where the link does not notice by itself, it is told to go on."""
        how = topic.chance.choice(("cut", "delete", "recreate"))
        self.stage.notes.append(f"{topic.name} is emptied: {how}")
        async with Cluster(self.stage.site(self.target)) as cluster:
            if how == "cut":
                end = (await log_end_offsets(cluster, [topic.where]))[topic.where]
                await delete_records(cluster, {topic.where: end})
            elif how == "delete":
                await delete_topics(cluster, [topic.name])
        if how == "recreate":
            await target_recreate(self.stage, topic)
        elif how == "delete":
            await create(self.stage, self.stage.target, topic)
        if how == "cut" or topic.chance.random() < 0.3:
            said = await asyncio.to_thread(self.operator.as_printed, plain, "--yes")
            self.stage.notes.append(f"$ {plain} --yes\n{said.out}{said.err}")
            if said.code and "does not stand at" not in said.err:
                self.problem("start-over", f"{plain} ended with {said.code}: {said.err}")

    async def _come_to_rest(self) -> None:
        """Without one more consent: each was asked once."""

        async def rests() -> bool:
            status = await self.status()
            return not status["findings"] and status["lag_records"] == 0

        try:
            await until(rests, "the mirror to come to rest", SETTLE_TIMEOUT_S)
        except AssertionError:
            status = await self.status()
            self.problem("run", f"not at rest: {status['findings']}, lag {status['lag_records']}"[:1500])

    async def _compare(self, stopped: set[str], expected: list[Expected]) -> None:
        async with Cluster(self.operator.link.target) as west:
            state = await load_link_state(self.operator.link, west)
        topics = [topic for topic in self.stage.topics if topic.name in stopped]
        for topic, wanted in zip(topics, expected, strict=True):
            source = await self.stage.read(self.source, topic)
            target = await self.stage.read(self.target, topic)
            behind = [content_of(record) for record in source if record.offset >= wanted.goes_on_at]
            found = [content_of(record) for record in target]
            wrong = []
            if found != [*wanted.base, *behind]:
                wrong.append(differing(wanted, behind, found))
            mapped = [record for record in source if record.offset >= wanted.mapped_from]
            wrong += mistranslated(state.map, topic.where, mapped, target, topic.chance)[:3]
            wrong += self._check_ledger(topic, wanted, state)
            for text in wrong:
                self.problem(wanted.way, f"{topic.name}: {text}")
            well = Outcome.REFUSED if wanted.was_refused else Outcome.WENT_ON
            failed = wrong or wanted.way in self.result.problems
            self.note_moment(wanted.way, Outcome.FAULT if failed else well)

    def _check_ledger(self, topic: Topic, wanted: Expected, state: LinkState) -> list[str]:
        if not wanted.way.startswith("start-at"):
            return []
        gaps = [gap for gap in state.entries.gaps.values() if gap.topic == topic.name]
        if any(gap.status is GapStatus.PASSED and gap.source_to == wanted.goes_on_at for gap in gaps):
            return []
        return [f"no gap of the ledger says that it goes on at {wanted.goes_on_at}: {gaps}"]

    async def check_topics(self, state: LinkState) -> None:
        for topic in self.stage.topics:
            self.result.records += len(await self.stage.read(self.source, topic))


@dataclass(frozen=True)
class Copies:
    """Where a target's records may be those of the source: (records of the target before that, place at the source)."""

    good: list[tuple[int, int]]
    is_clear: bool
    """There is but one place at which they could begin."""


def find_copies(base: Sequence[Content], contents: Sequence[Content], source_start: int) -> Copies:
    """From the target's first record on, or from the source's, where that lost its beginning."""
    places = {(0, contents.index(base[0]))} if base[0] in contents else set()
    if contents and contents[0] in base[: source_start + 1]:
        places.add((base.index(contents[0]), 0))
    good = [
        (skipped, first)
        for skipped, first in sorted(places)
        if list(base[skipped:]) == list(contents[first : first + len(base) - skipped])
    ]
    return Copies(good, len(places) < 2)


def some_time(chance: random.Random, source: list[Record]) -> tuple[int, str]:
    """A time at or just before a record's -> the offset of the first record then or later, and the time."""
    picked = chance.choice(source).timestamp
    at = next(record.offset for record in source if record.timestamp >= picked)
    return at, datetime.fromtimestamp(picked / 1000, UTC).isoformat(timespec="milliseconds")


def differing(wanted: Expected, behind: list[Content], found: list[Content]) -> str:
    """Where the target is not what it must be."""
    whole = [*wanted.base, *behind]
    at = next((at for at, pair in enumerate(zip(whole, found, strict=False)) if pair[0] != pair[1]), None)
    place = f"record {at}" if at is not None else f"its end, at {min(len(whole), len(found))}"
    return (
        f"has {len(found)} records and must have {len(wanted.base)} as they were and {len(behind)} from source offset "
        f"{wanted.goes_on_at} on; it differs at {place}"
    )
