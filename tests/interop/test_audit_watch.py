"""`farshore audit watch` as an operator has it: a process with its Spark, a broker, and a link's state by hand."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from mirror.offsets.entries import encode_key, encode_value
from mirror.offsets.intervals import End, Interval
from tests.conftest import SPARK_JARS
from tests.forking import ForkedProcess, start_farshore
from tests.interop.brokers import KEEPS_ALL
from tests.interop.servers import ROOT, FarshoreBroker, wait_until
from tests.interop.test_audit_freeze import mirrored
from tests.ports import free_port

PATIENCE_S = 240
PART = 100
CHANGED = 250


class World:
    """One broker that is both sites, and a topic that grows part by part at both."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.name = f"watched-{uuid.uuid4().hex[:8]}"
        site = Site("east", bootstrap)
        self.link = Link(self.name, site, replace(site, name="west"), (f"{self.name}-.*",), "prefixed")
        self.topic, self.site, self.folder = f"{self.name}-data", site, folder
        self.records = 0
        west = bootstrap.replace("127.0.0.1", "localhost")
        (folder / "farshore.toml").write_text(
            f'state_dir = "state"\n[sites.east]\nbootstrap_servers = "{bootstrap}"\n'
            f'[sites.west]\nbootstrap_servers = "{west}"\n[[links]]\nname = "{self.name}"\nsource = "east"\n'
            f'target = "west"\ntopics = ["{self.name}-.*"]\ntopic_names = "prefixed"\n'
        )

    async def begin(self) -> None:
        names = (self.topic, self.link.target_topic(self.topic), self.link.state_topic)
        async with Cluster(self.site) as cluster:
            assert not await create_topics(cluster, [NewTopic(name, 1, configs=KEEPS_ALL) for name in names])

    async def grow(self) -> None:
        """A part more at both sites, and in the map; the record CHANGED is another one at the target."""
        offsets = range(self.records, self.records + PART)
        self.records += PART
        async with Cluster(self.site) as cluster:
            for topic, odd in ((self.topic, -1), (self.link.target_topic(self.topic), CHANGED)):
                values = [b"tampered with" if offset == odd else b"%d" % offset for offset in offsets]
                batch = [Record(n, 1_000 + n, b"k", value, ()) for n, value in enumerate(values)]
                await append(cluster, TopicPartition(topic, 0), encode_batch(batch))
            entries = mirrored(self.topic, [Interval(0, 0)], End(self.records, self.records))
            state = [Record(n, 1_000, encode_key(entry), encode_value(entry), ()) for n, entry in enumerate(entries)]
            await append(cluster, TopicPartition(self.link.state_topic, 0), encode_batch(state))

    def documents(self) -> list[dict[str, Any]]:
        """Of the runs that are kept, the oldest first."""
        found = [json.loads(path.read_text()) for path in (self.folder / "state/audit/documents").glob("*.json")]
        return sorted(found, key=lambda document: str(document["run_id"]))

    def spans(self) -> list[list[int]]:
        """At the source, that these runs have read."""
        found = [document["partitions"][0]["source"] for document in self.documents()]
        return [span for span in found if span[0] < span[1]]


class Watch:
    """The process, what it has said, and what it shows."""

    def __init__(self, process: ForkedProcess, log: Path, port: int) -> None:
        self.process, self._log, self._port = process, log, port

    def log(self) -> str:
        return self._log.read_text()

    def metrics(self) -> dict[str, float]:
        """By name and labels but the link's; empty where nobody listens yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def shows(self, name: str, *labels: str) -> float | None:
        found = [
            value
            for key, value in self.metrics().items()
            if key.startswith(f"farshore_audit_{name}{{") and all(label in key for label in labels)
        ]
        assert len(found) < 2
        return found[0] if found else None

    def until(self, what: str, name: str, *labels: str, at_least: float = 1) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None, self.log()
            return (self.shows(name, *labels) or 0) >= at_least

        wait_until(is_so, PATIENCE_S, what)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def watching(world: World, log: Path) -> Iterator[Watch]:
    jars = ",".join(sorted(str(jar) for jar in SPARK_JARS.glob("*.jar")))
    port = free_port()
    arguments = ["--config", str(world.folder / "farshore.toml"), "audit", "watch", "--every", "1s", "--jars", jars]
    options = ["--listen", f"127.0.0.1:{port}", "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
    process = start_farshore([*arguments, *options], ROOT, log)
    try:
        yield Watch(process, log, port)
    finally:
        process.kill()
        process.wait(60)


def test_a_watch_goes_on_from_its_proof_names_a_change_once_and_outlives_a_site(
    own_broker: FarshoreBroker, tmp_path: Path
) -> None:
    world = World(own_broker.bootstrap, tmp_path)
    asyncio.run(world.begin())
    asyncio.run(world.grow())
    with watching(world, tmp_path / "first.log") as watch:
        watch.until("a first audit", "watch_audits_total", "ended")
        assert watch.shows("last_verdict", 'verdict="equal"') == 1
        asyncio.run(world.grow())
        wait_until(lambda: world.spans() == [[0, PART], [PART, 2 * PART]], PATIENCE_S, "what came meanwhile")
        ended = watch.shows("watch_audits_total", "ended") or 0
        watch.until("it to be shown", "watch_audits_total", "ended", at_least=max(2, ended))
        assert watch.shows("watch_unproved_offsets", world.topic) == 0
        assert 0 <= (watch.shows("watch_proof_age_seconds") or -1) < PATIENCE_S
        assert watch.stop() == ExitCode.DONE
        # An audit amid a part's growth compares less of it; what is told is what is another than before.
        verdicts = re.findall(r": ([a-z ]+), [\d.]+ % compared", watch.log())
        assert verdicts[0] == "equal"
        assert all(before != told for before, told in pairwise(verdicts)), watch.log()
        assert "stopped after" in watch.log()
    assert world.spans() == [[0, PART], [PART, 2 * PART]]
    asyncio.run(world.grow())
    kept = {document["run_id"] for document in world.documents()}
    with watching(world, tmp_path / "second.log") as watch:
        watch.until("two audits", "watch_audits_total", "ended", at_least=2)
        named = f"1 new difference: {world.topic}:0 changed (source offset {CHANGED}, target offset {CHANGED})"
        assert watch.log().count(named) == 1
        assert watch.log().count("differs, ") == 1
        assert watch.shows("last_verdict", 'verdict="differs"') == 1
        assert watch.shows("last_ranges_differing") == 1
        assert watch.shows("watch_unproved_offsets", world.topic) == PART
        later = [document for document in world.documents() if document["run_id"] not in kept]
        assert {tuple(document["partitions"][0]["source"]) for document in later} == {(2 * PART, 3 * PART)}
        assert {document["coverage"]["records_earlier"] for document in later} == {4 * PART}
        before = watch.shows("watch_proof_age_seconds") or 0
        own_broker.kill9()
        watch.until("an audit that fails", "watch_failed_in_a_row")
        assert (watch.shows("watch_proof_age_seconds") or 0) > before > 0
        assert watch.shows("last_verdict", 'verdict="equal"') == 0
        assert watch.stop() == ExitCode.FINDINGS
        assert watch.log().count("no audit, tried again each 1 s: ") == 1
