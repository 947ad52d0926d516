"""ACLs in ZooKeeper: those that Apache Kafka 3.9.1 makes are read here, and those made here hold there."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from broker.access.acls import AclBinding, ResourcePattern
from broker.base.clock import SystemClock
from broker.cluster.metadata import Change, ChangeKind
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from tests.interop.servers import KafkaOnZooKeeper, ZooKeeperServer, run_java, wait_until

TIMEOUT_MS = 6000
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
FLIGHTS = ResourcePattern(AclResource.TOPIC, "flights")
READERS = ResourcePattern(AclResource.GROUP, "read-", AclPattern.PREFIXED)
ID = ResourcePattern(AclResource.TRANSACTIONAL_ID, "tx:1")


class AuthorizingKafka(KafkaOnZooKeeper):
    def properties(self) -> dict[str, str]:
        authorizer = "kafka.security.authorizer.AclAuthorizer"
        return {**super().properties(), "authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}


async def test_kafkas_acls_are_ours_and_ours_are_kafkas(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    servers = f"{zookeeper.address}/acls-{uuid.uuid4()}"

    async def connect() -> KazooZooKeeper:
        return await KazooZooKeeper.connect(servers, TIMEOUT_MS, SystemClock(), 20_000)

    await (await connect()).close()
    with AuthorizingKafka(tmp_path / "kafka", servers) as kafka:

        def acls(*arguments: str) -> str:
            return run_java("3.9.1", "kafka.admin.AclCommand", "--bootstrap-server", kafka.bootstrap, *arguments)

        shop = ("--add", "--allow-principal", "User:shop", "--allow-host", "10.0.0.1")
        acls(*shop, "--operation", "Read", "--operation", "AlterConfigs", "--topic", "flights")
        acls("--add", "--deny-principal", "User:*", "--operation", "All", "--transactional-id", "tx:1")
        store = await ZooKeeperMetadataStore.open(connect, SystemClock(), may_be_new=False)
        async with store.watch(ChangeKind.ACLS) as changes:
            named = ("--group", "read-", "--resource-pattern-type", "prefixed")
            await asyncio.to_thread(acls, *shop, "--operation", "Describe", *named)
            async with asyncio.timeout(60):
                assert await anext(changes) == Change(ChangeKind.ACLS, READERS.text)
        found = await store.acls()
        who = "User:shop", "10.0.0.1"
        assert {pattern: known.bindings for pattern, known in found.items()} == {
            FLIGHTS: {
                AclBinding(*FLIGHTS, *who, AclOperation.READ, ALLOW),
                AclBinding(*FLIGHTS, *who, AclOperation.ALTER_CONFIGS, ALLOW),
            },
            READERS: {AclBinding(*READERS, *who, AclOperation.DESCRIBE, ALLOW)},
            ID: {AclBinding(*ID, "User:*", "*", AclOperation.ALL, DENY)},
        }

        cluster = ResourcePattern(AclResource.CLUSTER, "kafka-cluster")
        ours = {
            FLIGHTS: found[FLIGHTS]._replace(bindings=frozenset({AclBinding(*FLIGHTS, "User:me", "*", 12, ALLOW)})),
            READERS: found[READERS]._replace(bindings=frozenset()),
            cluster: found[ID]._replace(version=-1, bindings=frozenset({AclBinding(*cluster, "User:x", "*", 9, DENY)})),
        }
        assert await store.set_acls(ours) == frozenset()
        await store.close()

        def holds() -> bool:
            listed = acls("--list")
            ours_hold = "principal=User:me" in listed and "operation=IDEMPOTENT_WRITE" in listed
            return ours_hold and "operation=CLUSTER_ACTION" in listed and "User:shop" not in listed

        await asyncio.to_thread(wait_until, holds, 90, "Kafka to go by what was made here")
