"""What clients that never log in cost one that has: `make strangers`, or `python -m tests.bench.strangers_bench`.

A client that is logged in produces on a fixed schedule, and each answer counts from the moment at which its request was
due (no coordinated omission). Now and then another one logs in. Rounds without strangers and rounds among them take
turns. The strangers are of as many kinds as `Kind` has, in equal parts; who is closed comes again. They share this
machine's processors, and never have priority (`nice -n -15` gives it to the broker and its client where others run,
too). They are a session of their own, as Linux shares out processors by session: strangers elsewhere take none of the
broker's share.

With the default strangers it ends with 1 where the client's p99 is more than P99_TIMES_MAX times what it is without.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import repeat
from pathlib import Path

import click

from broker.access.users import new_credentials, write_users
from broker.limits import LOGIN_REQUEST_BYTES_MAX
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from deploy.local.locksmith import make_locks
from tests.broker.wire_client import WireClient, batch_of, connect
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PROCESSES = 2
RATE_PER_S = 100
LOGIN_EVERY_S = 0.25
RAMP_S = 10.0
PART_EVERY_S = 5.0
SETTLE_S = 5.0
PASSWORD = "bench-secret"
COUNT = 10_000
AGAIN_S = 60.0
P99_TIMES_MAX = 2.0
"""Of a client that is logged in, among COUNT strangers that come again after AGAIN_S on average."""
HANDSHAKE = struct.pack(">ihhih", 100, 17, 1, 1, -1)
VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
LARGE = struct.pack(">ihhih", LOGIN_REQUEST_BYTES_MAX, 36, 2, 1, -1) + b"x" * 9000


class Kind(IntEnum):
    """What a stranger does; then it waits until it is closed."""

    SILENT = 0
    SLOW = 1
    """A byte of a request now and then."""
    LARGE = 2
    """Announces a large request, and stops."""
    WRONG_PASSWORD = 3
    TLS = 4
    """Shakes hands to the end, and is silent."""
    VERSIONS = 5
    """Asks for the versions now and then, which anybody may."""


KINDS = "".join(f"{kind:d}" for kind in Kind)


@dataclass(frozen=True, slots=True)
class Doors:
    """Where the broker listens, openly and by TLS: both ask for a login."""

    open: str
    tls: str


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds, ascending: of produced records, and of logins from the connection on; and how many failed."""

    produced_ms: list[float]
    logins_ms: list[float]
    failed_logins: int


def percentile(sorted_ms: Sequence[float], percent: float) -> float:
    return sorted_ms[min(len(sorted_ms) - 1, int(len(sorted_ms) * percent / 100))]


async def log_in(client: WireClient, password: str = PASSWORD) -> bool:
    assert (await client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)).error_code == 0
    token = f"\0shop\0{password}".encode()
    return (await client.ask(SaslAuthenticateRequest(token), 2, SaslAuthenticateResponse)).error_code == 0


async def measured(address: str, topic: str, seconds: float) -> Round:
    produced_ms: list[float] = []
    logins_ms: list[float] = []
    failed = 0

    async def log_in_now_and_then() -> None:
        nonlocal failed
        while True:
            began_s = time.monotonic()
            try:
                async with connect(address) as other:
                    assert await log_in(other)
                logins_ms.append((time.monotonic() - began_s) * 1000)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                failed += 1
            await asyncio.sleep(max(0.0, began_s + LOGIN_EVERY_S - time.monotonic()))

    async with connect(address) as client:
        assert await log_in(client)
        with suppress(AssertionError):  # it is there from the round before
            await client.create_topic(topic)
        batch = batch_of("x" * 1000)
        await client.produce(topic, batch)
        logins = asyncio.create_task(log_in_now_and_then())
        began_s = time.monotonic()
        for number in range(int(seconds * RATE_PER_S)):
            due_s = began_s + number / RATE_PER_S
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            assert (await client.produce(topic, batch)).error_code == 0
            produced_ms.append((time.monotonic() - due_s) * 1000)
        logins.cancel()
    return Round(sorted(produced_ms), sorted(logins_ms), failed)


async def be_stranger(doors: Doors, kind: Kind, again_s: float) -> None:
    """For ever."""
    await asyncio.sleep(random.uniform(0, RAMP_S))
    host, port = (doors.tls if kind is Kind.TLS else doors.open).rsplit(":", 1)
    while True:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError, AssertionError):
            tls = unchecked() if kind is Kind.TLS else None
            reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
            try:
                await misbehave(kind, reader, writer)
                while await reader.read(1024):
                    pass
            finally:
                writer.transport.abort()
        await asyncio.sleep(random.uniform(0.5, 1.5) * again_s)


