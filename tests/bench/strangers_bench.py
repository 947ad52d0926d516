"""What clients that never log in cost one that has: `make strangers`, or `python -m tests.bench.strangers_bench`.

A client that is logged in produces on a fixed schedule, and each answer counts from the moment at which its request was
due (no coordinated omission). Now and then another one logs in. Rounds without strangers and rounds among them take
turns. Of the strangers a quarter say nothing, a quarter send a byte now and then, a quarter announce a large request
and stop, a quarter log in by a wrong password; who is closed comes again. They share this machine's processors, and
never have priority (`nice -n -15` gives it to the broker and its client where others run, too). They are a session of
their own, as Linux shares out processors by session: strangers elsewhere take none of the broker's share.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from broker.access.users import new_credentials, write_users
from broker.limits import LOGIN_REQUEST_BYTES_MAX
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.wire_client import WireClient, batch_of, connect
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PROCESSES = 2
RATE_PER_S = 100
LOGIN_EVERY_S = 0.25
RAMP_S = 10.0
BYTE_EVERY_S = 5.0
SETTLE_S = 5.0
START_S = 60.0
PASSWORD = "bench-secret"
HANDSHAKE = struct.pack(">ihhih", 100, 17, 1, 1, -1)
LARGE = struct.pack(">ihhih", LOGIN_REQUEST_BYTES_MAX, 36, 2, 1, -1) + b"x" * 9000


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


async def be_stranger(address: str, kind: int, again_s: float) -> None:
    """For ever."""
    await asyncio.sleep(random.uniform(0, RAMP_S))
    host, port = address.rsplit(":", 1)
    while True:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError, AssertionError):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                if kind == 1:
                    for byte in HANDSHAKE:
                        writer.write(bytes((byte,)))
                        with suppress(TimeoutError):
                            async with asyncio.timeout(BYTE_EVERY_S):
                                await reader.read(1)
                                break
                elif kind == 3:
                    await log_in(WireClient(reader, writer), "wrong")
                if kind == 2:
                    writer.write(LARGE)
                await reader.read(1)
            finally:
                writer.transport.abort()
        await asyncio.sleep(random.uniform(0.5, 1.5) * again_s)


async def be_strangers(address: str, count: int, kinds: Sequence[int], again_s: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(be_stranger(address, kinds[number % len(kinds)], again_s))


@contextmanager
def strangers(address: str, count: int, kinds: str, again_s: float) -> Iterator[None]:
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
        address,
        "--strangers",
    ]
    with ExitStack() as ending:
        for _ in range(PROCESSES):
            process = subprocess.Popen([*words, str(count // PROCESSES)], cwd=ROOT, start_new_session=True)
            ending.callback(process.wait)
            ending.callback(process.kill)
        yield


@contextmanager
def locked_broker(folder: Path) -> Iterator[str]:
    """The address of one that asks for logins."""
    address = f"127.0.0.1:{free_port()}"
    write_users(folder / "users.json", {"shop": new_credentials(PASSWORD)})
    (folder / "farshore.toml").write_text(
        f'[sites.east]\nbootstrap_servers = "{address}"\n[sites.east.broker]\ndata_dir = "data"\n'
        f'listeners = ["SASL_PLAINTEXT://{address}"]\nsasl_enabled_mechanisms = ["PLAIN"]\n'
        'sasl_users_file = "users.json"\n[sites.east.security]\nprotocol = "SASL_PLAINTEXT"\nmechanism = "PLAIN"\n'
        'username = "shop"\npassword_env = "UNUSED"\n'
    )
    words = ["-m", "deploy.cli", "--config", str(folder / "farshore.toml"), "broker", "run", "--site", "east"]
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert "listening on" in line, line
        yield address
    finally:
        process.terminate()
        process.communicate()


def bench(
    count: int, manners: tuple[str, float], seconds: float, rounds: int, folder: Path
) -> tuple[list[Round], list[Round]]:
    """Without strangers, and among so many."""
    alone, among = [], []
    with locked_broker(folder) as address:
        for _ in range(rounds):
            alone.append(asyncio.run(measured(address, "t", seconds)))
            with strangers(address, count, *manners):
                time.sleep(RAMP_S + SETTLE_S)
                among.append(asyncio.run(measured(address, "t", seconds)))
            time.sleep(SETTLE_S)
    return alone, among


def told(name: str, rounds: Sequence[Round]) -> str:
    def of(percent: float, which: str) -> str:
        each = [percentile(getattr(one, which), percent) for one in rounds]
        return f"{statistics.median(each):.1f} ms ({min(each):.1f} to {max(each):.1f})"

    failed, all_ = sum(one.failed_logins for one in rounds), sum(len(one.logins_ms) for one in rounds)
    produced = f"produce p50 {of(50, 'produced_ms')}, p99 {of(99, 'produced_ms')}"
    logins = f"login p50 {of(50, 'logins_ms')}, p99 {of(99, 'logins_ms')}, {failed} of {all_ + failed} failed"
    return f"{name}: {produced}; {logins}"


@click.command()
@click.option("--strangers", "count", default=10_000, show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Of each round.")
@click.option("--rounds", default=3, show_default=True, help="Without strangers, and among them.")
@click.option("--kinds", default="0123", show_default=True, help="Silent, slow, large, with a wrong password.")
@click.option(
    "--again", default=60.0, show_default=True, help="Seconds after which, on average, who was closed comes again."
)
@click.option("--be", hidden=True, help="Be that many of them to the broker at this address.")
def main(count: int, seconds: float, rounds: int, kinds: str, again: float, be: str | None) -> None:
    """How long a client's requests take among others that never log in."""
    if be is not None:
        os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        asyncio.run(be_strangers(be, count, [int(each) for each in kinds], again))
        return
    with tempfile.TemporaryDirectory(prefix="farshore-bench-") as folder:
        alone, among = bench(count, (kinds, again), seconds, rounds, Path(folder))
    click.echo(told("without strangers", alone))
    click.echo(told(f"among {count:,}", among))


if __name__ == "__main__":
    main()
