"""Sites that mirror one topic to each other on real clusters, mirrors killed by -9: each record once everywhere."""

from __future__ import annotations

from pathlib import Path

from tests.chaos_runs.circles import MESH, PAIR, RING, Circle
from tests.interop.servers import FarshoreBroker, KafkaServer


async def test_two_files_of_one_pair_between_kafkas(
    kafka_39: KafkaServer, kafka_43: KafkaServer, tmp_path: Path
) -> None:
    """Neither file knows the other's link."""
    sites = {"east": kafka_39.bootstrap, "west": kafka_43.bootstrap}
    result = await Circle(sites, [[way] for way in PAIR], tmp_path, seed=1).run(kills=2)
    assert result.problems == []


async def test_a_full_mesh_of_three(
    kafka_39: KafkaServer, kafka_43: KafkaServer, own_broker: FarshoreBroker, tmp_path: Path
) -> None:
    sites = {"east": kafka_39.bootstrap, "north": own_broker.bootstrap, "west": kafka_43.bootstrap}
    result = await Circle(sites, [MESH], tmp_path, seed=2).run(kills=2)
    assert result.problems == []


async def test_a_ring_of_three(
    kafka_39: KafkaServer, kafka_43: KafkaServer, own_broker: FarshoreBroker, tmp_path: Path
) -> None:
    """A file for each link: what one brings the next carries on, but for what its own target wrote."""
    sites = {"east": kafka_39.bootstrap, "north": own_broker.bootstrap, "west": kafka_43.bootstrap}
    result = await Circle(sites, [[way] for way in RING], tmp_path, seed=3).run(kills=4)
    assert result.problems == []
