"""Spark in a process of its own, as its parent sees it: requests go in, events come out, and all ends with the parent.

`run_child` is for one comparison, `run_part` also for one site's digests. A `SparkChild` stays for the next comparison,
as a Spark takes some ten seconds to start.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from broker.base.children import module_command, module_environment, start_child, stop_group
from monitoring import limits
from monitoring.audit.protocol import EVENT, REQUEST, ChildRequest, Compared, Ended, Failed, Progress, error_of
from monitoring.errors import SparkFailed

CHILD = module_command("monitoring.audit.child")
Report: TypeAlias = Callable[[str], None]
Comparing: TypeAlias = Callable[[ChildRequest, Report], Awaitable[Compared]]
"""Carries out a request. Raises the AuditError or OSError that Spark's process reports, and SparkFailed."""


async def run_child(request: ChildRequest, report: Report) -> Compared:
    """Spark's part of a whole run, or of a comparison, as `run_part` has it."""
    return _compared(await run_part(request, report))


async def run_part(request: ChildRequest, report: Report) -> Ended:
    """Spark's part, in a session of its own that is gone when this returns, raises or is cancelled.

    Raises the AuditError or OSError that the child reports, and SparkFailed when it ends without a word.
    """
    async with _child(request.log_file) as (process, events):
        await _give(process, request)
        assert process.stdin is not None
        process.stdin.close()
        return await _answer(process, events, request.log_file, report)


class SparkChild:
    """One Spark for comparison after comparison. Use as an async context manager; it is started when it is needed.

    A comparison that fails or is cancelled ends it, and the next one starts another: nobody knows what state it is in,
    and its answer would be taken for the next one's. So does each AUDIT_WATCH_SPARK_RUNS-th, so that nothing in Java
    or Python can pile up for longer.
    """

    def __init__(self) -> None:
        self._running: AsyncExitStack | None = None
        self._ends: tuple[asyncio.subprocess.Process, asyncio.StreamReader] | None = None
        self._comparisons = 0

    async def __aenter__(self) -> SparkChild:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def compare(self, request: ChildRequest, report: Report) -> Compared:
        """As `run_child`."""
        is_done = False
        try:
            if self._comparisons >= limits.AUDIT_WATCH_SPARK_RUNS:
                await self._end()
            if self._ends is None:
                _keep_short(request.log_file)
                self._running = AsyncExitStack()
                self._ends = await self._running.enter_async_context(_child(request.log_file))
            self._comparisons += 1
            process, events = self._ends
            await _give(process, request)
            compared = _compared(await _answer(process, events, request.log_file, report))
            is_done = True
            return compared
        finally:
            if not is_done:
                await self._end()

    async def _end(self) -> None:
        running, self._running, self._ends, self._comparisons = self._running, None, None, 0
        if running is not None:
            await running.aclose()


async def _answer(
    process: asyncio.subprocess.Process, events: asyncio.StreamReader, log_file: Path, report: Report
) -> Ended:
    try:
        last = await _last_event(events, report)
    except ValueError as error:
        raise SparkFailed("Spark's process ended while it told its result", f"see {log_file}") from error
    if last is None:
        status = await process.wait()
        raise SparkFailed(f"Spark's process ended with status {status} and no result", f"see {log_file}")
    if isinstance(last, Failed):
        raise error_of(last)
    return last


def _compared(ended: Ended) -> Compared:
    assert isinstance(ended, Compared)
    return ended


async def _last_event(events: asyncio.StreamReader, report: Report) -> Ended | Failed | None:
    """Of one request. Raises ValueError for what is no event, such as a line that was cut."""
    async for line in events:
        event = EVENT.validate_json(line)
        if not isinstance(event, Progress):
            return event
        report(event.step)
    return None


@asynccontextmanager
async def _child(log_file: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """The child and what it tells. Only it holds the pipe's other end: Java gets its standard descriptors alone."""
    events = asyncio.StreamReader(limit=limits.AUDIT_EVENT_MAX_BYTES)
    reading, writing = os.pipe()
    with (
        log_file.open("ab") as log,
        # What a child that is stopped leaves behind is gone when it is.
        tempfile.TemporaryDirectory(prefix="farshore-audit-", ignore_cleanup_errors=True) as scratch,
        os.fdopen(writing, "wb") as end_of_child,
    ):
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(events), os.fdopen(reading, "rb")
        )
        try:
            process = await start_child(
                (*CHILD, str(writing)),
                stdin=asyncio.subprocess.PIPE,
                stdout=log.fileno(),
                stderr=log.fileno(),
                pass_fds=(writing,),
                environment=module_environment(TMPDIR=scratch),
            )
            try:
                end_of_child.close()
                yield process, events
            finally:
                await stop_group(process, limits.AUDIT_SPARK_STOP_MS / limits.SECOND_MS)
        finally:
            transport.close()


async def _give(process: asyncio.subprocess.Process, request: ChildRequest) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it has ended; the pipe of events says so
        process.stdin.write(REQUEST.dump_json(request) + b"\n")
        await process.stdin.drain()


def _keep_short(log_file: Path) -> None:
    """What a Spark that stays writes in a thousand runs is little; what a thousand of them write is not."""
    with suppress(FileNotFoundError):
        if log_file.stat().st_size > limits.AUDIT_WATCH_LOG_BYTES:
            log_file.replace(log_file.with_name(f"{log_file.name}.1"))
