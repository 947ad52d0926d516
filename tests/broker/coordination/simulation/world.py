"""One seed: brokers that die and are deposed at any await, clients that go on, and the oracle."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final
from uuid import UUID

import pytest

from broker.base.errors import first_of
from broker.groups.consumer.model import Slot
from broker.handlers import join_group
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordination.simulation.clients import ClassicMember, Committer, ModernMember, TransactionalProducer
from tests.broker.coordination.simulation.oracle import Told, check_transactions, checked
from tests.broker.coordination.simulation.site import FLIGHTS, Site
from tests.mirror.simulation.loop import SimulatedLoop

STRIKES_S: Final = 60.0
CALM_S: Final = 40.0


class World:
    """Made for one seed; `run` does all. Raises Found."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop()
        self.told = Told()
        self.site = Site(self.loop, self.rng, partial(checked, self.told))

    def run(self) -> Told:
        asyncio.set_event_loop(self.loop)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(join_group, "uuid4", lambda: UUID(int=self.rng.getrandbits(128)))
                self.loop.run(self._main())
        except BaseExceptionGroup as group:
            raise first_of(group) from group
        finally:
            asyncio.set_event_loop(None)
        return self.told

    def _is_calm(self) -> bool:
        return self.loop.now > STRIKES_S

    def _is_over(self) -> bool:
        return self.loop.now > STRIKES_S + CALM_S / 2

    async def _main(self) -> None:
        self.site.begin()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self.site.replicate(where, self._is_calm)) for where in self.site.partitions
            ]
            self._add_clients(tasks)
            await self._strike()
            await asyncio.sleep(STRIKES_S + CALM_S - self.loop.now)
            check_transactions(self.site, self.told)
            for task in background:
                task.cancel()
        for broker in self.site.brokers.values():
            broker.crash()

    def _add_clients(self, tasks: asyncio.TaskGroup) -> None:
        make = (self.site, self.told, self._is_over)
        reading: dict[str, frozenset[Slot]] = {}
        for number in range(2):
            group = f"outside-{number}"
            tasks.create_task(Committer(*make).run(group, FLIGHTS[number]))
            tasks.create_task(Committer(*make).look(group, FLIGHTS[number]))
            tasks.create_task(ClassicMember(*make).run("classic", f"classic-{number}"))
            tasks.create_task(ModernMember(*make).run("modern", f"modern-{number}", reading))
            tasks.create_task(TransactionalProducer(*make).run(f"producer-{number}", f"in-{number}"))
            tasks.create_task(Committer(*make).look(f"in-{number}", TopicPartition("flights", 0)))

    async def _strike(self) -> None:
        while not self._is_calm():
            # An await of anybody's, not a time.
            turned = asyncio.Event()
            self.loop.after_steps(self.rng.randint(1, 400), turned.set)
            await turned.wait()
            if self.rng.random() < 0.15:
                await self.site.crash(self.rng.choice(list(self.site.brokers)))
            else:
                # Coordinators above all.
                internal = [where for where in self.site.partitions if where not in FLIGHTS]
                await self.site.move(self.rng.choice([*internal, *self.site.partitions]))