async def misbehave(kind: Kind, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    match kind:
        case Kind.SLOW:
            await now_and_then([bytes((byte,)) for byte in HANDSHAKE], reader, writer)
        case Kind.LARGE:
            writer.write(LARGE)
        case Kind.WRONG_PASSWORD:
            await log_in(WireClient(reader, writer), "wrong")
        case Kind.VERSIONS:
            await now_and_then(repeat(VERSIONS), reader, writer)


async def now_and_then(parts: Iterable[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the broker has closed."""
    for part in parts:
        writer.write(part)
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_EVERY_S):
                while await reader.read(1024):
                    pass
                return


@cache
def unchecked() -> ssl.SSLContext:
    """Of who does not care whom he meets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def be_strangers(doors: Doors, count: int, kinds: Sequence[Kind], again_s: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(be_stranger(doors, kinds[number % len(kinds)], again_s))


@contextmanager
def strangers(doors: Doors, count: int, kinds: str, again_s: float) -> Iterator[None]:
    """That many, in other processes."""
    words = [
        sys.executable,
        "-m",
        "tests.bench.strangers_bench",
        "--kinds",
        kinds,
        "--again",
        str(again_s),
        "--be",
        doors.open,
        doors.tls,
        "--strangers",
    ]
    with ExitStack() as ending:
        for _ in range(PROCESSES):
            process = subprocess.Popen([*words, str(count // PROCESSES)], cwd=ROOT, start_new_session=True)
            ending.callback(process.wait)
            ending.callback(process.kill)
        yield


@contextmanager
def locked_broker(folder: Path) -> Iterator[Doors]:
    """One that asks for logins."""
    doors = Doors(*(f"127.0.0.1:{free_port()}" for _ in range(2)))
    locks = make_locks(folder / "locks")
    write_users(folder / "users.json", {"shop": new_credentials(PASSWORD)})
    lines = [
        f'[sites.east]\nbootstrap_servers = "{doors.open}"\n[sites.east.broker]\ndata_dir = "data"',
        *locks.listeners(f"SASL_PLAINTEXT://{doors.open}", f"SASL_SSL://{doors.tls}"),
        'sasl_enabled_mechanisms = ["PLAIN"]\nsasl_users_file = "users.json"',
    ]
    (folder / "farshore.toml").write_text("\n".join(lines))
    words = ["-m", "deploy.cli", "--config", str(folder / "farshore.toml"), "broker", "run", "--site", "east"]
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert "listening on" in line, line
        yield doors
    finally:
        process.terminate()
        process.communicate()


def bench(
    count: int, manners: tuple[str, float], seconds: float, rounds: int, folder: Path
) -> tuple[list[Round], list[Round]]:
    """Without strangers, and among so many."""
    alone, among = [], []
    with locked_broker(folder) as doors:
        for _ in range(rounds):
            alone.append(asyncio.run(measured(doors.open, "t", seconds)))
            with strangers(doors, count, *manners):
                time.sleep(RAMP_S + SETTLE_S)
                among.append(asyncio.run(measured(doors.open, "t", seconds)))
            time.sleep(SETTLE_S)
    return alone, among


def p99_ms(rounds: Sequence[Round]) -> float:
    """Of produced records: the median of the rounds."""
    return statistics.median(percentile(each.produced_ms, 99) for each in rounds)


def told(name: str, rounds: Sequence[Round]) -> str:
    def of(percent: float, which: str) -> str:
        each = [percentile(getattr(one, which), percent) for one in rounds]
        return f"{statistics.median(each):.1f} ms ({min(each):.1f} to {max(each):.1f})"

    failed, all_ = sum(one.failed_logins for one in rounds), sum(len(one.logins_ms) for one in rounds)
    produced = f"produce p50 {of(50, 'produced_ms')}, p99 {of(99, 'produced_ms')}"
    logins = f"login p50 {of(50, 'logins_ms')}, p99 {of(99, 'logins_ms')}, {failed} of {all_ + failed} failed"
    return f"{name}: {produced}; {logins}"


@click.command()
@click.option("--strangers", "count", default=COUNT, show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Of each round.")
@click.option("--rounds", default=3, show_default=True, help="Without strangers, and among them.")
@click.option("--kinds", default=KINDS, show_default=True, help=", ".join(f"{kind}: {kind.name}" for kind in Kind))
@click.option(
    "--again", default=AGAIN_S, show_default=True, help="Seconds after which, on average, who was closed comes again."
)
@click.option("--be", nargs=2, hidden=True, help="Be that many of them to the broker at these addresses.")
def main(count: int, seconds: float, rounds: int, kinds: str, again: float, be: tuple[str, str] | None) -> None:
    """How long a client's requests take among others that never log in."""
    if be is not None:
        os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        asyncio.run(be_strangers(Doors(*be), count, [Kind(int(each)) for each in kinds], again))
        return
    click.echo(f"load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="farshore-bench-") as folder:
        alone, among = bench(count, (kinds, again), seconds, rounds, Path(folder))
    click.echo(told("without strangers", alone))
    click.echo(told(f"among {count:,}", among))
    times = p99_ms(among) / p99_ms(alone)
    is_goals = (count, again, kinds) == (COUNT, AGAIN_S, KINDS)
    click.echo(f"produce p99: {times:.2f} times" + (f", the goal is {P99_TIMES_MAX:g} at most" if is_goals else ""))
    if is_goals and times > P99_TIMES_MAX:
        raise click.ClickException(f"{count:,} strangers are felt more than the goal allows")


if __name__ == "__main__":
    main()
