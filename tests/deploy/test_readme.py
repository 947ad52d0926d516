"""Every command of the README, run in its order with its configuration file, as a new user would.

Only what a reader's own applications would do is added: records for the topic, a group that reads some of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.forking import ForkedProcess, start_farshore
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = [part.split("```")[1] for part in README.split("<!-- examples: run in order -->")[1:]]
COMMANDS = re.findall(r"^\$ (farshore .*)$", "".join(EXAMPLES), re.MULTILINE)
RECORDS = 400
READ_BY_GROUP = 120
DEADLINE_S = 240.0
LISTENING = "listening on"
"""So the README has a broker say that it is there."""


class Reader:
    """A reader of the README at a terminal: a folder, a file, and commands typed one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: list[ForkedProcess] = []
        self.ports = {port: free_port() for port in ("19092", "29092", "9600")}
        toml = self.with_ports(README.split("```toml")[1].split("```")[0])
        (folder / "farshore.toml").write_text(toml)

    def with_ports(self, text: str) -> str:
        for written, port in self.ports.items():
            text = text.replace(f":{written}", f":{port}")
        return text

    def argv(self, command: str) -> list[str]:
        return shlex.split(self.with_ports(command))[1:]

    def start(self, command: str) -> None:
        log = self.folder / f"service-{len(self.services)}.log"
        self.services.append(start_farshore(self.argv(command), self.folder, log, environment()))

    def run(self, command: str) -> Said:
        return warm_commands().run(self.argv(command), self.folder, environment())

    def said_by_the_last(self) -> str:
        """Service."""
        return (self.folder / f"service-{len(self.services) - 1}.log").read_text()

    def close(self) -> None:
        for service in self.services:
            service.send_signal(signal.SIGTERM)
        for service in self.services:
            service.wait(60)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"))
    yield reader
    reader.close()


async def applications(bootstrap_servers: str) -> None:
    """What the reader's own applications would do after the topic is there."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="zstd")
    await producer.start()
    try:
        for row in range(RECORDS):
            await producer.send("flights", b"row %d" % row, partition=row % 2, timestamp_ms=1_370_000_000_000 + row)
        await producer.flush()
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        "flights",
        bootstrap_servers=bootstrap_servers,
        group_id="analysts",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        read = 0
        while read < READ_BY_GROUP:
            polled = await consumer.getmany(timeout_ms=1000, max_records=READ_BY_GROUP - read)
            read += sum(map(len, polled.values()))
        await consumer.commit()
    finally:
        await consumer.stop()


def mirrored(reader: Reader) -> bool:
    result = reader.run("farshore status -o json")
    if result.code != 0:
        return False
    text = result.out
    return "flights" in text and all(lag == 0 for lag in lags(json.loads(text)))


def lags(document: object) -> Iterator[int | None]:
    """Every `lag_records` in a JSON document."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "lag_records":
                yield value
            else:
                yield from lags(value)
    elif isinstance(document, list):
        for value in document:
            yield from lags(value)


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)


def test_every_command_of_the_readme_works_in_its_order(reader: Reader) -> None:
    assert len(COMMANDS) > 30
    for command in COMMANDS:
        if command.endswith("&"):
            reader.start(command.removesuffix("&"))
            if "broker run" in command:
                wait_for(lambda: LISTENING in reader.said_by_the_last(), "the broker to serve")
            if "mirror run" in command:
                wait_for(lambda: mirrored(reader), "the mirror to catch up")
            continue
        result = reader.run(command)
        assert result.code == 0, f"{command}\n{result.out}\n{result.err}"
        if "topic create" in command:
            asyncio.run(applications(f"127.0.0.1:{reader.ports['19092']}"))
    for service, command in zip(reader.services, [c for c in COMMANDS if c.endswith("&")], strict=True):
        assert service.poll() is None, f"`{command}` ended by itself"
    check_json(reader)


def test_its_sites_start_as_the_runbook_wants_them() -> None:
    """Of its two sites one alone started frozen, and a drill of a link back had that as a finding."""
    sites = tomllib.loads(README.split("```toml")[1].split("```")[0])["sites"]
    assert {name: site["broker"]["site_start_frozen"] for name, site in sites.items()} == {"east": True, "west": True}


def check_json(reader: Reader) -> None:
    """Part of the one test above: the services that its commands started are still there."""
    for command in (
        "config validate",
        "config show",
        "topic list --site east",
        "group list --site east",
        "link list",
        "link describe --link east-west",
        "status",
    ):
        result = reader.run(f"farshore {command} -o json")
        assert result.code == 0, result.err
        json.loads(result.out)
