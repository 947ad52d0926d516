"""What sharing costs a worker that mirrors: one in a fleet against one that is alone, in turns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.clusters import RunningCluster, running_cluster, service
from tests.bench.data import Stored, fill_topic, stored
from tests.bench.fleet_peers import LEASE_S, bench_etcd
from tests.bench.measure import GB, Measured
from tests.bench.mirror_bench import (
    MirrorSetup,
    cpu,
    create_topic,
    empty_target,
    measure_farshore,
    mirror_config,
    speed,
)
from tests.mirror.fleet.etcd_server import EtcdServer

CODEC = "zstd"
TOPIC = "flights-throughput"


@dataclass(slots=True)
class Throughputs:
    """Runs of one worker."""

    alone: list[Measured] = field(default_factory=list)
    in_fleet: list[Measured] = field(default_factory=list)

    @property
    def speed_ratio(self) -> float:
        return speed(self.in_fleet) / speed(self.alone)

    @property
    def cpu_ratio(self) -> float:
        return cpu(self.in_fleet) / cpu(self.alone)


def bench_throughput(setup: MirrorSetup, values: list[bytes], say: Callable[[str], None]) -> Throughputs:
    """Each in turn, `rounds` times, into an empty target."""
    results = Throughputs()
    with (
        running_cluster(setup.source_kind, setup.directory / "source") as source,
        bench_etcd(setup.directory / "etcd") as etcd,
    ):
        say(f"writing {setup.payload_bytes / GB:.1f} GB of {CODEC} at the source")
        create_topic(source.bootstrap, TOPIC)
        fill_topic(source.bootstrap, TOPIC, values, setup.records, CODEC, setup.batch_bytes)
        data = stored(TOPIC, source.log_dir, setup.records)
        for number in range(setup.rounds):
            say(f"mirroring alone and in a fleet, round {number + 1} of {setup.rounds}")
            results.alone.append(_measured(setup, setup.directory / f"alone-{number}", source, data, None))
            results.in_fleet.append(_measured(setup, setup.directory / f"fleet-{number}", source, data, etcd))
    return results


def _measured(
    setup: MirrorSetup, folder: Path, source: RunningCluster, data: Stored, etcd: EtcdServer | None
) -> Measured:
    folder.mkdir(parents=True)
    with empty_target(setup, folder / "target") as target:
        config = folder / "farshore.toml"
        text = mirror_config(source.bootstrap, target.bootstrap, data.topic)
        if etcd is not None:
            text += f'[fleet]\netcd = ["{etcd.address}"]\nprefix = "/{folder.name}/"\nlease_seconds = {LEASE_S}\n'
        config.write_text(text)
        command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run"]
        with service(command, folder / "mirror.log") as process:
            return measure_farshore(process, target.log_dir, data)
