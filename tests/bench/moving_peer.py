"""What a user of MirrorMaker 2 types to move 1,000 groups, timed with Kafka's own tools at one Kafka.

MirrorMaker 2 moves nobody: it translates committed offsets now and then (`sync.group.offsets.enabled`, each minute
unless told otherwise), and by whom its user sees, and sets, where the groups stand at the target is
`kafka-consumer-groups.sh`. The one cluster stands for both sites, with no distance between them. Not counted is what
the tools do not do at all: waiting for the mirror and its next translation, stopping the mirror, translating what it
had not, comparing records, and saying what was lost.
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.group_commits import commit_offsets_of_groups
from broker.client.groups import committed_offsets_of_groups
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.bench.clusters import KAFKA_VERSION, FastKafka
from tests.bench.moving_bench import RECORDS, TOPIC, UNREAD, WHERES, groups_offsets
from tests.interop.servers import run_java

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SAMPLE = 20
"""Of the groups, that are moved one by one."""
PATIENCE_MS = 120_000


@dataclass(frozen=True, slots=True)
class ToolStep:
    """`seconds` for so many groups by so many runs of the tool."""

    what: str
    commands: int
    groups: int
    seconds: float


def bench_tools(folder: Path, say: Callable[[str], None]) -> tuple[ToolStep, ...]:
    """The steps of two ways: all groups by one file, and a sample one by one. RuntimeError where a group is not set."""
    wanted = groups_offsets(RECORDS - UNREAD)
    with FastKafka(KAFKA_VERSION, folder / "kafka") as kafka:
        asyncio.run(_prepare(kafka.bootstrap, groups_offsets(0)))

        def timed(what: str, groups: Mapping[str, object], *each: list[str]) -> ToolStep:
            began_s = time.perf_counter()
            for arguments in each:
                options = ["--bootstrap-server", kafka.bootstrap, "--timeout", str(PATIENCE_MS)]
                run_java(KAFKA_VERSION, TOOL, *options, *arguments)
            step = ToolStep(what, len(each), len(groups), time.perf_counter() - began_s)
            say(f"{what}: {step.groups} groups, {step.commands} runs of the tool, {step.seconds:.2f} s")
            return step

        sample = dict(list(wanted.items())[:SAMPLE])
        files = {group: _plan(folder / f"{group}.csv", {group: offsets}) for group, offsets in sample.items()}
        setting = ["--reset-offsets", "--execute", "--from-file"]
        steps = [
            timed("all at once: described", wanted, ["--describe", "--all-groups"]),
            timed(
                "all at once: set from a file",
                wanted,
                [*setting, _plan(folder / "all.csv", wanted), *(part for name in wanted for part in ("--group", name))],
            ),
            timed("all at once: described again", wanted, ["--describe", "--all-groups"]),
        ]
        _check(kafka.bootstrap, wanted)
        asyncio.run(_commit(kafka.bootstrap, groups_offsets(0)))
        steps += [
            timed("one by one: described", sample, *(["--describe", "--group", name] for name in sample)),
            timed("one by one: set", sample, *([*setting, files[name], "--group", name] for name in sample)),
            timed("one by one: described again", sample, *(["--describe", "--group", name] for name in sample)),
        ]
        _check(kafka.bootstrap, sample)
    return tuple(steps)


def _plan(path: Path, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]) -> str:
    """As the tool reads it: of one group without its name."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        for group, of_group in offsets.items():
            for at, committed in of_group.items():
                rows.writerow([*([group] if len(offsets) > 1 else []), at.topic, at.partition, committed.offset])
    return str(path)


async def _prepare(bootstrap: str, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]) -> None:
    async with Cluster(Site("bench", bootstrap)) as cluster:
        failures = await create_topics(cluster, [NewTopic(TOPIC, len(WHERES), 1, {"retention.ms": "-1"})])
        assert not failures, failures
        records = [Record(number, 1_700_000_000_000, None, b"%d" % number) for number in range(RECORDS)]
        for where in WHERES:
            await append(cluster, where, encode_batch(records))
    await _commit(bootstrap, offsets)


async def _commit(bootstrap: str, offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]]) -> None:
    async with Cluster(Site("bench", bootstrap)) as cluster:
        refused = await commit_offsets_of_groups(cluster, offsets)
        assert not refused, refused


def _check(bootstrap: str, wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]) -> None:
    async def stand() -> Mapping[str, object]:
        async with Cluster(Site("bench", bootstrap)) as cluster:
            return await committed_offsets_of_groups(cluster, wanted)

    for group, found in asyncio.run(stand()).items():
        offsets = {at: one.offset for at, one in found.items()} if isinstance(found, dict) else found
        if offsets != {at: one.offset for at, one in wanted[group].items()}:
            raise RuntimeError(f"the tool left {group} at {offsets}")
