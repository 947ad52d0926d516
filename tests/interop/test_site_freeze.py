"""Real clients through a freeze and a thaw of their site: they wait, none gives up, and each record is there once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from tests.broker.running import running_server
from tests.interop.servers import run_java
from tests.mirror.harness import eventually, make_topic, read_all

WHERE = TopicPartition("t", 0)
EACH = 40
"""Records of each client, some before the freeze, some amid it, some after."""


async def test_clients_wait_while_their_site_is_frozen_and_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, Cluster(Site("east", server.address)) as own:
        await make_topic(own, WHERE.topic)
        begun: set[str] = set()
        clients: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
            "aiokafka": lambda name: of_aiokafka(server.address, name, begun, idempotent=False),
            "aiokafka-idempotent": lambda name: of_aiokafka(server.address, name, begun, idempotent=True),
            "aiokafka-transactions": lambda name: in_transactions(server.address, name, begun),
            "librdkafka": lambda name: of_librdkafka(server.address, name, begun, idempotent=False),
            "librdkafka-idempotent": lambda name: of_librdkafka(server.address, name, begun, idempotent=True),
        }
        async with asyncio.TaskGroup() as tasks:
            for name, run in clients.items():
                tasks.create_task(run(name))
            await eventually(lambda: _all(begun, len(clients)), "each client to have written")
            await set_site_role(own, SiteRole.FROZEN, "a test", await site_standing(own))
            partition = server.broker.require_partition(*WHERE)
            java = tasks.create_task(asyncio.to_thread(of_java, server.address))
            connected = len(server.connections)
            await eventually(lambda: _more(lambda: len(server.connections), connected), "Java to connect")
            frozen_at = partition.log.log_end_offset
            await asyncio.sleep(2.0)  # the freeze itself: what is refused is tried again meanwhile
            begun_transactions = 2  # records and the marker of one that had begun
            assert partition.log.log_end_offset <= frozen_at + begun_transactions
            assert not java.done()
            await set_site_role(own, SiteRole.ACTIVE, "a test", await site_standing(own))
        found = Counter(record.value for record in await read_all(own, WHERE))
        expected = [b"%s-%d" % (name.encode(), at) for name in (*clients, "java") for at in range(EACH)]
        assert found == Counter(expected)


async def _all(begun: set[str], count: int) -> bool:
    return len(begun) == count


async def _more(count: Callable[[], int], before: int) -> bool:
    return count() > before


async def of_aiokafka(address: str, name: str, begun: set[str], *, idempotent: bool) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, client_id="shop", enable_idempotence=idempotent) as producer:
        for at in range(EACH):
            await producer.send_and_wait(WHERE.topic, f"{name}-{at}".encode(), partition=WHERE.partition)
            begun.add(name)
            await asyncio.sleep(0.05)


async def in_transactions(address: str, name: str, begun: set[str]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, client_id="shop", transactional_id=name) as producer:
        for at in range(EACH):
            async with producer.transaction():
                await producer.send_and_wait(WHERE.topic, f"{name}-{at}".encode(), partition=WHERE.partition)
            begun.add(name)
            await asyncio.sleep(0.05)


async def of_librdkafka(address: str, name: str, begun: set[str], *, idempotent: bool) -> None:
    errors: list[object] = []
    settings = {"bootstrap.servers": address, "client.id": "shop", "enable.idempotence": idempotent}
    producer = Producer({**settings, "error_cb": errors.append})
    for at in range(EACH):
        producer.produce(
            WHERE.topic,
            f"{name}-{at}".encode(),
            partition=WHERE.partition,
            on_delivery=lambda error, _: errors.append(error) if error else begun.add(name),
        )
        producer.poll(0)
        await asyncio.sleep(0.05)
    assert await asyncio.to_thread(producer.flush, 60) == 0
    assert errors == []


def of_java(address: str) -> None:
    lines = "".join(f"java-{at}\n" for at in range(EACH))
    arguments = ("--bootstrap-server", address, "--topic", WHERE.topic, "--producer-property", "client.id=shop")
    patience = ("--message-send-max-retries", "1000000")  # the producer's own; the tool's is 3
    run_java("3.9.1", "kafka.tools.ConsoleProducer", *arguments, *patience, stdin=lines)
