"""Each of many topics suffers its own action at its own moment, while all of them are written to and mirrored."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from mirror.offsets.state import LinkState
from tests.chaos_runs.actions import COPIES, DISK_ACTIONS, TOPIC_ACTIONS, copy_disk, hurt_disk
from tests.chaos_runs.hands_runs import HandsRun
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.moments import Outcome
from tests.chaos_runs.stage import Topic

PER_TOPIC = (*TOPIC_ACTIONS, *DISK_ACTIONS)
COPIES_OF_ACTION = 5
"""So many topics suffer the same action."""
GROUP = 6
"""So many topics are worked upon while the mirror runs, sleeps, or is away."""
WRITE_PAUSE_S = 0.03


class TopicsRun(HandsRun):
    """Its actions are of `PER_TOPIC`."""

    def make_topics(self) -> list[Topic]:
        seed = f"{self.pair}-{self.seed}"
        names = [
            (f"{self.prefix}-{copy}-{action}", action) for copy in range(COPIES_OF_ACTION) for action in self.actions
        ]
        return [Topic(name, action, seed) for name, action in [*names, (f"{self.prefix}-untouched", "")]]

    async def act(self) -> None:
        async with self.stage.writing(WRITE_PAUSE_S):
            await self.until_all_mirrored()
            await self._copy_disks()
            await asyncio.sleep(self.chance.uniform(0.5, 2.0))
            steps = [topic for topic in self.stage.topics if topic.action in TOPIC_ACTIONS]
            self.chance.shuffle(steps)
            for at in range(0, len(steps), GROUP):
                await self._lay_hands(steps[at : at + GROUP])
            for side in ("source", "target"):
                await self._hurt_disks([t for t in self.stage.topics if t.action in DISK_ACTIONS and side in t.action])
            await asyncio.sleep(self.chance.uniform(0.5, 3.0))
            if self.chance.random() < 0.5:  # consent while it is written to
                await self.answer_stops()
        await self.settle()

    async def _copy_disks(self) -> None:
        for copy in range(COPIES):
            for side, server in (("source", self.source), ("target", self.target)):
                if f"{side}-restore" in self.actions:
                    await asyncio.sleep(self.chance.uniform(0.0, 1.5))
                    await copy_disk(self.stage, server, f"{side}-copy-{copy}")

    async def _lay_hands(self, topics: Sequence[Topic]) -> None:
        """On each at its own moment."""
        async with self._mirror_as_it_may_be(topics), asyncio.TaskGroup() as tasks:
            for topic in topics:
                tasks.create_task(self._at_its_moment(topic, TOPIC_ACTIONS[topic.action]))

    async def _at_its_moment(self, topic: Topic, action: Callable[..., Awaitable[None]]) -> None:
        await asyncio.sleep(topic.chance.uniform(0.0, 3.0))
        await self.stage.note_mirrored([topic])
        await action(self.stage, topic)

    async def _hurt_disks(self, topics: list[Topic]) -> None:
        """In two goes."""
        self.chance.shuffle(topics)
        for group in (topics[::2], topics[1::2]):
            if group:
                async with self._mirror_as_it_may_be(group):
                    await self.stage.note_mirrored(group)
                    server = self.source if group[0].action.startswith("source") else self.target
                    await hurt_disk(self.stage, server, group)
                await asyncio.sleep(self.chance.uniform(0.5, 2.0))

    @asynccontextmanager
    async def _mirror_as_it_may_be(self, topics: Sequence[Topic]) -> AsyncIterator[None]:
        """While the context is open the mirror runs, sleeps, or is not there."""
        chance = self.chance
        how = chance.choice(("runs", "runs", "sleeps", "is away"))
        self.stage.notes.append(f"{[topic.name for topic in topics]} while the mirror {how}")
        if how == "sleeps":
            self.operator.signal_mirrors(signal.SIGSTOP)
        elif how == "is away":
            self.operator.kill_mirrors()
        try:
            yield
        finally:
            if how == "sleeps":
                self.operator.signal_mirrors(signal.SIGCONT)
            elif how == "is away":
                self.operator.start_mirror()

    async def check_topics(self, state: LinkState) -> None:
        for topic in self.stage.topics:
            wrong = await self.judged(topic, state)
            wrong += await self._check_moved(topic)
            if topic.action in PER_TOPIC:
                failed = wrong or "run" in self.result.problems or self._refused(topic)
                well = Outcome.WENT_ON if topic.consents else Outcome.MIRRORED_ON
                self.note_moment(topic.action, Outcome.FAULT if failed else well)

    def _refused(self, topic: Topic) -> bool:
        return any(topic.name in text for text in self.result.problems.get(topic.action, ()))

    async def _check_moved(self, topic: Topic) -> list[str]:
        """What somebody moved to another name at the target is not the mirror's to touch."""
        if not topic.moved:
            return []
        found = await self.stage.read(self.target, Topic(f"{topic.name}-moved", ""))
        if [content_of(record) for record in found] == topic.moved:
            return []
        self.problem(
            topic.action, f"{topic.name}-moved had {len(topic.moved)} records, and has {len(found)}, or others"
        )
        return ["moved records"]
