from __future__ import annotations

from broker.wire.vocabulary import TopicPartition


def test_a_partition_is_told_as_kafka_tells_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert TopicPartition("orders", 3) == ("orders", 3)
