"""Switchover and failover by the command line, from Apache Kafka 3.9 to 4.3, with a real mirror process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.journal.log import load_operations
from failover.journal.standing import StepStanding, standing_of
from failover.journal.values import OperationLog
from failover.running.steps import OperationStep
from tests.chaos_runs.warm_commands import warm_commands
from tests.forking import FARSHORE, ForkedProcess, start_farshore
from tests.interop.servers import ROOT, KafkaServer, wait_until
from tests.mirror.harness import eventually
from tests.ports import free_port

RECORDS = 600
READ = 250
START_MS = 1_600_000_000_000


@dataclass
class Cli:
    """`farshore` in a folder with its own configuration file."""

    folder: Path

    def argv(self, line: str) -> list[str]:
        return [sys.executable, "-m", "deploy.cli", "--config", str(self.folder / "farshore.toml"), *line.split()]

    def ask(self, line: str) -> subprocess.CompletedProcess[str]:
        said = warm_commands().run(self.argv(line)[len(FARSHORE) :])
        return subprocess.CompletedProcess(line, said.code, said.out, said.err)

    def run(self, line: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.ask(line)
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, line: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self.run(f"{line} -o json", code).stdout)
        assert isinstance(document, dict)
        return document


def configure(folder: Path, source: str, target: str, topic: str, group: str) -> Cli:
    (folder / "farshore.toml").write_text(
        f'[sites.east]\nbootstrap_servers = "{source}"\n[sites.west]\nbootstrap_servers = "{target}"\n'
        f'[[links]]\nname = "{topic}"\nsource = "east"\ntarget = "west"\ntopics = ["{topic}"]\n'
        f'topic_names = "same"\ngroups = ["{group}"]\n'
    )
    return Cli(folder)


async def fill(bootstrap: str, topic: str, group: str) -> None:
    """RECORDS records a second apart in one partition, in zstd batches; a group that read READ of them."""
    where = TopicPartition(topic, 0)
    async with Cluster(Site("east", bootstrap)) as east:
        assert not await create_topics(east, [NewTopic(topic, 1, configs={"retention.ms": "-1"})])
        for first in range(0, RECORDS, 100):
            records = [Record(i, START_MS + 1000 * (first + i), b"k", b"%d" % (first + i)) for i in range(100)]
            await append(east, where, encode_batch(records, compression=Compression.ZSTD))
        await commit_offsets(east, group, {where: CommittedOffset(READ, "half")})


@pytest.fixture
def mirrored(
    kafka_39: KafkaServer, kafka_43: KafkaServer, topic: str, tmp_path: Path
) -> Iterator[tuple[Cli, ForkedProcess]]:
    """A filled topic at Kafka 3.9, mirrored to Kafka 4.3 by a process that runs as long as the test."""
    topic, group = topic.lower()[:60], f"group-{topic.lower()[-6:]}"
    asyncio.run(fill(kafka_39.bootstrap, topic, group))
    cli = configure(tmp_path, kafka_39.bootstrap, kafka_43.bootstrap, topic, group)
    mirror = start_farshore(cli.argv("mirror run")[len(FARSHORE) :], ROOT, tmp_path / "mirror.log")
    try:
        wait_until(lambda: carried_over(cli, group), 180, "the group to be carried over")
        yield cli, mirror
    finally:
        mirror.terminate()
        mirror.wait(60)


@pytest.fixture
def cli(mirrored: tuple[Cli, ForkedProcess]) -> Cli:
    return mirrored[0]


def carried_over(cli: Cli, group: str, link: str = "") -> bool:
    """Whether the link (the only one) has synced the group, and mirrored everything."""
    named = f" --link {link}" if link else ""
    done = cli.ask(f"switchover --dry-run -o json{named}")
    if done.returncode:
        return False
    plan = json.loads(done.stdout)
    groups = [view for view in plan["snapshot"]["groups"] if view["group"] == group]
    synced = any(at["target_offset"] is not None for view in groups for at in view["partitions"])
    return synced and not any(loss["offsets"] for loss in plan["losses"])


def test_switchover_between_two_kafkas_is_verified(cli: Cli) -> None:
    refused = cli.run("switchover", 3)
    assert "--yes" in refused.stderr
    plan = cli.json("switchover --dry-run")
    assert plan["refusals"] == []
    result = cli.json("switchover --yes")
    assert result["verified"] is True
    assert [loss["records"] for loss in result["losses"]] == [0]
    (move,) = result["moves"]
    assert move["source_offset"] == READ
    translated = cli.json(f"offsets translate --topic {move['topic']} --partition 0 --offset {READ}")
    assert move["target_offset"] == translated["target_offset"]
    events = [entry["event"] for entry in cli.json(f"operation show {result['operation_id']}")["entries"]]
    assert events[0] == "planned"
    assert events[-1] == "finished"
    again = cli.run("switchover --yes", 3)
    assert "link resume" in again.stderr
    cli.run("link resume --yes")


def test_what_comes_behind_the_fence_is_exit_code_4_and_a_hook_keeps_it_out(
    cli: Cli, kafka_39: KafkaServer, kafka_43: KafkaServer
) -> None:
    """Apache Kafka refuses nobody by our word: what came late is read and named; a hook that fails moves nothing."""
    with ThreadPoolExecutor(1) as pool:
        topic, count = topic_of(cli), 2
        late = pool.submit(asyncio.run, write_behind_the_fence(kafka_39.bootstrap, kafka_43.bootstrap, topic))
        result = cli.json("switchover --yes", 4)
        late.result()
    assert result["verified"] is True
    (stranded,) = result["stranded"]
    assert stranded == {
        "topic": topic,
        "partition": 0,
        "first_offset": RECORDS,
        "end_offset": RECORDS + count,
        "records": count,
        "open_from_offset": None,
        "is_shown": True,
        "may_be_brought": False,
        "is_end_told": True,
    }
    assert result["summary"].startswith("2 records came to east after the fence, and are only there: ")
    cli.run("link resume --yes")
    wait_until(lambda: carried_over(cli, result["moves"][0]["group"]), 180, "the link to carry them over")
    file = cli.folder / "farshore.toml"
    without = file.read_text()
    file.write_text(f'{without}[failover]\nfreeze_hook = ["false"]\nthaw_hook = ["true"]\n')
    refused = cli.run("switchover --yes", 3)
    assert "the freeze_hook ended with exit code 1" in refused.stderr
    assert cli.json("switchover --dry-run")["snapshot"]["link_state"] == "running"
    noted = cli.folder / "frozen"
    file.write_text(f'{without}[failover]\nfreeze_hook = ["touch", "{noted}"]\nthaw_hook = ["true"]\n')
    assert cli.json("switchover --yes")["stranded"] == []
    assert noted.exists()


def topic_of(cli: Cli) -> str:
    return (cli.folder / "farshore.toml").read_text().split('topics = ["')[1].split('"')[0]


async def write_behind_the_fence(source: str, target: str, topic: str) -> None:
    """Two records, as soon as the operation says that it has fenced: it looks for such for a few seconds."""
    async with Cluster(Site("east", source), client_id="shop") as east, Cluster(Site("west", target)) as west:
        await east.metadata([topic])

        async def is_fenced() -> bool:
            steps = [step for log in (await load_operations(west)).values() for step in steps_for(log, topic)]
            return any(step.step == OperationStep.FENCE and step.done_at_ms is not None for step in steps)

        await eventually(is_fenced, "the fence")
        records = [Record(at, START_MS, None, b"late") for at in range(2)]
        await append(east, TopicPartition(topic, 0), encode_batch(records))


def steps_for(log: OperationLog, link: str) -> Sequence[StepStanding]:
    """Of an operation on the link; of others none."""
    standing = standing_of(log, time.time_ns() // 1_000_000)
    return standing.steps if standing.links == (link,) else ()


def test_failover_to_a_time_from_a_kafka_that_is_gone(
    mirrored: tuple[Cli, ForkedProcess], kafka_39: KafkaServer
) -> None:
    cli, mirror = mirrored
    text = (cli.folder / "farshore.toml").read_text()
    named = f'bootstrap_servers = "{kafka_39.bootstrap}"'
    gone = f'{named}\naddress_map = {{ "{kafka_39.bootstrap}" = "127.0.0.1:{free_port()}" }}'
    assert named in text
    (cli.folder / "farshore.toml").write_text(text.replace(named, gone, 1))
    seen = " ".join(cli.run("failover --yes", 3).stderr.split())
    assert "--even-if-source-partly-there" in seen, "its worker reaches it, which is no site that is lost"
    mirror.kill()
    mirror.wait(60)
    assert "--allow-data-loss" in cli.run("failover --yes", 3).stderr
    naive = cli.run("failover --to-datetime 2020-09-13T12:30:00 --allow-data-loss --yes", 2)
    assert "time zone" in naive.stderr
    at_s = START_MS // 1000 + 400
    result = cli.json(f"failover --to-datetime {iso(at_s)} --allow-data-loss --yes")
    assert result["verified"] is True
    (loss,) = result["losses"]
    assert (loss["certainty"], loss["offsets"]) == ("at_least", 0)
    (move,) = result["moves"]
    assert move["kind"] == "by_timestamp"
    back = cli.json(
        f"offsets translate --topic {move['topic']} --partition 0 --offset {move['target_offset']} --reverse"
    )
    assert back["source_offset"] == 400


def iso(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()
