"""`farshore link cut` of a link that has run, between two brokers: shown, refused, and each record mirrored once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failover import CONFIG, DEADLINE_S, Shell
from tests.interop.servers import FarshoreBroker, wait_until
from tests.mirror.harness import read_all, write

PARTITIONS = [TopicPartition("flights", number) for number in range(4)]
LINE = "link cut --link east-west --units 2 --pin flights:0"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        (tmp_path / "farshore.toml").write_text(CONFIG.format(east=east.bootstrap, west=west.bootstrap))
        shell = Shell(tmp_path, east, west)
        shell.run("topic create --site east --topic flights --partitions 4", ExitCode.DONE)
        yield shell


@contextmanager
def mirror(shell: Shell) -> Iterator[None]:
    shell.begin("mirror run")
    try:
        yield
    finally:
        shell.close()
        shell.services.clear()


def declare(shell: Shell, said: str) -> None:
    text = CONFIG.format(east=shell.east.bootstrap, west=shell.west.bootstrap)
    (shell.folder / "farshore.toml").write_text(text + said)


def write_each(shell: Shell, *values: str) -> None:
    async def write_all() -> None:
        async with Cluster(Site("east", shell.east.bootstrap)) as east:
            for where in PARTITIONS:
                await write(east, where, [Record(0, 1_700_000_000_000, None, value.encode()) for value in values])

    asyncio.run(write_all())


def are_there(shell: Shell, *values: str) -> bool:
    """In each partition, each once, in their order."""

    async def read() -> list[list[str]]:
        async with Cluster(Site("west", shell.west.bootstrap)) as west:
            if "flights" not in await list_topics(west):
                return []
            return [[(record.value or b"").decode() for record in await read_all(west, where)] for where in PARTITIONS]

    return asyncio.run(read()) == [list(values)] * len(PARTITIONS)


def test_a_link_is_cut_anew_and_back_and_each_record_comes_once(shell: Shell) -> None:
    assert "never ran" in shell.run(f"{LINE} --yes", ExitCode.ERROR).stderr
    for wrong, told in (
        ("--units 2 --pin gates:0", "mirrors no such topic"),
        ("--units 64 --pin flights:0", "64 at most"),
    ):
        assert told in shell.run(f"link cut {wrong} --yes", ExitCode.USAGE).stderr
    write_each(shell, "a", "b")
    with mirror(shell):
        wait_until(lambda: are_there(shell, "a", "b"), DEADLINE_S, "the whole link to carry all")
        plan = json.loads(shell.run(f"{LINE} --dry-run -o json", ExitCode.DONE).stdout)
        assert (plan["units_now"], plan["pins_now"], plan["units"], plan["pins"]) == (1, [], 2, ["flights:0"])
        assert (sum(plan["partitions"]), plan["partitions"][2], plan["stays_paused"]) == (4, 1, False)
        assert "--yes" in shell.run(LINE, ExitCode.REFUSED).stderr
        assert json.loads(shell.run("status -o json", ExitCode.DONE).stdout)["items"][0]["condition"] == "running"
        done = shell.run(f"{LINE} --yes -o json", ExitCode.DONE)
        assert json.loads(done.stdout)["file_agrees"] is False
        assert 'units = 2 and pins = ["flights:0"]' in done.stderr
        (service,) = shell.services
        assert service.wait(DEADLINE_S) != 0, "its file says something else"
        log = (shell.folder / "service.log").read_text()
        assert "declared with units = 1, and its state at west is of units = 2" in log
    write_each(shell, "c")
    assert "cut so already" in shell.run(f"{LINE} --yes", ExitCode.DONE).stderr
    declare(shell, 'units = 2\npins = ["flights:0"]\n')
    with mirror(shell):
        wait_until(lambda: are_there(shell, "a", "b", "c"), DEADLINE_S, "three units to go on")
        translated = shell.run(
            "offsets translate --link east-west --topic flights --partition 0 --offset 2", ExitCode.DONE
        )
        assert translated.stdout
        shell.run("link pause --link east-west", ExitCode.DONE)
        done = shell.run("link cut --link east-west --units 1 --yes", ExitCode.DONE)
        assert "it is paused, as it was" in done.stderr
    declare(shell, "")
    with mirror(shell):
        write_each(shell, "d")
        shell.run("link resume --link east-west --yes", ExitCode.DONE)
        wait_until(lambda: are_there(shell, "a", "b", "c", "d"), DEADLINE_S, "one unit to go on")
        wait_until(
            lambda: json.loads(shell.ask("status -o json").stdout)["items"][0]["findings"] == [],
            DEADLINE_S,
            "no finding",
        )
        result = json.loads(shell.run("switchover --yes -o json", ExitCode.DONE).stdout)
        assert result["verified"] is True
    assert "was promoted" in shell.run("link cut --units 2 --yes", ExitCode.REFUSED).stderr
