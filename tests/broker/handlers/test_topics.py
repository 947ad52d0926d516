"""Metadata, CreateTopics, DeleteTopics, CreatePartitions: what topics there are, and how they come and go."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from broker.log.disk import OsDisk
from broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.schema import ZERO_UUID
from tests.broker.running import running_broker, running_server
from tests.broker.wire_client import WireClient, batch_of, connect, values_in


async def metadata(client: WireClient, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return await client.ask(MetadataRequest(topics, create), version, MetadataResponse)


async def create(client: WireClient, topic: CreatableTopic, *, version: int = 7, check: bool = False) -> int:
    request = CreateTopicsRequest([topic], 1000, check)
    return (await client.ask(request, version, CreateTopicsResponse)).topics[0].error_code


@pytest.mark.parametrize("version", range(13))
async def test_metadata_in_each_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", partitions=3)
        response = await client.ask(MetadataRequest(None if version else []), version, MetadataResponse)
        host, port = address.split(":")
        assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, host, int(port))]
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in topic.partitions] == [
            (i, 1, [1]) for i in range(3)
        ]
        assert (topic.topic_id != ZERO_UUID) == (version >= 10)
        if version:
            assert (await metadata(client, version=version)).topics == []


async def test_topics_are_made_on_demand_if_both_sides_want_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a", num_partitions=4) as address, connect(address) as client:
        assert (await metadata(client, "new")).topics[0].error_code == 3
        made = (await metadata(client, "new", create=True)).topics[0]
        assert (made.error_code, len(made.partitions)) == (0, 4)
        assert (await metadata(client, "bad name", create=True)).topics[0].error_code == 17
        assert (await metadata(client, "..", create=True)).topics[0].error_code == 17
        assert (await metadata(client, "__consumer_offsets", create=True)).topics[0].error_code == 3
    async with running_broker(tmp_path / "b", auto_create_topics_enable=False) as address, connect(address) as client:
        assert (await metadata(client, "new", create=True)).topics[0].error_code == 3


async def test_metadata_by_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        topic_id = (await metadata(client, "t")).topics[0].topic_id
        asked = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(uuid.uuid4(), None)]
        response = await client.ask(MetadataRequest(asked), 12, MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0), (None, 100)]


async def test_an_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    async with running_server(tmp_path, advertised_host="broker.example", advertised_port=19092) as server:
        assert server.address == "broker.example:19092"
        host, port = server.broker.config.listen_host, server.broker.advertised[1]
        assert (host, port) == ("127.0.0.1", 19092)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic("t", 0, 1), 37),
        (CreatableTopic("t", -2, 1), 37),
        (CreatableTopic("t", 1, 2), 38),
        (CreatableTopic("t", 1, 0), 38),
        (CreatableTopic("", 1, 1), 17),
        (CreatableTopic("a/b", 1, 1), 17),
        (CreatableTopic(".", 1, 1), 17),
        (CreatableTopic("x" * 250, 1, 1), 17),
        (CreatableTopic("there.is_one", 1, 1), 36),
        (CreatableTopic("there_is.one", 1, 1), 17),
        (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("no.such.config", "1")]), 40),
        (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("retention.ms", "soon")]), 40),
        (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("retention.ms", None)]), 40),
        (CreatableTopic("t", 1, 1, assignments=[CreatableReplicaAssignment(0, [1])]), 42),
        (CreatableTopic("t", -1, -1, assignments=[CreatableReplicaAssignment(0, [2])]), 39),
        (CreatableTopic("t", -1, -1, assignments=[CreatableReplicaAssignment(1, [1])]), 39),
        (CreatableTopic("t", -1, -1, assignments=[CreatableReplicaAssignment(0, [1])]), 0),
        (CreatableTopic("t", -1, -1), 0),
        (CreatableTopic("x" * 249, 1, 1), 0),
    ],
)
async def test_what_create_topics_refuses(tmp_path: Path, topic: CreatableTopic, code: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("there.is_one")
        assert await create(client, topic, check=True) == code
        assert len((await client.ask(MetadataRequest(None), 12, MetadataResponse)).topics) == 1
        assert await create(client, topic) == code
        assert len((await client.ask(MetadataRequest(None), 12, MetadataResponse)).topics) == (1 if code else 2)


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_answers_with_configs_that_are_never_null(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        topic = CreatableTopic("t", 2, 1, configs=[CreatableTopicConfig("retention.ms", "-1")])
        response = await client.ask(CreateTopicsRequest([topic]), version, CreateTopicsResponse)
        (result,) = response.topics
        assert result.error_code == 0
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 1)
            shown = {config.name: (config.value, config.config_source) for config in result.configs or []}
            assert shown["retention.ms"] == ("-1", 1)
            assert shown["cleanup.policy"] == ("delete", 5)


async def test_a_name_twice_in_one_request_makes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1), CreatableTopic("t", 2, 1)])
        response = await client.ask(request, 7, CreateTopicsResponse)
        assert [result.error_code for result in response.topics] == [42]
        assert (await metadata(client, "t")).topics[0].error_code == 3


async def test_a_topic_recreated_is_another_one_and_empty(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        ids = set()
        for _ in range(3):
            await client.create_topic("t")
            await client.produce("t", batch_of("old"))
            ids.add((await metadata(client, "t")).topics[0].topic_id)
            response = await client.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6, DeleteTopicsResponse)
            assert response.responses[0].error_code == 0
            assert (await client.produce("t", batch_of("x"))).error_code == 3
        assert len(ids) == 3
        assert not list(tmp_path.glob("t-*"))
        await client.create_topic("t")
        assert (await client.fetch("t", 0)).high_watermark == 0


async def test_delete_by_name_by_id_and_of_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("a")
        await client.create_topic("b")
        b = (await metadata(client, "b")).topics[0].topic_id

        async def delete(*asked: DeleteTopicState) -> list[tuple[str | None, int]]:
            answer = await client.ask(DeleteTopicsRequest(list(asked)), 6, DeleteTopicsResponse)
            return [(r.name, r.error_code) for r in answer.responses]

        old = await client.ask(DeleteTopicsRequest(topic_names=["a", "nowhere"]), 5, DeleteTopicsResponse)
        assert [(r.name, r.error_code) for r in old.responses] == [("a", 0), ("nowhere", 3)]
        assert await delete(DeleteTopicState("b", b), DeleteTopicState(None)) == [("b", 42), (None, 42)]
        # Named twice, also in two ways: which of them is meant is not guessed.
        assert await delete(DeleteTopicState("b"), DeleteTopicState("b")) == [("b", 42)]
        assert await delete(DeleteTopicState("b"), DeleteTopicState(None, b)) == [("b", 42)]
        assert await delete(DeleteTopicState(None, b)) == [("b", 0)]
        assert await delete(DeleteTopicState(None, b)) == [(None, 100)]


async def test_a_deletion_that_a_crash_cut_short_is_completed(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("old"))
        # What a crash leaves: gone from the metadata, not from the disk.
        controller = await server.broker._store.elect_controller(1)
        assert controller is not None
        await server.broker._store.delete_topic(controller, server.broker.topics["t"].state)
    assert (tmp_path / "t-0").exists()
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert not (tmp_path / "t-0").exists()
        await client.create_topic("t")
        assert (await client.fetch("t", 0)).high_watermark == 0


@pytest.mark.parametrize("version", range(4))
async def test_partitions_can_become_more(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("first"))

        async def widen(count: int, assignments: list[CreatePartitionsAssignment] | None = None) -> int:
            topic = CreatePartitionsTopic("t", count, assignments)
            request = CreatePartitionsRequest([topic], 1000, False)
            return (await client.ask(request, version, CreatePartitionsResponse)).results[0].error_code

        assert await widen(1) == 37
        assert await widen(0) == 37
        assert await widen(3, [CreatePartitionsAssignment([1])]) == 39
        assert await widen(2, [CreatePartitionsAssignment([9])]) == 39
        assert await widen(3, [CreatePartitionsAssignment([1]), CreatePartitionsAssignment([1])]) == 0
        assert (await client.produce("t", batch_of("third"), partition=2)).error_code == 0
        assert values_in(await client.fetch("t", 0)) == ["first"]
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert values_in(await client.fetch("t", 0, partition=2)) == ["third"]


async def test_leader_epochs_rise_with_each_start(tmp_path: Path) -> None:
    seen = []
    for start in range(3):
        async with running_broker(tmp_path) as address, connect(address) as client:
            if not start:
                await client.create_topic("t")
            seen.append((await metadata(client, "t")).topics[0].partitions[0].leader_epoch)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("file_name", ["metadata.json", "partition.metadata"])
async def test_a_full_disk_leaves_topics_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_name: str
) -> None:
    written = OsDisk.write_file

    def full(disk: OsDisk, path: Path, data: bytes, *, durable: bool) -> None:
        if path.name == file_name and path.parent.name != "t-1":
            raise OSError(errno.ENOSPC, "No space left on device")
        written(disk, path, data, durable=durable)

    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("kept"))
        widen = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)], 1000, False)
        with monkeypatch.context() as disk:
            disk.setattr(OsDisk, "write_file", full)
            assert await create(client, CreatableTopic("new", 2, 1)) == 56
            assert (await client.ask(widen, 3, CreatePartitionsResponse)).results[0].error_code == 56
            assert (await metadata(client, "new")).topics[0].error_code == 3
            assert len((await metadata(client, "t")).topics[0].partitions) == 1
        assert await create(client, CreatableTopic("new", 2, 1)) == 0
        assert (await client.ask(widen, 3, CreatePartitionsResponse)).results[0].error_code == 0
        for partition in (1, 2):
            assert (await client.produce("t", batch_of("x"), partition=partition)).base_offset == 0
        assert values_in(await client.fetch("t", 0)) == ["kept"]


async def test_a_topic_named_twice_is_described_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        topic_id = (await metadata(client, "t")).topics[0].topic_id
        twice = [MetadataRequestTopic(name="t"), MetadataRequestTopic(topic_id, None), MetadataRequestTopic(name="t")]
        answer = await client.ask(MetadataRequest(twice), 12, MetadataResponse)
        assert [topic.name for topic in answer.topics] == ["t"]
        unknown = [MetadataRequestTopic(name="a b")] * 2 + [MetadataRequestTopic(name="c d")]
        answer = await client.ask(MetadataRequest(unknown), 12, MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a b", 17), ("c d", 17)]
        # By id alone since v12: before, an id is no question.
        answer = await client.ask(MetadataRequest([MetadataRequestTopic(topic_id, "t")]), 11, MetadataResponse)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 42)]
