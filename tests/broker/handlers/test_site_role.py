"""A site's role: whose records are refused and what goes on, who may change it, who goes by it after what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
from broker.client.site import Site
from broker.client.site_role import (
    SiteHasNoRoles,
    SiteRoleChanged,
    set_site_role,
    site_standing,
    site_standings,
)
from broker.topics.site_role import site_standing as standing_of
from broker.wire.errors import ErrorCode
from broker.wire.messages import alter_configs
from broker.wire.messages.incremental_alter_configs import AlterableConfig
from broker.wire.messages.produce import ProduceResponse
from broker.wire.site_role import (
    SITE_EPOCH,
    SITE_REASON,
    SITE_ROLE,
    SITE_STANDBY,
    SITE_TOPICS,
    SiteRole,
    SiteStanding,
    is_own_client,
)
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.test_three_replicas import NODES, create
from tests.broker.handlers.test_broker_configs import ALL
from tests.broker.handlers.test_configs import BROKER, DELETE, SET, alter
from tests.broker.running import running_broker, running_server
from tests.broker.running_cluster import running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, connect, produce_request

ACTIVE, FROZEN, STANDBY = SiteRole
T = TopicPartition("t", 0)


def cluster_at(address: str) -> Cluster:
    return Cluster(Site("east", address), client_id="operator")


async def change(address: str, role: SiteRole, reason: str = "a test") -> SiteStanding:
    async with cluster_at(address) as cluster:
        return await set_site_role(cluster, role, reason, await site_standing(cluster))


def changes(role: str, epoch: int, reason: str = "by hand") -> list[AlterableConfig]:
    values = {SITE_ROLE: role, SITE_EPOCH: str(epoch), SITE_REASON: reason}
    return [AlterableConfig(name, SET, value) for name, value in values.items()]


async def code_as(client: WireClient, client_id: str | None) -> int:
    """What a produce request of this client is answered."""
    await client.send(produce_request("t", batch_of("x")), 9, client_id)  # type: ignore[arg-type]  # None is one, too
    _, response = await client.receive(0, 9)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("role", [FROZEN, STANDBY])
async def test_records_of_clients_wait_and_those_of_farshore_do_not(tmp_path: Path, role: SiteRole) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert await code_as(client, "shop") == 0
        assert await change(server.address, role) == SiteStanding(role, 1, "a test")
        for name in ("shop", "", None, "farshores", "Farshore-x"):
            assert await code_as(client, name) == ErrorCode.NOT_ENOUGH_REPLICAS, name
        for acks in (1, -1):
            assert (await client.produce("t", batch_of("x"), acks=acks)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert server.broker.require_partition("t", 0).log.log_end_offset == 1
        for name in ("farshore", "farshore-east-west"):
            assert await code_as(client, name) == 0
        await change(server.address, ACTIVE)
        assert await code_as(client, "shop") == 0


async def test_a_role_of_some_topics_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client, cluster_at(server.address) as own:
        for name in ("t", "tt", "orders-1"):
            await client.create_topic(name)
        frozen = await set_site_role(own, FROZEN, "a test", await site_standing(own), ["t", "orders-.*"])
        assert await site_standing(own) == frozen == SiteStanding(FROZEN, 1, "a test", ("t", "orders-.*"))
        codes = {name: (await client.produce(name, batch_of("x"))).error_code for name in ("t", "tt", "orders-1")}
        refused = ErrorCode.NOT_ENOUGH_REPLICAS
        assert codes == {"t": refused, "tt": 0, "orders-1": refused}
        await client.create_topic("orders-2")
        assert (await client.produce("orders-2", batch_of("x"))).error_code == refused, "a topic that was born since"
        for garbage in ("[", '["("]', '"t"', "[1]"):
            asked = [*changes("frozen", 2), AlterableConfig(SITE_TOPICS, SET, garbage)]
            assert await alter(client, *asked, name=ALL, kind=BROKER) == ErrorCode.INVALID_REQUEST
        await change(server.address, ACTIVE)
        assert await site_standing(own) == SiteStanding(ACTIVE, 2, "a test")
        assert await code_as(client, "shop") == 0


def test_topics_that_cannot_be_told_are_all() -> None:
    """As when a hand wrote them past the brokers."""
    known = {SITE_ROLE: "standby", SITE_EPOCH: "4", SITE_TOPICS: "flights"}
    assert standing_of(known) == SiteStanding(STANDBY, 4)
    assert standing_of({**known, SITE_ROLE: "asleep"}) == SiteStanding()


def test_what_is_closed_adds_up_and_what_is_opened_is_taken_away() -> None:
    active = SiteStanding()
    flights = active.closed(FROZEN, "a", ["flights"])
    assert flights == SiteStanding(FROZEN, 1, "a", ("flights",))
    both = flights.closed(STANDBY, "b", ["a.*", "flights"])
    assert both == SiteStanding(STANDBY, 2, "b", ("a.*", "flights"))
    assert both.opened("c", ["a.*"]) == SiteStanding(STANDBY, 3, "c", ("flights",))
    assert both.opened("c", ["a.*", "flights"]) == both.opened("c", []) == SiteStanding(ACTIVE, 3, "c")
    all_ = both.closed(STANDBY, "d", [])
    assert all_ == SiteStanding(STANDBY, 3, "d")
    assert all_.closed(FROZEN, "e", ["x"]).topics == (), "what refuses all goes on to"
    assert all_.opened("e", ["x"]) == SiteStanding(ACTIVE, 4, "e")
    assert [at.covers(["flights"]) for at in (active, flights, both, all_)] == [False, True, True, True]
    assert [at.covers([]) for at in (active, flights, both, all_)] == [False, False, False, True]
    assert [at.refuses("flights") for at in (active, flights, all_)] == [False, True, True]
    assert not flights.refuses("flights-2")


def test_what_was_closed_for_good_is_not_opened_with_what_was_frozen() -> None:
    flights = SiteStanding().closed(STANDBY, "a move", ["flights"])
    both = flights.closed(FROZEN, "repairs", ["hotels"])
    assert both == SiteStanding(FROZEN, 2, "repairs", ("flights", "hotels"), ("flights",))
    assert [both.refuses(topic) for topic in ("flights", "hotels", "cars")] == [True, True, False]
    assert SiteStanding.of(both.configs()) == both
    assert both.opened("b", ["hotels"]) == SiteStanding(STANDBY, 3, "b", ("flights",))
    assert both.opened("b", ["flights"]) == SiteStanding(FROZEN, 3, "b", ("hotels",))
    assert both.closed(FROZEN, "b", ["flights"]).standby == ("flights",), "it stays closed for good"
    assert both.closed(STANDBY, "b", ["hotels"]) == SiteStanding(STANDBY, 3, "b", ("flights", "hotels"))
    every = flights.closed(FROZEN, "all", [])
    assert every == SiteStanding(FROZEN, 2, "all", (), ("flights",))
    assert every.opened("b", ["hotels"]) == SiteStanding(STANDBY, 3, "b", ("flights",))
    assert every.opened("b", ["flights"]) == every.opened("b", []) == SiteStanding(ACTIVE, 3, "b")
    all_ = SiteStanding().closed(STANDBY, "a", [])
    assert all_.closed(FROZEN, "b", []) == all_.closed(FROZEN, "b", ["hotels"]) == SiteStanding(STANDBY, 2, "b")
    assert [at.closed_for_good for at in (SiteStanding(), flights, both, every, all_)] == [
        (),
        ("flights",),
        ("flights",),
        ("flights",),
        (".*",),
    ]


@given(st.lists(st.tuples(st.sampled_from((FROZEN, STANDBY, ACTIVE)), st.sampled_from("abc")), max_size=8))
def test_each_expression_is_closed_and_opened_by_itself(changes_: list[tuple[SiteRole, str]]) -> None:
    now, expected = SiteStanding(), dict[str, SiteRole]()
    for role, topic in changes_:
        if role is ACTIVE:
            now = now.opened("", [topic]) if topic in now.topics else now
            expected.pop(topic, None)
        else:
            now = now.closed(role, "", [topic])
            expected[topic] = STANDBY if STANDBY in (role, expected.get(topic)) else FROZEN
    assert {topic for topic in "abc" if now.refuses(topic)} == expected.keys()
    assert set(now.closed_for_good) == {topic for topic, role in expected.items() if role is STANDBY}
    assert SiteStanding.of(now.configs()) == now


def test_what_an_older_version_changed_counts_as_it_wrote_it() -> None:
    """It leaves the config standing that it does not know."""
    known = SiteStanding(FROZEN, 2, "a", ("flights", "hotels"), ("flights",)).configs()
    thawed = {**known, SITE_ROLE: "active", SITE_TOPICS: ""}
    assert SiteStanding.of(thawed).closed_for_good == ()
    assert SiteStanding.of({**thawed, SITE_ROLE: "frozen", SITE_TOPICS: '["hotels"]'}).standby == ()
    assert standing_of({**known, SITE_STANDBY: "x"}) == SiteStanding(FROZEN, 2, "a", ("flights", "hotels"))
    assert standing_of({**known, SITE_TOPICS: "x"}) == SiteStanding(FROZEN, 2, "a", (), ("flights",))
    assert standing_of({**known, SITE_STANDBY: "x", SITE_TOPICS: "x"}) == SiteStanding(FROZEN, 2, "a")


def test_whose_name_begins_alike_is_not_farshore() -> None:
    assert [is_own_client(name) for name in ("farshore", "farshore-x", "farshorex", "x-farshore", "", None)] == [
        True,
        True,
        *[False] * 4,
    ]


async def test_what_was_begun_ends_and_what_is_not_a_record_goes_on(tmp_path: Path) -> None:
    """A transaction that has records in a partition goes on there, and ends; a later one waits; groups commit."""
    async with running_server(tmp_path) as server, connect(server.address) as client, cluster_at(server.address) as own:
        await client.create_topic("t", 2)
        producer = await init_producer_id(own, "shop")

        def batch(sequence: int) -> bytearray:
            return batch_of(
                "x",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )

        async def code(sequence: int, partition: int) -> int:
            answer = await client.produce("t", batch(sequence), partition=partition, transactional_id="shop")
            return answer.error_code

        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert await add_partitions_to_txn(own, "shop", producer, partitions) == {}
        assert await code(0, 0) == 0
        await change(server.address, FROZEN)
        assert await code(1, 0) == 0, "its other records are there"
        assert await code(0, 1) == ErrorCode.NOT_ENOUGH_REPLICAS, "it has nothing there yet"
        await end_txn(own, "shop", producer, commit=True)
        log = server.broker.require_partition("t", 0).log
        await until(lambda: log.log_end_offset == 3 and log.last_stable_offset == 3)
        assert await add_partitions_to_txn(own, "shop", producer, partitions) == {}
        assert await code(2, 0) == ErrorCode.NOT_ENOUGH_REPLICAS, "a transaction of its own"
        await commit_offsets(own, "readers", {T: CommittedOffset(1, "")})
        assert {at: found.offset for at, found in (await committed_offsets(own, "readers")).items()} == {T: 1}
        await change(server.address, ACTIVE)
        assert await code(2, 0) == 0
        await end_txn(own, "shop", producer, commit=True)


async def test_of_two_that_change_it_one_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, cluster_at(address) as one, cluster_at(address) as other:
        known = await site_standing(one)
        assert known == SiteStanding()
        ended = await asyncio.gather(
            set_site_role(one, FROZEN, "one", known),
            set_site_role(other, STANDBY, "other", known),
            return_exceptions=True,
        )
        assert {type(each) for each in ended} == {SiteStanding, SiteRoleChanged}
        (standing,) = [each for each in ended if isinstance(each, SiteStanding)]
        assert await site_standing(one) == standing
        assert await set_site_role(one, standing.role, standing.reason, known) == standing, (
            "said again, as after a loss"
        )
        with pytest.raises(SiteRoleChanged, match="somebody else"):
            await set_site_role(one, ACTIVE, "late", known)


async def test_it_changes_as_one_with_the_next_epoch_and_is_the_sites(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        refused, bad, request = ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
        for code, name, asked in (
            (0, ALL, changes("frozen", 1)),
            (0, ALL, changes("frozen", 1)),
            (refused, ALL, changes("active", 1)),
            (refused, ALL, changes("active", 3)),
            (refused, ALL, [AlterableConfig(SITE_ROLE, SET, "active")]),
            (refused, ALL, [AlterableConfig(SITE_ROLE, DELETE, None)]),
            (refused, ALL, [AlterableConfig(SITE_EPOCH, DELETE, None)]),
            (refused, ALL, [AlterableConfig(SITE_REASON, SET, "another")]),
            (bad, ALL, changes("asleep", 2)),
            (bad, ALL, changes("active", 2, "x" * 201)),
            (request, "1", changes("active", 2)),
            (0, ALL, [AlterableConfig("log.retention.ms", SET, "5")]),
        ):
            for check in (True, False):
                assert await alter(client, *asked, name=name, kind=BROKER, check=check) == code, (name, asked, check)
        one = [alter_configs.AlterableConfig("log.roll.ms", "6")]
        old = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(BROKER, ALL, one)])
        answer = await client.ask(old, 2, alter_configs.AlterConfigsResponse)
        assert answer.responses[0].error_code == 0
        assert server.broker.broker_configs.site == SiteStanding(FROZEN, 1, "by hand"), "who did not name it keeps it"
        assert "log.retention.ms" not in server.broker.broker_configs.default


async def test_a_restart_keeps_it(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        await change(server.address, STANDBY)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert await code_as(client, "shop") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await change(server.address, ACTIVE)).epoch == 2
        assert await code_as(client, "shop") == 0


async def test_every_broker_has_said_so_when_it_is_done_and_who_comes_later_goes_by_it(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t")
            leader = await cluster.led("t")
            assert await code_as(clients[leader], "shop") == 0
            other = next(node for node in NODES if node != leader)
            frozen = await change(cluster.servers[other].address, FROZEN)
            for node in NODES:
                assert cluster.broker(node).broker_configs.site == frozen
            async with cluster_at(cluster.servers[leader].address) as own:
                assert await site_standings(own) == dict.fromkeys(NODES, frozen)
            assert await code_as(clients[leader], "shop") == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.kill(leader)
        successor = await cluster.led("t")
        async with cluster.clients() as clients:
            assert await code_as(clients[successor], "shop") == ErrorCode.NOT_ENOUGH_REPLICAS
        thawed = await change(cluster.servers[successor].address, ACTIVE)
        await cluster.start(leader)
        assert cluster.broker(leader).broker_configs.site == thawed, "from the moment at which it serves"


async def test_a_site_of_which_nobody_was_there_starts_frozen_where_it_is_to(tmp_path: Path) -> None:
    for epoch in (1, 3):
        async with running_server(tmp_path, site_start_frozen=True) as server, connect(server.address) as client:
            assert server.broker.broker_configs.site.epoch == epoch
            assert await client.try_create_topic("t") in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
            assert await code_as(client, "shop") == ErrorCode.NOT_ENOUGH_REPLICAS
            assert await code_as(client, "farshore") == 0
            await change(server.address, ACTIVE)
            assert await code_as(client, "shop") == 0


async def test_a_broker_that_joins_others_leaves_the_role_as_it_is(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, site_start_frozen=True) as cluster:
        standings = [cluster.broker(node).broker_configs.site for node in NODES]
        assert {(at.role, at.epoch) for at in standings} == {(FROZEN, 1)}, "all started in the same moment"
        thawed = await change(cluster.servers[1].address, ACTIVE)
        await cluster.stop(2)
        await cluster.start(2)
        assert cluster.broker(2).broker_configs.site == thawed
        await cluster.kill_all()
        await cluster.start(*NODES)
        assert {cluster.broker(node).broker_configs.site.epoch for node in NODES} == {3}


async def test_a_broker_takes_nothing_before_it_has_read_the_role_in_its_new_registration(tmp_path: Path) -> None:
    """While its registration was gone others were told of the role, and it was not asked."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        configs = server.broker.broker_configs
        configs._learnt_in -= 1  # as after a registration that nothing told of
        assert await code_as(client, "shop") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await code_as(client, "farshore") == 0

        async def is_taken() -> bool:
            return await code_as(client, "shop") == 0

        await until(is_taken)


async def test_a_cluster_of_other_brokers_has_no_roles() -> None:
    with pytest.raises(SiteHasNoRoles, match="east is not a site of farshore's own"):
        await set_site_role(cluster_at("127.0.0.1:1"), FROZEN, "a test", None)
