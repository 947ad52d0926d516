"""What is told of a cluster to who may not see all of it."""

from __future__ import annotations

from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.cluster_verification import verify_cluster
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, describe_each_topic, list_topics
from broker.wire.vocabulary import AclOperation, AclResource
from tests.broker.running import running_server
from tests.broker.server.test_authorizer import LOCKED, allow, client_of, create
from tests.broker.server.test_logins import PASSWORD, guarded


class QuickClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


async def test_topics_on_disks_that_one_may_not_describe_are_counted_and_are_no_finding(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)

    def site(user: str) -> Site:
        login = Sasl(Mechanism.PLAIN, user, Secret(file=tmp_path / "password"))
        return Site("east", server.address, security=Security(None, login))

    async with guarded(tmp_path, **LOCKED) as server:
        async with Cluster(site("reader"), clock=QuickClock()) as cluster:
            assert not await create_topics(cluster, [NewTopic(name) for name in ("seen", "one", "another")])
            whole = await verify_cluster(cluster)
        assert (whole.findings, whole.topics_passed_over) == ([], 0)
        async with client_of(server, "reader") as client:
            seen = [allow("seen", each) for each in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)]
            of_cluster = allow("kafka-cluster", AclOperation.DESCRIBE, AclResource.CLUSTER)
            assert set(await create(client, of_cluster, *seen)) == {0}
        async with Cluster(site("shop"), clock=QuickClock()) as cluster:
            assert (await list_topics(cluster)).keys() == {"seen"}
            told = await verify_cluster(cluster)
    assert (told.findings, told.topics_passed_over) == ([], 2)


async def test_no_topic_is_made_by_being_looked_for(tmp_path: Path) -> None:
    """Names on disks are asked for one by one, and some have no topic any more."""
    async with (
        running_server(tmp_path, auto_create_topics_enable=True) as server,
        Cluster(Site("east", server.address)) as cluster,
    ):
        assert await describe_each_topic(cluster, ["gone"]) == ({}, {})
        assert await list_topics(cluster) == {}
