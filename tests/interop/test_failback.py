"""The way back to Apache Kafka 3.9, which has no role and keeps its log as every client sees it."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.cli.test_failback import come_back
from tests.deploy.cli.test_stranded import Operator
from tests.interop.servers import FarshoreBroker, KafkaServer


def test_back_to_a_kafka_with_everything_and_each_group_at_its_very_record(
    kafka_39: KafkaServer, tmp_path: Path
) -> None:
    with FarshoreBroker(tmp_path / "west") as west:
        come_back(Operator(tmp_path, kafka_39.bootstrap, west.bootstrap))
