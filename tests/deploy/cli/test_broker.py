"""`broker run` as a process: ready line, refusals, clean stop, and what kill -9 leaves behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.access.users import read_users
from broker.wire.messages.produce import ProduceResponse
from deploy.cli.broker import log_lines
from tests.broker.running import running_broker
from tests.broker.wire_client import WireClient, batch_of, connect, produce_request, values_in
from tests.chaos_runs.warm_commands import Said, warm_commands

ROOT = Path(__file__).parents[3]
PATIENCE_S = 180.0
CLUSTER = """
[sites.one]
bootstrap_servers = "127.0.0.1:1"
[sites.one.cluster]
zookeeper = "{zookeeper}"
[[sites.one.brokers]]
node_id = 1
listen = "127.0.0.1:1"
data_dir = "{data_dir}"
"""
RUN = [sys.executable, "-m", "deploy.cli", "broker", "run"]


def test_a_name_with_a_line_break_begins_no_line_of_the_log() -> None:
    name = "User:a\n2026-01-01 00:00:00 ERROR broker: made up\r\x1b[2J\u2028\x85é"
    record = logging.LogRecord("broker", logging.WARNING, __file__, 1, "%s may not", (name,), None)
    told = log_lines().format(record)
    assert told.splitlines() == [told]
    assert told.endswith(
        r" WARNING broker: User:a\n2026-01-01 00:00:00 ERROR broker: made up\r\x1b[2J\u2028\x85é may not"
    )


def test_marks_that_turn_the_direction_of_writing_are_written_out() -> None:
    record = logging.LogRecord("broker", logging.WARNING, __file__, 1, "\u202eeve\u202c \u2066a\u2069", (), None)
    assert log_lines().format(record).endswith(r" WARNING broker: \u202eeve\u202c \u2066a\u2069")


def test_a_traceback_begins_no_line_either() -> None:
    try:
        raise ValueError("User:a\n2026-01-01 00:00:00 ERROR broker: made up\r\u2028b")
    except ValueError:
        record = logging.LogRecord("broker", logging.ERROR, __file__, 1, "failed", (), sys.exc_info(), sinfo="Stack\na")
    first, *others = log_lines().format(record).splitlines()
    assert first.endswith(" ERROR broker: failed")
    assert all(line.startswith("  | ") for line in others)
    assert r"  | 2026-01-01 00:00:00 ERROR broker: made up\r\u2028b" in others


@asynccontextmanager
async def broker_process(data_dir: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """-> the process and the address of its ready line."""
    arguments = [*RUN[1:], "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(RUN[0], *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stderr.readline()).decode()
        assert line.startswith("broker 1 of cluster "), line
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # Lets the loop see the end of the pipe, so that the transport is closed before the loop is.
        await process.stderr.read()


def refused(*arguments: str) -> Said:
    return warm_commands().run(["broker", "run", *arguments])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_stops_in_order_with_clients_connected(tmp_path: Path, number: signal.Signals) -> None:
    async with broker_process(tmp_path) as (process, address), connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a"))
        process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
        assert await client.is_closed()
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert values_in(await client.fetch("t", 0)) == ["a"]


async def test_it_stops_at_once_while_its_start_waits_for_zookeeper(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    sick = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    config = tmp_path / "farshore.toml"
    config.write_text(
        CLUSTER.format(zookeeper=f"127.0.0.1:{sick.sockets[0].getsockname()[1]}", data_dir=tmp_path / "data")
    )
    process = await asyncio.create_subprocess_exec(
        *RUN[:3], "--config", str(config), *RUN[3:], "--site", "one", "--node-id", "1",
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            process.terminate()
            _, told = await process.communicate()
        assert (process.returncode, b"error:" in told) == (0, False), told.decode()
    finally:
        if process.returncode is None:
            process.kill()
        sick.close()
        await sick.wait_closed()


async def test_a_directory_in_use_and_a_port_in_use_are_refused_in_two_lines(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as address:
        locked = await asyncio.to_thread(refused, "--data-dir", str(tmp_path / "a"), "--listen", "127.0.0.1:0")
        taken = await asyncio.to_thread(refused, "--data-dir", str(tmp_path / "b"), "--listen", address)
    for result, problem in ((locked, "is in use by another broker"), (taken, "cannot listen on")):
        assert result.code == 1
        first, second = result.err.splitlines()
        assert first.startswith("error: ")
        assert problem in first
        assert second.startswith("hint: ")


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused().code == 2
    assert refused("--data-dir", str(tmp_path), "--listen", "9092").code == 2
    result = refused("--data-dir", str(tmp_path / "file" / "below"), "--listen", "127.0.0.1:0")
    assert result.code == 1
    assert "hint: " in result.err


def test_partitions_without_metadata_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: 8b1f5c9e-0000-4000-8000-000000000000\n")
    result = refused("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert result.code == 1
    assert "metadata.json" in result.err
    assert (tmp_path / "t-0").exists()


async def produce_until_killed(client: WireClient, process: asyncio.subprocess.Process, kill_after: int) -> list[str]:
    """Keeps five requests in flight, idempotent; kills the broker in the middle -> the acknowledged values in order."""
    acknowledged: list[str] = []
    sent = 0
    try:
        while True:
            while sent - len(acknowledged) < 5:
                batch = batch_of(f"v{sent}-" + "x" * 20_000, producer_id=5, producer_epoch=0, base_sequence=sent)
                await client.send(produce_request("t", batch), 9)
                sent += 1
            _, response = await client.receive(0, 9)
            assert isinstance(response, ProduceResponse)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, len(acknowledged))
            acknowledged.append(f"v{len(acknowledged)}")
            if len(acknowledged) == kill_after:
                os.kill(process.pid, signal.SIGKILL)
    except (ConnectionError, asyncio.IncompleteReadError):
        return acknowledged


async def test_everything_acknowledged_survives_kill_9_in_order(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    async with broker_process(tmp_path) as (process, address), connect(address) as client:
        await client.create_topic("t", segment_bytes="500000")
        acknowledged = await produce_until_killed(client, process, kill_after=150)
    assert len(acknowledged) >= 150
    async with broker_process(tmp_path) as (process, address), connect(address) as client:
        found: list[str] = []
        while values := values_in(await client.fetch("t", len(found))):
            found += [value.split("-")[0] for value in values]
        assert found[: len(acknowledged)] == acknowledged
        # What was in flight is there in order or not at all, and the producer goes on where it was.
        assert found == [f"v{number}" for number in range(len(found))]
        again = batch_of("again", producer_id=5, producer_epoch=0, base_sequence=len(found))
        assert (await client.produce("t", again)).base_offset == len(found)
        process.kill()


def test_every_interface_needs_an_address_for_clients(tmp_path: Path) -> None:
    process = refused("--data-dir", str(tmp_path / "d"), "--listen", "0.0.0.0:0")
    assert process.code == 2
    assert "--advertised HOST:PORT" in process.err
    assert not (tmp_path / "d").exists()


def user(file: Path, *arguments: str, stdin: str = "") -> Said:
    return warm_commands().run(["broker", "user", "--file", str(file), *arguments], typed=stdin)


def test_users_come_into_the_file_and_go_and_no_password_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    given = user(file, "--name", "shop", stdin="hunter2-and-more\n")
    assert (given.code, given.out, given.err) == (0, f"user shop stands in {file}\n", "")
    assert user(file, "--name", "reader", stdin="another").code == 0
    users = read_users(file)
    assert set(users) == {"shop", "reader"}
    assert all(one.is_of(mechanism, "hunter2-and-more") for mechanism, one in users["shop"].items())
    assert "hunter2" not in file.read_text()
    assert user(file, "--name", "shop", "--remove").out == f"user shop is out of {file}\n"
    assert set(read_users(file)) == {"reader"}
    gone = user(file, "--name", "shop", "--remove")
    assert gone.code == 1
    assert "there is no user 'shop'" in gone.err
    none = user(file, "--name", "shop")
    assert none.code == 2
    assert "standard input has no password" in none.err
    file.write_text("half")
    assert user(file, "--name", "shop", stdin="x").code == 1
    assert file.read_text() == "half", "what cannot be read is not written over"
