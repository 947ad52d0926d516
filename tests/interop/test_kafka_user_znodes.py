"""Users in ZooKeeper: who logs in at Apache Kafka 3.9.1 logs in here, and the other way; so with quotas."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from broker.access.entities import path_of
from broker.access.known_entities import KnownEntities
from broker.access.known_users import KnownUsers
from broker.access.users import new_credentials, text_of
from broker.base.clock import SystemClock
from broker.client.security.settings import Mechanism
from broker.cluster.metadata import Change, ChangeKind
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.interop.servers import KafkaOnZooKeeper, ZooKeeperServer, run_java, wait_until
from tests.interop.test_clients_kcat import kcat
from tests.ports import free_port

TIMEOUT_MS = 6000
SHA = Mechanism.SCRAM_SHA_512
THEIRS, OURS = "kafka's clerk, =/+é", "our clerk, =/+*~"
SECRET = "canary-secret-6Mt"


class LockedKafka(KafkaOnZooKeeper):
    def __init__(self, folder: Path, zookeeper: str) -> None:
        super().__init__(folder, zookeeper)
        self.locked = f"127.0.0.1:{free_port()}"

    def properties(self) -> dict[str, str]:
        found = super().properties()
        listeners = f"{found['listeners']},SASL_PLAINTEXT://{self.locked}"
        return {
            **found,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "sasl.enabled.mechanisms": SHA,
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    def lets_in(self, user: str) -> bool:
        login = {"sasl.mechanism": SHA, "sasl.username": user, "sasl.password": SECRET}
        options = [word for key, value in login.items() for word in ("-X", f"{key}={value}")]
        try:
            kcat(self.locked, "-X", "security.protocol=SASL_PLAINTEXT", *options, "-L", "-m", "10")
        except AssertionError:
            return False
        return True


async def test_kafkas_users_are_ours_and_ours_are_kafkas(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    servers = f"{zookeeper.address}/users-{uuid.uuid4()}"

    async def connect() -> KazooZooKeeper:
        return await KazooZooKeeper.connect(servers, TIMEOUT_MS, SystemClock(), 20_000)

    await (await connect()).close()
    with LockedKafka(tmp_path / "kafka", servers) as kafka:

        def configs(*arguments: str) -> str:
            where = ("--bootstrap-server", kafka.bootstrap)
            return run_java("3.9.1", "kafka.admin.ConfigCommand", *where, *arguments)

        def alter(added: str, *entity: str) -> str:
            return configs("--alter", "--add-config", added, *entity)

        user = ("--entity-type", "users", "--entity-name", THEIRS)
        of_client = (*user, "--entity-type", "clients", "--entity-name", "app/é")
        alter(f"{SHA}=[password={SECRET}]", *user)
        alter("producer_byte_rate=1000", *user)
        alter("request_percentage=12.5", *of_client)
        alter("consumer_byte_rate=7", "--entity-type", "clients", "--entity-default")
        alter("connection_creation_rate=3", "--entity-type", "ips", "--entity-name", "10.1.2.3")
        store = await ZooKeeperMetadataStore.open(connect, SystemClock(), may_be_new=False)
        known, users = KnownEntities(store, SystemClock()), KnownUsers()
        known.listeners.append(users.take)
        await known.learn()
        assert users.of(THEIRS)[SHA].is_of(SHA, SECRET)
        assert set(known.values[path_of({"user": THEIRS})]) == {SHA, "producer_byte_rate"}
        rest = {path: values for path, values in known.values.items() if SHA not in values}
        assert rest == {
            path_of({"user": THEIRS, "client-id": "app/é"}): {"request_percentage": "12.5"},
            path_of({"client-id": None}): {"consumer_byte_rate": "7"},
            path_of({"ip": "10.1.2.3"}): {"connection_creation_rate": "3"},
        }
        async with store.watch(ChangeKind.CONFIGS) as changes:
            await asyncio.to_thread(configs, "--alter", "--delete-config", SHA, *user)
            async with asyncio.timeout(60):
                assert await anext(changes) == Change(ChangeKind.CONFIGS, path_of({"user": THEIRS}))
        await known.learn({path_of({"user": THEIRS})})
        assert users.of(THEIRS) == {}

        credential = text_of(new_credentials(SECRET)[SHA])
        await known.change(path_of({"user": OURS}), lambda _: {SHA: credential, "producer_byte_rate": "5"})
        await known.change(path_of({"user": OURS, "client-id": "c"}), lambda _: {"consumer_byte_rate": "6"})
        await store.close()
        await asyncio.to_thread(wait_until, lambda: kafka.lets_in(OURS), 90, "Kafka to go by what was made here")
        described = await asyncio.to_thread(configs, "--describe", "--entity-type", "users", "--entity-name", OURS)
        assert "producer_byte_rate=5.0" in described
        assert "iterations=8192" in described
        every = ("--describe", "--entity-type", "users", "--entity-type", "clients")
        assert "consumer_byte_rate=6.0" in await asyncio.to_thread(configs, *every)
