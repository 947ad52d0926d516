"""Opening produced and stored batches, and reading requests of many elements, without holding up the event loop.

What a batch costs to open does not follow from its size: 800 bytes hold a million records. So it is tried at once
within limits that keep the loop for a few milliseconds, which hold for all but a few batches. One beyond them is opened
in a thread, and only one at a time: its memory is held once, and the loop shares the interpreter with one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from broker.base.ending import to_its_end
from broker.errors import RecordsTooLarge
from broker.limits import REQUEST_ITEMS_AT_ONCE_MAX
from broker.log.stored import AT_ONCE, MOST
from broker.wire.codec import decode
from broker.wire.errors import BatchBeyondLimits, TooManyItems
from broker.wire.records import OpeningLimits
from broker.wire.schema import Message

T = TypeVar("T")


class Openings:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, look: Callable[[OpeningLimits], T]) -> T:
        """What `look` finds within the limits it is given; it must touch nothing that the event loop changes.

        Raises what it raises, and RecordsTooLarge where even the limits of the thread are too tight: Kafka's producer
        splits such a batch and sends it again.
        """
        try:
            return look(AT_ONCE)
        except BatchBeyondLimits:
            pass
        try:
            return await self.run_in_thread(lambda: look(MOST))
        except BatchBeyondLimits as error:
            raise RecordsTooLarge(str(error)) from error

    async def request(
        self, kind: type[Message], version: int, frame: bytearray, offset: int, items_max: int
    ) -> tuple[Message, int]:
        """What stands in a frame from the offset on, and where it ends. Raises MalformedMessage."""
        view = memoryview(frame)
        try:
            return decode(kind, version, view, offset, max_items=REQUEST_ITEMS_AT_ONCE_MAX)
        except TooManyItems:
            return await self.run_in_thread(lambda: decode(kind, version, view, offset, max_items=items_max))

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """In turn, and to its end: the turn is not given on while the thread still runs."""
        async with self._turn:
            return await _to_its_end(work)

    async def run_each_in_thread(self, works: Iterator[Callable[[], T]]) -> AsyncGenerator[T, None]:
        """As `run_in_thread`, with a turn for each; it is taken out of `works` when its turn has come, so that what it
        holds (open files) is held once, and not by all who wait.
        """
        while True:
            async with self._turn:
                work = next(works, None)
                if work is None:
                    return
                found = await _to_its_end(work)
            yield found


async def _to_its_end(work: Callable[[], T]) -> T:
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, work))
