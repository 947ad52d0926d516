"""One thing is done to a whole site, or to the mirror, several times in turn, while topics are written to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mirror.offsets.state import LinkState
from tests.chaos_runs.actions import copy_disk, site_action
from tests.chaos_runs.hands_runs import HandsRun
from tests.chaos_runs.moments import Outcome
from tests.chaos_runs.stage import Topic

TURNS = 5
TOPICS = 3
WRITE_PAUSE_S = 0.1
FENCED_CODE = 1
"""A mirror that another one fenced ends with it, and says so."""


class SitesRun(HandsRun):
    """Its one action is of `SITE_ACTIONS`."""

    def make_topics(self) -> list[Topic]:
        (action,) = self.actions
        seed = f"{self.pair}-{self.seed}"
        return [Topic(f"{self.prefix}-{at}-{action}", action, seed) for at in range(TOPICS)]

    async def act(self) -> None:
        (action,) = self.actions
        stage, chance = self.stage, self.chance
        for turn in range(TURNS):
            for topic in stage.topics:
                topic.consents = 0
            async with stage.writing(WRITE_PAUSE_S):
                await self.until_all_mirrored()
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                if action.endswith("-disk"):
                    await copy_disk(stage, self.source if action.startswith("source") else self.target, action)
                await asyncio.sleep(chance.uniform(0.5, 4.0))
                await stage.note_mirrored(stage.topics)
                await self._do(action, turn)
                await asyncio.sleep(chance.uniform(0.5, 3.0))
                if chance.random() < 0.5:  # consent while it is written to
                    await self.answer_stops()
            before = len(self.result.problems)
            await self.settle()
            stopped = any(topic.consents for topic in stage.topics)
            if len(self.result.problems) > before:
                self.note_moment(action, Outcome.FAULT)
                return
            self.note_moment(action, Outcome.WENT_ON if stopped else Outcome.MIRRORED_ON)

    async def _do(self, action: str, turn: int) -> None:
        if action == "mirror-twice":
            await self._run_two(action, turn)
            return
        if self.chance.random() < 0.4:
            self.operator.kill_mirrors()
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))
        await site_action(self.stage, action)
        if not self.operator.children:
            self.operator.start_mirror()

    async def _run_two(self, action: str, turn: int) -> None:
        second = replace(self.operator, name=f"second-{turn}", children=[])
        second.write_config()
        second.start_mirror()
        await asyncio.sleep(self.chance.uniform(3.0, 9.0))
        for code in (*self.operator.ended_mirrors(), *second.ended_mirrors()):
            if code != FENCED_CODE:
                self.problem(action, f"one of two mirrors ended with {code}")
        for operator in self.chance.sample((self.operator, second), 2):
            operator.kill_mirrors()
            await asyncio.sleep(self.chance.uniform(0.0, 2.0))
        for line in second.unexpected_lines():
            self.problem(action, f"the second mirror said: {line}")
        self.operator.start_mirror()

    async def check_topics(self, state: LinkState) -> None:
        wrong = [text for topic in self.stage.topics for text in await self.judged(topic, state)]
        if wrong:  # which of the turns it was is not known
            self.result.moments = [replace(moment, outcome=Outcome.FAULT) for moment in self.result.moments]
