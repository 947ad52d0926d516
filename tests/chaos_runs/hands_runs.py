"""All that hands, disks and the power can do to a cluster while a mirror runs; then the operator's part.

At the end each record is where it should be, or was given up by a consent that had named it.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.state import LinkState, load_link_state, read_entries
from mirror.outlook import look_ahead
from tests.chaos_runs.actions import DISK_ACTIONS, SITE_ACTIONS, TOPIC_ACTIONS, copy_disk, hurt_disk, site_action
from tests.chaos_runs.clusters import ClusterServer
from tests.chaos_runs.judgement import judge
from tests.chaos_runs.looking import mistranslated
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.stage import Stage, Topic
from tests.mirror.harness import eventually

ROUNDS_MAX = 6
SETTLE_TIMEOUT_S = 120.0
STOPS_TIMEOUT_S = 20.0
WRITE_PAUSE_S = 0.06
PER_TOPIC = (*TOPIC_ACTIONS, *DISK_ACTIONS)
ALL_ACTIONS = (*PER_TOPIC, *SITE_ACTIONS)
TOPICS_OF_SITE_ACTION = 2


@dataclass
class HandsResult:
    """What one seed came to: the actions, at how many gaps the operator was asked, and what must not be."""

    seed: int
    pair: str
    actions: list[str] = field(default_factory=list)
    records: int = 0
    accepted: list[str] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)
    """By action, or "run"."""
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def line(self) -> str:
        text = (
            f"{'ok  ' if self.is_good else 'FAIL'} seed {self.seed} {self.pair}: {', '.join(self.actions)}; "
            f"{self.records} records; accepted: {', '.join(self.accepted) or 'nothing'}; {self.seconds:.0f} s"
        )
        return "\n     ".join([text, *(f"{name}: {said}" for name, all_ in self.problems.items() for said in all_[:6])])


def actions_of(seed: int, pair: str, only: Sequence[str]) -> list[str]:
    """What a seed does: one thing to a whole site, or several, each to a topic of its own."""
    chance = random.Random(f"actions-{pair}-{seed}")
    if only:
        return list(only)
    if chance.random() < 0.4:
        return [chance.choice(SITE_ACTIONS)]
    return chance.sample(PER_TOPIC, 5)


@dataclass
class HandsRun:
    """One seed on two running clusters; `folder` keeps what it said."""

    seed: int
    pair: str
    source: ClusterServer
    target: ClusterServer
    folder: Path
    actions: list[str]

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.chance = random.Random(f"hands-{self.pair}-{self.seed}")
        self.result = HandsResult(self.seed, self.pair, self.actions)
        sites = Site("east", self.source.bootstrap), Site("west", self.target.bootstrap)
        prefix = f"h{self.seed}"
        self.operator = Operator(Link(f"hands-{self.seed}", *sites, topics=(f"{prefix}-.*",)), self.folder)
        self.site_action = self.actions[0] if self.actions[0] in SITE_ACTIONS else ""
        own = [""] * TOPICS_OF_SITE_ACTION if self.site_action else self.actions
        topics = [Topic(f"{prefix}-{at}-{action or 'plain'}", action) for at, action in enumerate(own)]
        if not self.site_action:
            topics.append(Topic(f"{prefix}-untouched", ""))
        self.stage = Stage(self.source, self.target, self.operator, topics, self.folder, self.chance)

    async def run(self) -> HandsResult:
        started_s = time.monotonic()
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 whatever it was: it is this seed's result, and the other seeds go on
            (self.folder / "traceback.txt").write_text("".join(traceback.format_exception(error)))
            self._problem("run", f"{type(error).__name__}: {error}; see {self.folder}/traceback.txt")
        finally:
            self.operator.kill_mirrors()
            for server in (self.source, self.target):
                if server.process is None:  # what failed left it so; the seeds to come need it
                    server.start()
        self.result.seconds = time.monotonic() - started_s
        return self.result

    def _problem(self, action: str, text: str) -> None:
        self.result.problems.setdefault(action, []).append(text)

    async def _run(self) -> None:
        stage, stop = self.stage, asyncio.Event()
        self.operator.write_config()
        for topic in stage.topics:
            await stage.make(topic)
        self.operator.start_mirror()
        async with asyncio.TaskGroup() as tasks:
            now_ms = time.time_ns() // 1_000_000
            tasks.create_task(stage.write_all(stop, now_ms, WRITE_PAUSE_S))
            try:
                await self._act()
                await asyncio.sleep(self.chance.uniform(0.5, 3.0))
                if self.chance.random() < 0.5:  # consent while it is written to
                    await self._answer_stops()
            finally:
                stop.set()
        await self._settle()
        await self._check()

    async def _act(self) -> None:
        stage, chance = self.stage, self.chance
        await eventually(self._all_mirrored, "the first records of each topic")
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        for name, server in self._copies():
            await copy_disk(stage, server, name)
        await asyncio.sleep(chance.uniform(1.0, 4.0))
        if self.site_action:
            await self._to_site()
            return
        steps = [topic for topic in stage.topics if topic.action in TOPIC_ACTIONS]
        chance.shuffle(steps)
        for topic in steps:
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            await self._with_mirror_as_it_may_be([topic])
        for side in ("source", "target"):
            hurt = [t for t in stage.topics if t.action in DISK_ACTIONS and t.action.startswith(side)]
            if hurt:
                await self._with_mirror_as_it_may_be(hurt)

    async def _all_mirrored(self) -> bool:
        """Whether the target has something of each topic: nothing is done to what was never there."""
        return all([await self.stage.read(self.target, topic) for topic in self.stage.topics])

    def _copies(self) -> list[tuple[str, ClusterServer]]:
        wanted = [a for a in self.actions if a.endswith(("-restore", "-disk"))]
        return [(name, self.source if name.startswith("source") else self.target) for name in wanted]

    async def _to_site(self) -> None:
        stage = self.stage
        await stage.note_mirrored(stage.topics)
        if self.site_action == "mirror-twice":
            second = replace(self.operator, name="second", children=[])
            second.write_config()
            second.start_mirror()
            await asyncio.sleep(self.chance.uniform(4.0, 12.0))
            for code in (*self.operator.ended_mirrors(), *second.ended_mirrors()):
                if code != 1:  # the one that was fenced says so, and ends
                    self._problem(self.site_action, f"one of two mirrors ended with {code}")
            for operator in self.chance.sample((self.operator, second), 2):
                operator.kill_mirrors()
                await asyncio.sleep(self.chance.uniform(0.0, 2.0))
            for line in second.unexpected_lines():
                self._problem(self.site_action, f"the second mirror said: {line}")
        elif self.chance.random() < 0.4:
            self.operator.kill_mirrors()
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))
            await site_action(stage, self.site_action)
        else:
            await site_action(stage, self.site_action)
        if not self.operator.children:
            self.operator.start_mirror()

    async def _with_mirror_as_it_may_be(self, topics: list[Topic]) -> None:
        """Do it while the mirror runs, sleeps, or is not there."""
        stage, chance = self.stage, self.chance
        await stage.note_mirrored(topics)
        how = chance.choice(("runs", "runs", "sleeps", "is away"))
        stage.notes.append(f"{[topic.action for topic in topics]} while the mirror {how}")
        if how == "sleeps":
            self.operator.signal_mirrors(signal.SIGSTOP)
        elif how == "is away":
            self.operator.kill_mirrors()
        if how != "runs":
            await asyncio.sleep(chance.uniform(0.2, 1.5))
        try:
            if topics[0].action in TOPIC_ACTIONS:
                await TOPIC_ACTIONS[topics[0].action](stage, topics[0])
            else:
                server = self.source if topics[0].action.startswith("source") else self.target
                await hurt_disk(stage, server, topics)
        finally:
            if how == "sleeps":
                self.operator.signal_mirrors(signal.SIGCONT)
            elif how == "is away":
                self.operator.start_mirror()

    async def _answer_stops(self) -> bool:
        """Whatever `farshore status` prints as the way on of a stopped partition is done, word by word."""
        status = await asyncio.to_thread(self.operator.status)
        stops = [found for found in status["findings"] if found["kind"] == "partition_stopped"]
        for stop in stops:
            name = f"{stop['topic']}:{stop['partition']}"
            command = stop["next_step"]
            dry = await asyncio.to_thread(self.operator.as_printed, command, "--dry-run")
            self.stage.notes.append(f"{stop['detail']}\n$ {command} --dry-run\n{dry.out}{dry.err}")
            await self._note_outlook(stop["topic"], stop["partition"])
            done = await asyncio.to_thread(self.operator.as_printed, command, "--yes")
            self.stage.notes.append(f"$ {command} --yes\n{done.out}{done.err}")
            if dry.code or done.code:
                self._problem(
                    self._action_of(stop["topic"]), f"{command} ended with {dry.code}, {done.code}: {done.err}"
                )
            self.result.accepted.append(f"{stop['detail'].split(':')[0]} {name}")
        return bool(stops)

    async def _note_outlook(self, name: str, partition: int) -> None:
        link = self.operator.link
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            entries = await read_entries(link, target)
            gap = entries.open_gaps().get((name, partition))
            outlooks = await look_ahead(link, (source, target), entries, [gap]) if gap is not None else ()
        for topic in self.stage.topics:
            if topic.name == name:
                topic.outlooks += outlooks

    def _action_of(self, name: str) -> str:
        return self.site_action or next((t.action for t in self.stage.topics if t.name == name), "") or "untouched"

    async def _settle(self) -> None:
        """Give the mirror time, and every consent it asks for, until the link is healthy."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        rounds = 0
        while True:
            said = await asyncio.to_thread(
                self.operator.farshore, "status", "--link", self.operator.link.name, "--until", "healthy",
                "--timeout", f"{STOPS_TIMEOUT_S if rounds < ROUNDS_MAX else 1:.0f}s",
            )  # fmt: skip
            if said.code == 0 and (await asyncio.to_thread(self.operator.status))["lag_records"] == 0:
                return
            if rounds < ROUNDS_MAX and await self._answer_stops():
                rounds += 1
                continue
            if time.monotonic() > deadline_s:
                self._problem("run", f"not healthy after {SETTLE_TIMEOUT_S:.0f} s: {said.err[-500:]} {said.out[-800:]}")
                return

    async def _check(self) -> None:
        """Content, offsets, status, loss statement, logs."""
        link, stage = self.operator.link, self.stage
        status = await asyncio.to_thread(self.operator.status)
        failover = await asyncio.to_thread(
            self.operator.farshore, "failover", "--link", link.name, "--dry-run", "--allow-data-loss",
            "--even-if-source-answers", "-o", "json",
        )  # fmt: skip
        (self.folder / "status.json").write_text(json.dumps(status, indent=1))
        (self.folder / "failover.json").write_text(failover.out + failover.err)
        (self.folder / "notes.txt").write_text("\n".join(stage.notes))
        if status["lag_records"] != 0:
            self._problem("run", f"status says lag {status['lag_records']}")
        plan = json.loads(failover.out) if failover.out else {"losses": None}
        for loss in plan["losses"] or ():
            if loss["certainty"] != "exact" or loss["records"] != 0:
                self._problem(self._action_of(loss["topic"]), f"failover says of a mirrored partition: {loss}")
        if not plan["losses"]:
            self._problem("run", f"failover --dry-run ended with {failover.code}: {failover.err}")
        for line in self.operator.unexpected_lines():
            self._problem("run", f"the mirror said: {line}")
        for code in self.operator.ended_mirrors():
            self._problem("run", f"a mirror ended by itself with {code}")
        async with AsyncExitStack() as stack:
            west = await stack.enter_async_context(Cluster(link.target))
            state = await load_link_state(link, west)
            for topic in stage.topics:
                await self._check_topic(topic, state)

    async def _check_topic(self, topic: Topic, state: LinkState) -> None:
        source = await self.stage.read(self.source, topic)
        target = await self.stage.read(self.target, topic)
        self.result.records += len(source)
        action = self.site_action or topic.action
        gaps = [gap for gap in state.entries.gaps.values() if gap.topic == topic.name]
        wrong = judge(topic, action, source, target, gaps)
        wrong += mistranslated(state.map, topic.where, source, target, self.chance)[:3]
        if wrong:
            for name, records in (("source", source), ("target", target)):
                lines = [f"{record.offset} {(record.value or b'')[:50]!r}" for record in records]
                (self.folder / f"{topic.name}.{name}.txt").write_text("\n".join(lines))
            (self.folder / f"{topic.name}.gaps.txt").write_text("\n".join(map(str, [*gaps, *topic.outlooks])))
        for text in wrong:
            self._problem(action or "untouched", f"{topic.name}: {text}")
