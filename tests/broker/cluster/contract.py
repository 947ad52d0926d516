"""What every MetadataStore must do. An implementation's test module subclasses this and gives the fixture `open`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from broker.access.acls import AclBinding, ResourcePattern
from broker.cluster.metadata import (
    DEFAULT_ENTITY,
    NO_LEADER,
    SECRET_BYTES,
    UNWRITTEN,
    BrokerRegistration,
    Change,
    ChangeKind,
    ConfigResource,
    Configs,
    Controller,
    Endpoint,
    PartitionState,
    PatternAcls,
    TopicState,
)
from broker.cluster.metadata_store import ControllerMoved, MetadataConflict, MetadataStore
from broker.wire.vocabulary import CLUSTER_NAME, TopicPartition

Open = Callable[[], Awaitable[MetadataStore]]
"""The store of one cluster; called again, the broker was restarted in between."""

LED_BY_ONE = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
NOT_ELECTED = PartitionState(leader=NO_LEADER, leader_epoch=-1, replicas=(1,), isr=())
WAIT_S = 60


def topic(name: str, partitions: int = 2, **configs: str) -> TopicState:
    return TopicState(name, uuid.uuid4(), (LED_BY_ONE,) * partitions, configs)


def registration(node_id: int, rack: str | None = None) -> BrokerRegistration:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092), Endpoint("INTERNAL", "::1", 9093, "SSL"))
    return BrokerRegistration(node_id, endpoints, rack)


async def elected(store: MetadataStore, node_id: int = 1) -> Controller:
    controller = await store.elect_controller(node_id)
    assert controller is not None
    return controller


async def next_change(changes: AsyncIterator[Change]) -> Change:
    async with asyncio.timeout(WAIT_S):
        return await anext(changes)


class MetadataStoreContract:
    async def test_what_was_made_is_there_after_opening_again(self, open: Open) -> None:
        store = await open()
        made = await store.create_topic(await elected(store), topic("flights", retention="x"))
        again = await open()
        assert await again.topics() == {"flights": made} == await again.topics(["flights", "none"])
        assert await again.topics([]) == {}
        assert again.cluster_id == store.cluster_id
        assert made.configs == {"retention": "x"}
        assert [state.version for state in made.partitions] == [0, 0]

    async def test_the_cluster_has_one_secret_in_all_lives_of_its_brokers(self, open: Open) -> None:
        store = await open()
        secret = await store.secret()
        assert len(secret) == SECRET_BYTES
        assert await store.secret() == await (await open()).secret() == secret

    async def test_a_name_is_given_once(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        first = await store.create_topic(controller, topic("flights"))
        with pytest.raises(MetadataConflict):
            await store.create_topic(controller, topic("flights"))
        assert (await store.topics())["flights"] == first

    async def test_an_assignment_counts_only_on_the_version_that_was_read(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        read = await store.create_topic(controller, topic("flights"))
        moving = replace(read.partitions[0], replicas=(1, 2), adding_replicas=(2,), removing_replicas=(1,))
        wanted = replace(read, partitions=(moving, *read.partitions[1:]))
        changed = await store.set_assignment(controller, wanted)
        assert changed == replace(wanted, version=changed.version)
        assert changed.version > read.version
        with pytest.raises(MetadataConflict):
            await store.set_assignment(controller, wanted)
        with pytest.raises(MetadataConflict):
            await store.delete_topic(controller, read)
        assert (await store.topics())["flights"] == changed == (await (await open()).topics())["flights"]

    async def test_partitions_are_added_with_a_leader_or_wait_for_one(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        read = await store.create_topic(controller, topic("flights", 1))
        grown = await store.set_assignment(controller, replace(read, partitions=(*read.partitions, LED_BY_ONE)))
        assert grown.partitions[1] == replace(LED_BY_ONE, version=0)
        waiting = await store.set_assignment(controller, replace(grown, partitions=(*grown.partitions, NOT_ELECTED)))
        assert waiting.partitions[2] == NOT_ELECTED
        store = await open()
        controller = await elected(store)
        assert (await store.topics())["flights"] == waiting
        where = TopicPartition("flights", 2)
        done = await store.write_partition_states(controller, {where: replace(LED_BY_ONE, version=UNWRITTEN)})
        assert done.states == {where: replace(LED_BY_ONE, version=0)}
        assert (await store.topics())["flights"].partitions[2] == replace(LED_BY_ONE, version=0)

    async def test_partition_states_change_by_their_own_versions(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        made = await store.create_topic(controller, topic("flights", 250))
        every = {TopicPartition("flights", i): state for i, state in enumerate(made.partitions)}
        stale = TopicPartition("flights", 101)
        first = await store.write_partition_states(controller, {stale: replace(every[stale], leader_epoch=7)})
        assert first.states[stale].version == 1
        gone = {TopicPartition("flights", 250): every[stale], TopicPartition("none", 0): every[stale]}
        wanted = {
            where: replace(state, leader=2, leader_epoch=9, isr=(2, 1), controller_epoch=3, recovering=True)
            for where, state in (every | gone).items()
        }
        written = await store.write_partition_states(controller, wanted)
        assert written.refused == {stale, *gone}
        assert len(written.states) == 249
        for where, state in written.states.items():
            assert state == replace(wanted[where], version=1)
        store = await open()
        read = (await store.topics())["flights"].partitions
        assert read[stale.partition] == first.states[stale]
        assert read[0] == written.states[TopicPartition("flights", 0)]
        fresh = await store.partition_states(wanted)
        assert fresh.refused == gone.keys()
        assert fresh.states == {**written.states, stale: first.states[stale]}

    async def test_leaders_write_their_isr_and_the_controller_is_told(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        made = await store.create_topic(controller, topic("flights"))
        async with store.watch(ChangeKind.ISR) as changes:
            where = TopicPartition("flights", 1)
            shrunk = {where: replace(made.partitions[1], isr=())}
            written = await store.write_isr(shrunk)
            assert written.states == {where: replace(shrunk[where], version=1)}
            assert await next_change(changes) == Change(ChangeKind.ISR)
            assert (await store.write_isr(shrunk)).refused == {where}
            assert await store.take_isr_changes(controller) == {where}
            assert await store.take_isr_changes(controller) == set()
        assert (await store.topics())["flights"].partitions == (made.partitions[0], written.states[where])

    async def test_the_controller_is_told_at_whom_a_disk_failed(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        async with store.watch(ChangeKind.LOG_DIR_FAILURES) as changes:
            for node in (2, 3, 2):
                await store.tell_log_dir_failed(node)
            assert await next_change(changes) == Change(ChangeKind.LOG_DIR_FAILURES)
            assert await store.take_log_dir_failures(controller) == {2, 3}
            assert await store.take_log_dir_failures(controller) == set()

    async def test_a_topic_recreated_is_not_the_old_one(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        old = await store.create_topic(controller, topic("flights", retention="x"))
        await store.delete_topic(controller, old)
        assert await store.topics() == {}
        with pytest.raises(MetadataConflict):
            await store.delete_topic(controller, old)
        with pytest.raises(MetadataConflict):
            await store.set_assignment(controller, old)
        new = await store.create_topic(controller, topic("flights"))
        assert await (await open()).topics() == {"flights": new}
        assert new.configs == {}

    async def test_a_controller_that_was_followed_writes_nothing(self, open: Open) -> None:
        store = await open()
        old = await elected(store)
        made = await store.create_topic(old, topic("flights"))
        assert await store.elect_controller(1) == old, "it is the controller already"
        await store.resign_controller(old)
        assert await store.controller() is None
        new = await elected(store)
        assert new.epoch > old.epoch
        assert await store.controller() == 1
        await store.resign_controller(old)
        assert await store.controller() == 1, "the new one did not resign"
        states = {TopicPartition("flights", 0): made.partitions[0]}
        for refused in (
            store.create_topic(old, topic("other")),
            store.set_assignment(old, made),
            store.delete_topic(old, made),
            store.write_partition_states(old, states),
            store.set_reassignments(old, {TopicPartition("flights", 0): (2,)}),
        ):
            with pytest.raises(ControllerMoved):
                await refused
        assert await store.topics() == {"flights": made}
        assert await store.reassignments() == {}
        await store.delete_topic(new, made)

    async def test_controller_epochs_rise_over_restarts(self, open: Open) -> None:
        epochs = [(await elected(await open())).epoch for _ in range(3)]
        assert epochs == sorted(set(epochs))
        assert await (await open()).controller_epoch() == epochs[-1], "also by one who was never the controller"

    async def test_configs_change_by_their_version_and_are_told(self, open: Open) -> None:
        store = await open()
        await store.create_topic(await elected(store), topic("flights"))
        async with store.watch(ChangeKind.CONFIGS) as changes:
            for resource in (
                ConfigResource("topics", "flights"),
                ConfigResource("brokers", "1"),
                ConfigResource("brokers", DEFAULT_ENTITY),
            ):
                read = await store.configs(resource)
                assert read.values == {}
                set_once = await store.set_configs(resource, Configs({"retention.ms": "1"}, read.version))
                assert set_once == Configs({"retention.ms": "1"}, read.version + 1)
                assert await next_change(changes) == Change(ChangeKind.CONFIGS, resource.path)
                with pytest.raises(MetadataConflict):
                    await store.set_configs(resource, Configs({"retention.ms": "2"}, read.version))
                assert await store.configs(resource) == set_once
        store = await open()
        assert (await store.configs(resource)).values == {"retention.ms": "1"}
        assert (await store.topics())["flights"].configs == {"retention.ms": "1"}
        with pytest.raises(MetadataConflict):
            await store.set_configs(ConfigResource("topics", "none"), Configs({}, UNWRITTEN))

    async def test_what_is_set_on_users_and_clients_is_listed_and_told(self, open: Open) -> None:
        store = await open()
        paths = {
            "users": ["a%2Fb", DEFAULT_ENTITY, "u/clients/c"],
            "clients": ["c"],
            "ips": ["::1".replace(":", "%3A")],
        }
        async with store.watch(ChangeKind.CONFIGS) as changes:
            for kind, names in paths.items():
                assert list(await store.config_names(kind)) == []
                for name in names:
                    resource = ConfigResource(kind, name)
                    await store.set_configs(resource, Configs({"x": name}, UNWRITTEN))
                    assert await next_change(changes) == Change(ChangeKind.CONFIGS, resource.path)
                    with pytest.raises(MetadataConflict):
                        await store.set_configs(resource, Configs({"x": "y"}, UNWRITTEN))
        await store.set_configs(
            ConfigResource("users", "u"),
            Configs({"x": "u"}, (await store.configs(ConfigResource("users", "u"))).version),
        )
        store = await open()
        for kind, names in {**paths, "users": [*paths["users"], "u"]}.items():
            assert set(await store.config_names(kind)) == set(names)
            for name in names:
                assert (await store.configs(ConfigResource(kind, name))).values == {"x": name}

    async def test_broker_epochs_rise_over_restarts(self, open: Open) -> None:
        epochs = [await (await open()).register_broker(registration(1)) for _ in range(2)]
        store = await open()
        epochs.append(await store.register_broker(registration(2, "rack")))
        assert epochs == sorted(set(epochs))
        found = (await store.brokers())[2]
        assert (found.registration, found.epoch) == (registration(2, "rack"), epochs[-1])
        assert store.alive_until > 0

    async def test_producer_ids_are_never_given_twice(self, open: Open) -> None:
        given: list[int] = []
        for count in (1, 1000, 3):
            store = await open()
            given += await store.allocate_producer_ids(1, count)
            given += await store.allocate_producer_ids(1, count)
        assert len(given) == 2008
        assert given == sorted(set(given)), "they rise"

    async def test_requests_to_the_controller_wait_for_it(self, open: Open) -> None:
        store = await open()
        controller = await elected(store)
        where = {TopicPartition("flights", 0), TopicPartition("flights", 1)}
        await store.request_topic_deletion("flights")
        await store.request_topic_deletion("flights")
        await store.request_preferred_elections(where)
        await store.set_reassignments(controller, dict.fromkeys(where, (2, 1)))
        with pytest.raises(MetadataConflict):
            await store.request_preferred_elections(where)
        store = await open()
        controller = await elected(store)
        assert await store.topic_deletions() == {"flights"}
        assert await store.preferred_elections() == where
        assert await store.reassignments() == dict.fromkeys(where, (2, 1))
        made = await store.create_topic(controller, topic("flights"))
        assert await store.topic_deletions() == set(), "the wish was for an earlier topic of that name"
        await store.request_topic_deletion("flights")
        await store.delete_topic(controller, made)
        await store.end_preferred_elections(controller)
        await store.set_reassignments(controller, {})
        assert await store.topic_deletions() == set()
        assert await store.preferred_elections() == set()
        assert await store.reassignments() == {}

    async def test_every_kind_of_change_is_told(self, open: Open) -> None:
        store = await open()
        seen: set[Change] = set()

        async def told(changes: AsyncIterator[Change], change: Change) -> None:
            while change not in seen:
                seen.add(await next_change(changes))

        async with store.watch(*ChangeKind) as changes:
            await store.register_broker(registration(1))
            await told(changes, Change(ChangeKind.BROKERS))
            controller = await elected(store)
            await told(changes, Change(ChangeKind.CONTROLLER))
            made = await store.create_topic(controller, topic("flights"))
            await told(changes, Change(ChangeKind.TOPICS))
            await told(changes, Change(ChangeKind.ASSIGNMENT, "flights"))
            seen.clear()
            await store.set_assignment(controller, replace(made, partitions=(*made.partitions, LED_BY_ONE)))
            await told(changes, Change(ChangeKind.ASSIGNMENT, "flights"))
            await store.request_topic_deletion("flights")
            await told(changes, Change(ChangeKind.TOPIC_DELETIONS))
            await store.set_reassignments(controller, {TopicPartition("flights", 0): (2,)})
            await told(changes, Change(ChangeKind.REASSIGNMENTS))
            await store.request_preferred_elections([TopicPartition("flights", 0)])
            await told(changes, Change(ChangeKind.PREFERRED_ELECTIONS))
            seen.clear()
            await store.resign_controller(controller)
            await told(changes, Change(ChangeKind.CONTROLLER))

    async def test_acls_are_those_of_their_pattern(self, open: Open) -> None:
        store = await open()
        flights, all_orders = ResourcePattern(2, "flights"), ResourcePattern(2, "orders-", 4)
        read, write = (AclBinding(*flights, "User:shop", "*", operation, 3) for operation in (3, 4))
        denied = AclBinding(*all_orders, 'User:CN="a/b",O=é', "10.0.0.1", 2, 2)
        assert await store.acls() == {}
        assert await store.acls([flights]) == {flights: PatternAcls()}
        of = {flights: PatternAcls(frozenset({read, write})), all_orders: PatternAcls(frozenset({denied}))}
        assert await store.set_acls(of) == frozenset()
        store = await open()
        found = await store.acls()
        assert {pattern: acls.bindings for pattern, acls in found.items()} == {
            flights: {read, write},
            all_orders: {denied},
        }
        assert await store.acls([all_orders]) == {all_orders: found[all_orders]}
        less = {flights: found[flights]._replace(bindings=frozenset({read}))}
        assert await store.set_acls(less) == frozenset()
        assert await store.set_acls(less) == {flights}, "others changed it since"
        assert await store.set_acls({flights: PatternAcls(frozenset({write}))}) == {flights}, "it is there"
        assert (await store.acls([flights]))[flights].bindings == {read}
        gone = {pattern: acls._replace(bindings=frozenset()) for pattern, acls in (await store.acls()).items()}
        assert await store.set_acls(gone) == frozenset()
        assert await store.acls() == {}

    async def test_acls_that_change_are_told_by_their_pattern(self, open: Open) -> None:
        store = await open()
        patterns = [ResourcePattern(2, "flights"), ResourcePattern(5, "a:b", 4), ResourcePattern(4, CLUSTER_NAME)]
        async with store.watch(ChangeKind.ACLS) as changes:
            for pattern in patterns:
                one = AclBinding(*pattern, "User:shop", "*", 2, 3)
                await store.set_acls({pattern: PatternAcls(frozenset({one}))})
                while (change := await next_change(changes)) != Change(ChangeKind.ACLS, pattern.text):
                    assert change.kind is ChangeKind.ACLS
            known = (await store.acls())[patterns[0]]
            await store.set_acls({patterns[0]: known._replace(bindings=frozenset())})
            assert await next_change(changes) == Change(ChangeKind.ACLS, patterns[0].text)
