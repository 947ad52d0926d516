"""Child processes of a command: each in a session of its own, none of which outlives the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from broker.base.children import module_command, module_environment, start_child, stop_child
from deploy.errors import DemoFailed, ServiceDied, ServiceFailed

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.05
LOG_TAIL_LINES = 15

OnEnd: TypeAlias = Callable[[str, int], None]
"""Is told the name of a service that ended by itself, and its exit code (below 0: the signal)."""


def free_ports(count: int) -> list[int]:
    """Different TCP ports of the loopback interface that nothing listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a finished `farshore` command said."""

    exit_code: int
    stdout: str
    stderr: str


class Processes:
    """Starts `farshore` commands with one configuration file and ends them all in `close`; made by `services`."""

    def __init__(
        self, config_file: Path, log_dir: Path, columns: int, watchers: asyncio.TaskGroup, on_end: OnEnd | None
    ) -> None:
        """`columns` is how wide the tables of commands may be. `watchers` fails when a service ends by itself, unless
        `on_end` is there to be told.
        """
        self._watchers = watchers
        self._on_end = on_end
        self._prefix = module_command("deploy.cli", "--config", str(config_file))
        self._log_dir = log_dir
        # What a command leaves behind that is killed while it cleans up goes with the folder.
        scratch = log_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        self._environment = module_environment(COLUMNS=str(columns), TMPDIR=str(scratch))
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, arguments: Sequence[str], ready: Callable[[], bool]) -> None:
        """Start a `farshore` service and return once `ready()`. Raises ServiceFailed with the end of its log."""
        await self.start_program(name, (*self._prefix, *arguments), ready)

    async def start_program(self, name: str, command: Sequence[str], ready: Callable[[], bool]) -> None:
        """`start` for any program."""
        log = self._log_dir / f"{name}.log"
        with log.open("ab") as sink:
            process = await start_child(command, stdout=sink, stderr=sink, environment=self._environment)
        self._running[name] = process
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while not ready():
            if process.returncode is not None:
                raise self._died(name, process.returncode)
            if asyncio.get_running_loop().time() > deadline:
                raise ServiceFailed(f"{name} did not start in {READY_TIMEOUT_S:.0f} s; {self.log_tail(name)}")
            await asyncio.sleep(POLL_S)
        self._watchers.create_task(self._watch(name, process))

    async def _watch(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Raises ServiceDied when the service ends before it was taken off the list of the running."""
        exit_code = await process.wait()
        if self._running.get(name) is not process:
            return
        if self._on_end is None:
            raise self._died(name, exit_code)
        del self._running[name]
        self._on_end(name, exit_code)

    def _died(self, name: str, exit_code: int) -> ServiceDied:
        return ServiceDied(f"{name} ended by itself with {exit_code}; {self.log_tail(name)}")

    def log_tail(self, name: str) -> str:
        """How the log of a service or a module ends."""
        log = self._log_dir / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(["its log ends:", *lines[-LOG_TAIL_LINES:]]) if lines else "its log is empty"

    @asynccontextmanager
    async def piped(self, name: str, module: str, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
        """Run a module for the length of the context; yields its output. It is killed, not stopped, at the end."""
        with (self._log_dir / f"{name}.log").open("ab") as sink:
            process = await start_child(module_command(module, *arguments), stdout=asyncio.subprocess.PIPE, stderr=sink)
        try:
            yield cast(asyncio.StreamReader, process.stdout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def pid(self, name: str) -> int | None:
        """The process id of a service; None when it does not run."""
        process = self._running.get(name)
        return None if process is None else process.pid

    async def kill9(self, name: str) -> None:
        """End a service as a power cut would."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    def stall(self, name: str) -> None:
        """Hold a service still, as a cut line would; `go_on` lets it go on, and `close` does, too."""
        self._running[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    async def run(self, *arguments: str, expect: int | None = 0) -> CommandResult:
        """Run a command to its end; DemoFailed when its exit code is not the expected one (None: any is)."""
        process = await start_child(
            (*self._prefix, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            environment=self._environment,
        )
        try:
            stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        result = CommandResult(process.returncode or 0, stdout.decode(), stderr.decode())
        if expect is not None and result.exit_code != expect:
            said = "\n".join(text.strip() for text in (result.stderr, result.stdout) if text.strip())
            raise DemoFailed(f"`farshore {' '.join(arguments)}` ended with {result.exit_code}, not {expect}:\n{said}")
        return result

    async def stop(self, names: Collection[str], timeout_s: float) -> None:
        """Ask services to stop, those of them that run, all at once; SIGKILL to those that are left after a while."""
        stopping = [self._running.pop(name) for name in names if name in self._running]
        async with asyncio.TaskGroup() as group:
            for process in stopping:
                group.create_task(stop_child(process, timeout_s))

    async def close(self) -> None:
        """Ask every service to stop, then end what is still there."""
        await self.stop(tuple(self._running), STOP_TIMEOUT_S)


@asynccontextmanager
async def services(
    config_file: Path, log_dir: Path, columns: int, on_end: OnEnd | None = None
) -> AsyncIterator[Processes]:
    """Processes that all end with the context. A service that ends by itself ends the context's body: ServiceDied; or
    `on_end` is told, and the others go on.
    """
    try:
        async with asyncio.TaskGroup() as watchers:
            processes = Processes(config_file, log_dir, columns, watchers, on_end)
            try:
                yield processes
            finally:
                await asyncio.shield(processes.close())
    except BaseExceptionGroup as group:
        died = [error for error in group.exceptions if isinstance(error, ServiceDied)]
        if died:
            raise died[0] from group
        raise


def port_answers(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier one may still be closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
