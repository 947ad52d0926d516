"""An event loop on simulated time: nothing waits, nothing is random, and the same seed takes the same steps."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple, Unpack

from tests.mirror.simulation.trace import Found

START_MS = 1_700_000_000_000

T = TypeVar("T")
Given = TypeVarTuple("Given")
Connect = Callable[[Callable[[], asyncio.BaseProtocol], str, int], Coroutine[Any, Any, Any]]


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: a task group cancels its tasks in a set's order."""

    def __init__(self, coroutine: Any, number: int, **more: Any) -> None:
        # Before asyncio puts the task into a set of all that there are.
        self.number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self.number


def _nothing() -> None:
    """What a cancelled handle holds on to."""


class Due(asyncio.TimerHandle):
    """A handle with only what this loop reads: thousands are made in each world."""

    __slots__ = ()

    def __init__(  # the base's own would ask the loop three times whether it debugs
        self, callback: Callable[..., object], args: tuple[object, ...], loop: SimulatedLoop, context: Context | None
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """It is passed over when its time comes."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs what is ready, then jumps to the next timer. `connect` stands in the place of sockets.

    `after_steps(count, call)` calls when the loop has turned so often: between two turns every task stands at an await.
    """

    _stopping: bool  # asyncio's own: the loop is to end after this turn

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.connect: Connect | None = None
        self.finding: BaseException | None = None
        """What ends the run; see `stop_at`."""
        self._soon: deque[Due] = deque()
        self._later: list[tuple[float, int, Due]] = []
        self._timers = itertools.count()
        self._at_steps: dict[int, Callable[[], None]] = {}
        numbers = itertools.count()

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> _Task:
            return _Task(coroutine, next(numbers), loop=loop, **more)

        self.set_task_factory(make)
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        return self.now

    def after_steps(self, count: int, call: Callable[[], None]) -> None:
        self._at_steps[self.steps + count] = call

    async def create_connection(  # type: ignore[override]  # of its many forms only the one that the client uses
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_more: Any
    ) -> Any:
        assert self.connect is not None
        return await self.connect(factory, host, port)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main`; what is left then is cancelled. Raises what `main` raises, and Found."""
        whole = self.create_task(main)
        try:
            self.run_until_complete(whole)
        except RuntimeError:
            if self.finding is None:
                raise
        finally:
            self._clear_away()
            self.close()
        if self.finding is not None:
            raise self.finding
        return whole.result()

    def _clear_away(self) -> None:
        """What is left when the run is over ends here."""
        self._at_steps.clear()
        if left := self._cancel_all():
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    def _cancel_all(self) -> list[asyncio.Task[Any]]:
        left = sorted(asyncio.all_tasks(self), key=hash)
        for task in left:
            task.cancel()
        return left

    def stop_at(self, finding: BaseException) -> None:
        """End the run here; `run` raises the first of them."""
        if self.finding is None:
            self.finding = finding
            self.stop()

    def _complain(self, _loop: object, context: dict[str, Any]) -> None:
        """Asyncio has an error that nobody will see: of a callback, or of a task."""
        self.stop_at(context.get("exception") or Found(context["message"]))

    # What asyncio asks of a loop. Timers of one moment run in the order in which they were set.

    get_debug = bool  # never; every future asks

    def call_soon(
        self, callback: Callable[[Unpack[Given]], object], *args: *Given, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Due(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Given]], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Given]], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = Due(callback, args, self, context)
        heappush(self._later, (when, next(self._timers), handle))
        return handle

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps in self._at_steps:
            self._at_steps.pop(self.steps)()
        soon = self._soon
        if not soon and not self._stopping:
            self._go_on_in_time()
        for _ in range(len(soon)):
            handle = soon.popleft()
            if not handle._cancelled:
                self._call(handle)

    def _call(self, handle: Due) -> None:
        """Its turn has come."""
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  # whatever it was, it is found
            self._complain(self, {"exception": error})

    def _go_on_in_time(self) -> None:
        """To the next timer that was not cancelled."""
        later = self._later
        while later:
            when, _, handle = heappop(later)
            if not handle._cancelled:
                self.now = max(self.now, when)
                self._soon.append(handle)
                return
        raise Found("nothing will ever happen again: every task waits for something that nobody does")

    def _process_events(self, _events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class SimulatedClock:
    """The loop's time, as the code under test asks for it."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + round(1000 * self._loop.now)

    def monotonic(self) -> float:
        return self._loop.now

    def boottime(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
