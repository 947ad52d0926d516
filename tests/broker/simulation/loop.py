"""An event loop that several brokers share, of which each may be killed or stopped at any moment.

Every callback belongs to the life in whose context it was set: that of a dead one is never called, that of a paused
one when it goes on, as with SIGKILL and SIGSTOP. Threads take a while, and run here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

from tests.mirror.simulation.loop import Due, SimulatedLoop
from tests.mirror.simulation.trace import Found

THREAD_S = (0.0001, 0.004)
ENDING_STEPS_MAX = 10_000
"""Who goes on after it was cancelled is not waited for."""


@dataclass(eq=False)
class Life:
    """One start of a node. `kept` holds what a dead or paused one was about to do."""

    node_id: int
    number: int
    dead: bool = False
    paused: bool = False
    kept: list[Due] = field(default_factory=list)


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
"""None: what is no broker, as the network, ZooKeeper, clients and the world."""
NOBODY = copy_context()
"""The context of what happens between nodes."""


def context_of(life: Life | None) -> Context:
    context = NOBODY.copy()
    context.run(LIFE.set, life)
    return context


class ClusterLoop(SimulatedLoop):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.turned: Callable[[set[Life]], None] = lambda lives: None
        """Called after each turn with the lives that did something in it."""
        self._ends = False
        self._last_step = 0
        self._keeping: dict[Life, None] = {}
        self._acted: set[Life] = set()

    def run_in_executor(  # type: ignore[override]  # nobody here relies on what the types of its arguments are
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What is begun is carried out, whoever waits for it, unless the process dies."""
        done = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001  # whoever waits for it is told
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self.call_later(self.rng.uniform(*THREAD_S), work)
        return done

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_more: Any) -> Any:
        """`sock` is the network's end of the connection."""
        protocol = protocol_factory()
        sock.begin(protocol)
        return sock, protocol

    def _clear_away(self) -> None:
        """As the base's; but who waits then for what never comes is not waited for."""
        self.end_all()
        self._cancel_all()
        self.run_forever()

    def _go_on_in_time(self) -> None:
        if self._ends and (not asyncio.all_tasks(self) or self.steps > self._last_step):
            self.stop()
        elif self._ends:
            try:
                super()._go_on_in_time()
            except Found:
                self.stop()
        else:
            super()._go_on_in_time()

    def go_on(self, life: Life) -> None:
        kept, life.kept = life.kept, []
        self._soon.extend(kept)

    def end_all(self) -> None:
        """From now on the dead act, too: what is left is to be cleared away."""
        self._ends, self._last_step = True, self.steps + ENDING_STEPS_MAX
        # A task whose turn was kept would never hear that it is cancelled.
        for life in self._keeping:
            self.go_on(life)
        self._keeping.clear()

    def _run_once(self) -> None:
        self._acted.clear()
        super()._run_once()
        if self._acted and not self._ends:
            self.turned(self._acted)

    def _call(self, handle: Due) -> None:
        life = handle._context.get(LIFE)
        if life is not None and not self._ends:
            if life.dead or life.paused:
                life.kept.append(handle)
                self._keeping[life] = None
                return
            self._acted.add(life)
        super()._call(handle)

    def _complain(self, loop: object, context: dict[str, Any]) -> None:
        if not self._ends:
            super()._complain(loop, context)
