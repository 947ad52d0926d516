"""Where a log ends: for consumers, and for who wants to see what its followers have not got yet."""

from __future__ import annotations

from pathlib import Path

from broker.broker import Broker
from broker.handlers import list_offsets
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.vocabulary import DEBUGGING_CONSUMER, LATEST
from tests.broker.handlers.test_replicated import context, produced, replicated


async def test_a_debugging_consumer_is_told_where_the_leaders_log_ends(tmp_path: Path) -> None:
    """As at Kafka: others see of it what its followers have."""

    async def end(broker: Broker, replica_id: int) -> int:
        asked_for = [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=LATEST)])]
        answer = await list_offsets.handle(broker, ListOffsetsRequest(replica_id, topics=asked_for), context(7))
        return answer.topics[0].partitions[0].offset

    async with replicated(tmp_path) as (broker, _):
        assert not (await produced(broker, acks=1)).error_code
        assert [await end(broker, replica_id) for replica_id in (-1, DEBUGGING_CONSUMER)] == [0, 1]
