"""Why a link writes with one producer id (ADR 10): what several in flight do to the order, on real brokers."""

from __future__ import annotations

import pytest

from broker.client.cluster import Cluster
from broker.client.producers import init_producer_id
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from broker.wire.records import Record, encode_batch
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import make_topic


@pytest.mark.parametrize(("one_id", "third"), [(True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (False, ErrorCode.NONE)])
@pytest.mark.parametrize("server", ["kafka_39", "kafka_43", "own_broker"])
async def test_a_batch_behind_a_refused_one(
    request: pytest.FixtureRequest, server: str, topic: str, one_id: bool, third: ErrorCode
) -> None:
    """Three batches in flight, the second refused. Under one id the third is, too; under another one it lands.

    Then what landed is no prefix of what was sent: no position stands for it, and the map would not rise any more.
    """
    running: FarshoreBroker | KafkaServer = request.getfixturevalue(server)
    async with Cluster(Site("here", running.bootstrap)) as cluster:
        await make_topic(cluster, topic, 1, max_message_bytes="1000")
        first = await init_producer_id(cluster, f"{topic}-a")
        second = first if one_id else await init_producer_id(cluster, f"{topic}-b")
        connection = await cluster.connection(await cluster.leader(topic, 0))
        answers = []
        for producer, sequence, size in ((first, 0, 10), (first, 1, 2_000), (second, 2 if one_id else 0, 10)):
            batch = encode_batch(
                [Record(0, 1_700_000_000_000, b"k", b"v" * size)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
            )
            data = [TopicProduceData(topic, [PartitionProduceData(0, batch)])]
            answers.append(await connection.send(ProduceRequest(None, -1, 10_000, data)))
        responses: list[ProduceResponse] = [await answer for answer in answers]
        codes = [response.responses[0].partition_responses[0].error_code for response in responses]
        assert codes == [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, third]
