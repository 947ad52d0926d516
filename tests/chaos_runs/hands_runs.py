"""Hands, disks and the power at two clusters while a mirror runs; then the operator's part, and every record compared.

A run has one of three forms: each of many topics suffers its own action (`hands_topics.py`), one thing is done to a
whole site in turn (`hands_sites.py`), or the link forgets what it mirrored, in turn (`hands_names.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.state import LinkState, load_link_state, read_entries
from mirror.outlook import look_ahead
from tests.chaos_runs.clusters import PAIRS, ClusterServer
from tests.chaos_runs.judgement import judge
from tests.chaos_runs.looking import mistranslated
from tests.chaos_runs.mirror_process import Operator
from tests.chaos_runs.moments import HandsResult, Moment, Outcome
from tests.chaos_runs.stage import Stage, Topic
from tests.chaos_runs.warm_commands import WarmCommands
from tests.interop.servers import ServerFailed

CONSENTS_MAX = 6
"""For one topic; one that wants more will not come to rest."""
SETTLE_TIMEOUT_S = 240.0
LOOK_TIMEOUT = "4s"
LOOK_PAUSE_S = 1.0
REFUSED = 3
"""The exit code of what a safety gate refused."""


class HandsRun(ABC):
    """One seed on two running clusters; `folder` keeps what it said."""

    def __init__(
        self,
        seed: int,
        pair: str,
        servers: tuple[ClusterServer, ClusterServer],
        commands: WarmCommands,
        folder: Path,
        actions: Sequence[str],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.seed, self.pair, self.folder, self.actions = seed, pair, folder, actions
        self.source, self.target = servers
        self.chance = random.Random(f"hands-{pair}-{seed}")
        self.result = HandsResult(seed, pair, actions)
        self.prefix = f"h{seed}"
        sites = Site("east", self.source.bootstrap), Site("west", self.target.bootstrap)
        link = Link(f"hands-{seed}", *sites, topics=(f"{self.prefix}-.*",))
        self.operator = Operator(link, folder, commands)
        self.stage = Stage(self.source, self.target, self.operator, self.make_topics(), folder, self.chance)

    @abstractmethod
    def make_topics(self) -> list[Topic]:
        """The topics that the run begins with."""

    @abstractmethod
    async def act(self) -> None:
        """All that is done, from the first written record to a mirror that came to rest."""

    @abstractmethod
    async def check_topics(self, state: LinkState) -> None:
        """Hold what the logs have against what they should have, and write down the moments."""

    async def run(self) -> HandsResult:
        started_s = time.monotonic()
        try:
            self.operator.write_config()
            await self.stage.make(*self.stage.topics)
            self.operator.start_mirror()
            await self.act()
            await self._check()
        except Exception as error:  # noqa: BLE001 whatever it was: it is this seed's result, and the other seeds go on
            (self.folder / "traceback.txt").write_text("".join(traceback.format_exception(error)))
            self.problem("run", f"{type(error).__name__}: {error}; see {self.folder}/traceback.txt")
        finally:
            (self.folder / "notes.txt").write_text("\n".join(self.stage.notes))
            self.operator.kill_mirrors()
            for server in (self.source, self.target):
                if server.process is None:  # what failed left it so; the seeds to come need it
                    self._start_again(server)
            with contextlib.suppress(ClientError):  # it only makes the later seeds slower
                await self.stage.remove_topics(f"{self.prefix}-")
        self.result.seconds = time.monotonic() - started_s
        return self.result

    def _start_again(self, server: ClusterServer) -> None:
        """One that does not start, on a machine that is too busy for instance, fails this seed, and not the table."""
        try:
            server.start()
        except ServerFailed as failed:
            self.problem("run", str(failed).partition("\n")[0])

    def problem(self, action: str, text: str) -> None:
        self.result.problems.setdefault(action, []).append(text)

    def kind_of(self, action: str) -> str:
        """Of the cluster that it is done to: what is done to the link's state or the mirror shows at the target."""
        source, target = PAIRS[self.pair]
        return source if action.startswith("source-") else target

    def note_moment(self, action: str, outcome: Outcome) -> None:
        self.result.moments.append(Moment(action, self.kind_of(action), outcome))

    async def until_all_mirrored(self) -> None:
        """Until the target has something of each topic: nothing is done to what was never there."""
        left = list(self.stage.topics)

        async def all_mirrored() -> bool:
            while left and await self.stage.read(self.target, left[-1]):
                left.pop()
            return not left

        await until(all_mirrored, "the first records of each topic", SETTLE_TIMEOUT_S)

    async def status(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.operator.status)

    async def stops(self) -> list[dict[str, Any]]:
        """The findings of partitions that stand still."""
        return [found for found in (await self.status())["findings"] if found["kind"] == "partition_stopped"]

    async def answer_stops(self) -> bool:
        """What `farshore status` prints as the way on of a stopped partition is done; sometimes of several at once."""
        stops = [stop for stop in await self.stops() if self._may_consent(stop["topic"])]
        one_command = self.chance.random() < 0.5
        together: dict[str, str] = {}
        for stop in stops:
            command = stop["next_step"]
            words = command.split(f" --gap {stop['topic']}:{stop['partition']}")
            assert len(words) == 2, f"no command for one gap: {command}"
            await self._note_outlook(stop["topic"], stop["partition"])
            self.stage.notes.append(stop["detail"])
            self.result.accepted.append(f"{stop['detail'].split(':')[0]} {stop['topic']}")
            if one_command and not words[1]:
                together[words[0]] = f"{together.get(words[0], words[0])} --gap {stop['topic']}:{stop['partition']}"
            else:
                await self.consent(command, self.action_of(stop["topic"]))
        for command in together.values():
            await self.consent(command, "run")
        return bool(stops)

    async def consent(self, command: str, action: str) -> bool:
        """Look first, then say yes; what adopting refuses is mirrored behind, as it says. False: it was refused."""
        dry = await asyncio.to_thread(self.operator.as_printed, command, "--dry-run")
        done = await asyncio.to_thread(self.operator.as_printed, command, "--yes")
        self.stage.notes.append(f"$ {command} --dry-run\n{dry.out}{dry.err}\n$ {command} --yes\n{done.out}{done.err}")
        hinted = re.search(r"hint: to mirror behind what is there: (farshore .*?);", done.err.replace("\n", " "))
        if " --adopt" in command and dry.code == done.code == REFUSED and hinted:
            await self.consent(hinted[1], action)
            return False
        if dry.code or done.code:
            self.problem(action, f"{command} ended with {dry.code}, {done.code}: {done.err}")
        return True

    def _may_consent(self, name: str) -> bool:
        """Count the consents for a topic; an end to them makes the run end as one that did not come to rest."""
        topic = self.topic(name)
        topic.consents += 1
        return topic.consents <= CONSENTS_MAX

    async def _note_outlook(self, name: str, partition: int) -> None:
        link = self.operator.link
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            entries = await read_entries(link, target)
            gap = entries.open_gaps().get((name, partition))
            outlooks = await look_ahead(link, (source, target), entries, [gap]) if gap is not None else ()
        self.topic(name).outlooks += outlooks

    def topic(self, name: str) -> Topic:
        return next(topic for topic in self.stage.topics if topic.name == name)

    def action_of(self, name: str) -> str:
        return self.topic(name).action or "untouched"

    async def settle(self) -> None:
        """Give the mirror time, and every consent it asks for, until the link is healthy."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            if await self.answer_stops():
                deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
            said = await asyncio.to_thread(
                self.operator.farshore, "status", "--link", self.operator.link.name, "--until", "healthy",
                "--timeout", LOOK_TIMEOUT,
            )  # fmt: skip
            if said.code == 0 and (await self.status())["lag_records"] == 0:
                return
            if time.monotonic() > deadline_s:
                self.problem("run", f"not healthy after {SETTLE_TIMEOUT_S:.0f} s: {said.err[-500:]} {said.out[-800:]}")
                return

    async def _check(self) -> None:
        """Status, loss statement, logs; then the topics."""
        link = self.operator.link
        status = await self.status()
        failover = await asyncio.to_thread(
            self.operator.farshore, "failover", "--link", link.name, "--dry-run", "--allow-data-loss",
            "--even-if-source-answers", "-o", "json",
        )  # fmt: skip
        (self.folder / "status.json").write_text(json.dumps(status, indent=1))
        (self.folder / "failover.json").write_text(failover.out + failover.err)
        if status["lag_records"] != 0:
            self.problem("run", f"status says lag {status['lag_records']}")
        plan = json.loads(failover.out) if failover.out else {"losses": None}
        for loss in plan["losses"] or ():
            if loss["certainty"] != "exact" or loss["offsets"] != 0:
                self.problem(self.action_of(loss["topic"]), f"failover says of a mirrored partition: {loss}")
        if not plan["losses"]:
            self.problem("run", f"failover --dry-run ended with {failover.code}: {failover.err}")
        for line in self.operator.unexpected_lines():
            self.problem("run", f"the mirror said: {line}")
        for code in self.operator.ended_mirrors():
            self.problem("run", f"a mirror ended by itself with {code}")
        async with Cluster(link.target) as west:
            state = await load_link_state(link, west)
        await self.check_topics(state)

    async def judged(self, topic: Topic, state: LinkState) -> list[str]:
        """What is wrong with a topic, in words; its logs are kept where something is."""
        source = await self.stage.read(self.source, topic)
        target = await self.stage.read(self.target, topic)
        self.result.records += len(source)
        gaps = [gap for gap in state.entries.gaps.values() if gap.topic == topic.name]
        wrong = judge(topic, topic.action, source, target, gaps)
        wrong += mistranslated(state.map, topic.where, source, target, topic.chance)[:3]
        if wrong:
            for name, records in (("source", source), ("target", target)):
                lines = [f"{record.offset} {(record.value or b'')[:50]!r}" for record in records]
                (self.folder / f"{topic.name}.{name}.txt").write_text("\n".join(lines))
            (self.folder / f"{topic.name}.gaps.txt").write_text("\n".join(map(str, [*gaps, *topic.outlooks])))
        for text in wrong:
            self.problem(topic.action or "untouched", f"{topic.name}: {text}")
        return wrong


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float) -> None:
    """Look now and then until it is so. AssertionError when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s for {what}"
        await asyncio.sleep(LOOK_PAUSE_S)
