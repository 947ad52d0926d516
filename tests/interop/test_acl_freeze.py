"""Apache Kafka 3.9 and 4.3 that are frozen by ACLs: over to the other one, and back, by the command line."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer

from broker.base.children import die_with_parent
from broker.client.acl_bindings import Acl, create_acls, delete_acls
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.client.without_acls import ALLOW_EVERYONE
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.vocabulary import AclOperation, AclPermission
from tests.broker.wire.strategies import plain
from tests.interop.locked import PASSWORD, USER, AuthorizingKafkaServer
from tests.interop.servers import ROOT, wait_until
from tests.interop.test_switchover import READ, RECORDS, Cli, carried_over, fill
from tests.mirror.harness import make_topic

TOPIC, GROUP = "flights", "analysts"
SITE = """
[sites.{site}]
bootstrap_servers = "{bootstrap}"
freeze_principals = ["{principal}"]
[sites.{site}.security]
protocol = "SASL_PLAINTEXT"
mechanism = "PLAIN"
username = "{user}"
password_file = "secret"
"""
LINK = """
[[links]]
name = "{source}-{target}"
source = "{source}"
target = "{target}"
topics = ["flights"]
groups = ["analysts"]
"""


@dataclass
class Stage:
    """East is Kafka 3.9, west is 4.3; each asks who comes. West lets everybody use what no ACL is about."""

    cli: Cli
    servers: dict[str, AuthorizingKafkaServer]

    def configure(self, user: str = USER, principal: str = "User:*") -> None:
        sites = "".join(
            SITE.format(site=site, bootstrap=server.at("WORDS"), user=user, principal=principal)
            for site, server in self.servers.items()
        )
        links = LINK.format(source="east", target="west") + LINK.format(source="west", target="east")
        (self.cli.folder / "farshore.toml").write_text(sites + links)

    def acls(self, site: str) -> set[tuple[object, ...]]:
        """All that there are, as the site tells a super user."""
        return asyncio.run(self._acls(site))

    async def _acls(self, site: str) -> set[tuple[object, ...]]:
        async with Cluster(Site(site, self.servers[site].bootstrap)) as cluster:
            answer = await (await cluster.any_connection()).request(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
        return {
            (found.resource_type, found.resource_name, found.pattern_type, *plain(acl).values())
            for found in answer.resources
            for acl in found.acls
        }

    async def allow(self, site: str) -> None:
        """As in any locked cluster: the shop writes, the reader reads; and somebody was denied to write before."""
        topic, group, cluster, literal = 2, 3, 4, 3
        wanted = [
            (topic, TOPIC, "User:shop", AclOperation.WRITE, AclPermission.ALLOW),
            (topic, TOPIC, "User:reader", AclOperation.READ, AclPermission.ALLOW),
            (group, GROUP, "User:reader", AclOperation.READ, AclPermission.ALLOW),
            (topic, TOPIC, "User:intern", AclOperation.WRITE, AclPermission.DENY),
            (topic, "orders", "User:*", AclOperation.WRITE, AclPermission.DENY),
            (topic, "*", "User:limited", AclOperation.READ, AclPermission.ALLOW),
            (topic, "*", "User:limited", AclOperation.DESCRIBE_CONFIGS, AclPermission.ALLOW),
            (group, "*", "User:limited", AclOperation.READ, AclPermission.ALLOW),
            (cluster, "kafka-cluster", "User:limited", AclOperation.DESCRIBE, AclPermission.ALLOW),
            (cluster, "kafka-cluster", "User:limited", AclOperation.DESCRIBE_CONFIGS, AclPermission.ALLOW),
        ]
        async with Cluster(Site(site, self.servers[site].bootstrap)) as own:
            creations = [AclCreation(kind, name, literal, who, "*", what, how) for kind, name, who, what, how in wanted]
            answer = await (await own.any_connection()).request(CreateAclsRequest(creations))
        assert not any(result.error_code for result in answer.results)

    def client(self, site: str, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers[site].at("WORDS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def next_value(self, site: str) -> int:
        """What a real consumer of the group reads next."""
        settings = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer({**self.client(site, "reader"), **settings})
        consumer.subscribe([TOPIC])
        try:
            message = consumer.poll(30)
            assert message is not None
            assert not message.error(), message.error()
            return int(message.value() or b"")
        finally:
            consumer.close()


@dataclass
class Shop:
    """A producer of its own principal, one record every 200 ms from RECORDS on."""

    producer: Producer
    acknowledged: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        number = RECORDS
        while not self.ending.wait(0.2):
            try:
                self.producer.produce(TOPIC, b"%d" % number, on_delivery=self._told)
            except KafkaException as error:  # it knows by the metadata
                self.refused.append(error.args[0].name())
            self.producer.poll(0)
            number += 1
        self.producer.flush(30)

    def _told(self, error: Any, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.refused.append(error.name())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("acls")
    (folder / "secret").write_text(PASSWORD)
    with ExitStack() as stack:
        versions = {"east": "3.9.1", "west": "4.3.0"}
        with ThreadPoolExecutor(2) as pool:
            made = {
                site: AuthorizingKafkaServer(version, folder / site, {ALLOW_EVERYONE: "true"} if site == "west" else {})
                for site, version in versions.items()
            }
            for server in made.values():
                stack.callback(server.stop)
            list(pool.map(AuthorizingKafkaServer.start, made.values()))
        stage = Stage(Cli(folder), made)
        stage.configure()
        asyncio.run(fill(made["east"].bootstrap, TOPIC, GROUP))
        for site in made:
            asyncio.run(stage.allow(site))
        yield stage


def mirroring(stage: Stage, stack: ExitStack) -> None:
    """Both links run, and have all."""
    log = stack.enter_context((stage.cli.folder / "mirror.log").open("wb"))
    argv = stage.cli.argv("mirror run")
    mirror = stack.enter_context(subprocess.Popen(argv, cwd=ROOT, stderr=log, preexec_fn=die_with_parent))
    stack.callback(mirror.wait, 60)
    stack.callback(mirror.terminate)


def writing(stage: Stage, site: str, stack: ExitStack) -> Shop:
    shop = Shop(
        Producer({**stage.client(site, "shop"), "client.id": "shop", "topic.metadata.refresh.interval.ms": 1_000})
    )
    thread = threading.Thread(target=shop.write)
    thread.start()
    stack.callback(thread.join, 60)
    stack.callback(shop.ending.set)
    return shop


def test_a_producer_is_stopped_the_consumers_go_on_and_back_again_it_writes(stage: Stage) -> None:
    before = {site: stage.acls(site) for site in stage.servers}
    with ExitStack() as stack:
        mirroring(stage, stack)
        wait_until(lambda: carried_over(stage.cli, GROUP, "east-west"), 90, "the group to be carried over")
        shop = writing(stage, "east", stack)
        wait_until(lambda: len(shop.acknowledged) > 3, 30, "the shop to write")
        result = stage.cli.json("switchover --link east-west --yes")
        assert (result["verified"], result["stranded"]) == (True, [])
        assert result["denied_principals"] == ["User:*"]
        wait_until(lambda: len(shop.refused) > 3, 30, "the shop to be refused")
        written = len(shop.acknowledged)
        assert set(shop.refused) == {"TOPIC_AUTHORIZATION_FAILED"}
        (at_west,) = {move["target_offset"] for move in result["moves"]}
        assert (result["moves"][0]["source_offset"], stage.next_value("west")) == (READ, READ), at_west
        made = stage.acls("east") - before["east"]
        marks = {str(acl[3]) for acl in made}
        assert marks == {"User:*", f"User:farshore-freeze/{result['operation_id']}/User:*"}

        wait_until(lambda: carried_over(stage.cli, GROUP, "west-east"), 90, "the link back to have all")
        time.sleep(1)
        assert len(shop.acknowledged) == written, "nobody but the mirror writes there"
        back = stage.cli.json("switchover --link west-east --yes")
        assert (back["verified"], back["stranded"]) == (True, [])
        assert stage.acls("east") == before["east"]
        assert stage.next_value("east") == READ
        wait_until(lambda: len(shop.acknowledged) > written + 3, 30, "the shop to write again")
        stage.cli.run("link resume --link east-west --yes")
    close_and_open_by_hand(stage)


def test_without_the_right_nothing_is_changed_and_who_lacks_it_is_said(stage: Stage) -> None:
    before = stage.acls("east")
    stage.configure("limited")
    try:
        refused = stage.cli.run("switchover --link east-west --yes", 3)
    finally:
        stage.configure()
    assert "farshore's user limited may not make ACLs at east" in refused.stderr
    assert "Alter on the cluster" in refused.stderr
    assert "freeze_hook" in refused.stderr
    assert stage.acls("east") == before


def test_the_first_acl_about_a_topic_is_not_a_freezes(stage: Stage) -> None:
    """It denied one principal to write, and took reading and writing from everybody else, too."""
    every = [Acl(2, "*", 3, "User:limited", "*", what, 3) for what in (3, AclOperation.DESCRIBE_CONFIGS)]
    first = Acl(2, "sho", 4, "User:*", "*", AclOperation.ALL, AclPermission.ALLOW)

    async def prepare() -> None:
        async with Cluster(Site("west", stage.servers["west"].bootstrap)) as west:
            assert await delete_acls(west, every) == {}  # by these there are some about any topic
            await make_topic(west, "shop")

    async def say_who_may(*, may: bool) -> None:
        async with Cluster(Site("west", stage.servers["west"].bootstrap)) as west:
            assert await (create_acls(west, [first]) if may else delete_acls(west, [first])) == {}

    async def leave_as_it_was() -> None:
        async with Cluster(Site("west", stage.servers["west"].bootstrap)) as west:
            assert await delete_topics(west, ["shop"]) == {}  # else everything is closed for whoever freezes west next
            assert await create_acls(west, every) == {}

    asyncio.run(prepare())
    stage.configure(principal="User:shop")
    try:
        before, freeze = stage.acls("west"), "site freeze --site west --topic shop"
        for how in ("--dry-run", "--yes"):
            refused = " ".join(stage.cli.run(f"{freeze} {how}", 3).stderr.split())
            assert "no ACL at west is about shop, and everybody may use what none is about there" in refused
            assert "(allow.everyone.if.no.acl.found is set, and whether to true is not shown)" in refused
            assert "a super user, as nobody else may now" in refused
        assert stage.acls("west") == before
        asyncio.run(say_who_may(may=True))
        stage.cli.run(f"{freeze} --yes")
        writer, other = (Producer(stage.client("west", user)) for user in ("shop", "reader"))
        assert [delivered(one, "shop") for one in (writer, other)] == ["TOPIC_AUTHORIZATION_FAILED", ""]
        assert (
            Consumer({**stage.client("west", "reader"), "group.id": GROUP}).list_topics("shop", 30).topics["shop"].error
            is None
        )
        stage.cli.run("site thaw --site west --topic shop --even-if-other-active --yes")
        asyncio.run(say_who_may(may=False))
        assert stage.acls("west") == before
    finally:
        stage.configure()
        asyncio.run(leave_as_it_was())


def delivered(producer: Producer, topic: str) -> str:
    """Why a record was not."""
    said: list[str] = []
    try:
        producer.produce(topic, b"1", on_delivery=lambda error, _: said.append("" if error is None else error.name()))
        producer.flush(30)
    except KafkaException as error:
        return str(error.args[0].name())
    return said[0]


def close_and_open_by_hand(stage: Stage) -> None:
    """As the last move left it; then as an operator does whose site came back from a failover."""
    shown = {row["site"]: row for row in stage.cli.json("site role")["items"]}
    assert [shown[site]["role"] for site in ("east", "west")] == ["active", "standby"]
    assert (shown["west"]["topics"], shown["west"]["takes_writes"]) == ([TOPIC], False)
    refused = stage.cli.run("site thaw --site west --yes", 3)
    assert "west is closed to flights, and east is active: both would take writes" in refused.stderr
    would_be = stage.cli.json("site thaw --site west --even-if-other-active --dry-run")
    closed = stage.acls("west")
    assert (would_be["role"], would_be["topics"]) == ("active", [])
    stage.cli.run("site thaw --site west --even-if-other-active --yes")
    opened = stage.acls("west")
    assert {acl[3] for acl in closed - opened} >= {"User:*"}
    assert "User:* may write no more, and fail, to flights" in stage.cli.run("site standby --site west", 3).stderr
    assert stage.cli.json("site standby --site west --topic flights --yes")["topics"] == [TOPIC]
    again = {acl[:3] + acl[4:] for acl in stage.acls("west")}, {acl[:3] + acl[4:] for acl in closed}
    assert again[0] == again[1]
    stage.cli.run("site thaw --site west --topic flights --even-if-other-active --yes")
    assert stage.acls("west") == opened
