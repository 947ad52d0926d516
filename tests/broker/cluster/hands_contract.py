"""What a hand removes from ZooKeeper while a broker runs. A test module subclasses this and gives the fixtures `store`,
not running, and `hand`, another session with the same ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from broker.cluster.metadata import Change, ChangeKind, ConfigResource, Configs
from broker.cluster.metadata_store import ControllerMoved
from broker.cluster.zookeeper.errors import NoNode, NotEmpty
from broker.cluster.zookeeper.session import ZooKeeper
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.broker.cluster.contract import WAIT_S, elected, next_change, registration, topic

REMOVED = (
    "/brokers", "/brokers/ids", "/brokers/topics", "/config", "/config/changes", "/config/brokers", "/admin",
    "/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification", "/controller_epoch",
    "/latest_producer_id_block", "/farshore", "/farshore/changes", "/farshore/deleted_topics",
)  # fmt: skip

LEFT_BELOW = (
    "/brokers/topics/t/note", "/brokers/topics/t/note/deep", "/brokers/topics/t/partitions/none",
    "/brokers/topics/t/partitions/0/note", "/brokers/topics/t/partitions/0/state/note", "/config/topics/t/note",
)  # fmt: skip


async def remove(hand: ZooKeeper, path: str) -> None:
    """With all that is under it, and what others make again meanwhile."""
    while True:
        try:
            for name in await hand.children(path):
                await remove(hand, f"{path}/{name}")
            await hand.delete(path)
        except NotEmpty:
            continue
        except NoNode:
            return
        return


@asynccontextmanager
async def running(store: ZooKeeperMetadataStore) -> AsyncIterator[None]:
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(store.run())
        yield
        keeping.cancel()


async def registered_after(store: ZooKeeperMetadataStore, epoch: int) -> None:
    while (found := (await store.brokers()).get(1)) is None or not epoch < found.epoch == store.broker_epoch:
        await asyncio.sleep(0.01)


class HandsContract:
    async def test_a_registration_that_is_removed_is_made_again_in_a_new_epoch(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper
    ) -> None:
        epoch = await store.register_broker(registration(1))
        async with running(store), store.watch(ChangeKind.BROKERS) as changes:
            for _ in range(2):
                await hand.delete("/brokers/ids/1")
                assert await next_change(changes) == Change(ChangeKind.BROKERS)
                await registered_after(store, epoch)
                epoch = store.broker_epoch
            assert store.alive_until > 0

    async def test_while_another_has_its_place_a_broker_leads_nothing(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper
    ) -> None:
        epoch = await store.register_broker(registration(1))
        await hand.delete("/brokers/ids/1")
        await hand.create("/brokers/ids/1", b"{}", ephemeral=True)
        async with running(store):
            while store.alive_until > 0:
                await asyncio.sleep(0.01)
            await hand.delete("/brokers/ids/1")
            await registered_after(store, epoch)
            while store.alive_until < 0:
                await asyncio.sleep(0.01)

    @pytest.mark.parametrize("path", REMOVED)
    async def test_what_a_cluster_always_has_is_there_again_and_no_number_comes_twice(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper, path: str
    ) -> None:
        epoch = await store.register_broker(registration(1))
        before = await elected(store)
        ids = await store.allocate_producer_ids(1, 10)
        resource = ConfigResource("brokers", "1")
        await store.set_configs(resource, Configs({"a": "1"}, -1))
        kinds = set(ChangeKind) - {ChangeKind.SESSION, ChangeKind.CONTROLLER}
        async with running(store), store.watch(*kinds) as changes:
            await remove(hand, path)
            after = await store.elect_controller(1, before.epoch)
            assert after is not None
            assert after.epoch > before.epoch
            with pytest.raises(ControllerMoved):
                await store.create_topic(before, topic("old"))
            made = await store.create_topic(after, topic("new"))
            assert (await store.topics())["new"] == made
            assert not set(ids) & set(await store.allocate_producer_ids(1, 10))
            await store.request_topic_deletion("other")
            assert await store.topic_deletions() == {"other"}
            await store.tell_log_dir_failed(1)
            assert await store.take_log_dir_failures(after) == {1}
            version = (await store.configs(resource)).version
            await store.set_configs(resource, Configs({"a": "2"}, version))
            wanted = {Change(ChangeKind.ASSIGNMENT, "new"), Change(ChangeKind.CONFIGS, resource.path)}
            while wanted:
                wanted.discard(await next_change(changes))
            await registered_after(store, epoch if path in ("/brokers", "/brokers/ids") else epoch - 1)

    async def test_a_deletion_takes_with_it_what_a_hand_left_below_the_topic(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper
    ) -> None:
        controller = await elected(store)
        made = await store.create_topic(controller, topic("t"))
        for path in LEFT_BELOW:
            await hand.create(path)
        await store.delete_topic(controller, made)
        assert await store.topics() == {}
        assert await hand.exists("/config/topics/t") is None

    @pytest.mark.parametrize("path", [path for path in REMOVED if not path.startswith(("/brokers", "/controller"))])
    async def test_a_topic_is_deleted_whatever_a_hand_removed(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper, path: str
    ) -> None:
        controller = await elected(store)
        made = await store.create_topic(controller, topic("t"))
        await remove(hand, path)
        await store.delete_topic(controller, made)
        assert await store.topics() == {}
        assert (await store.deleted_topics()).keys() == {made.topic_id}
        gone = replace((await store.deleted_topics())[made.topic_id], nodes=frozenset())
        await remove(hand, "/farshore/changes")
        await store.set_deleted_topics(controller, [gone])
        assert not await store.deleted_topics()

    async def test_of_two_topics_with_one_id_the_first_is_whole(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper
    ) -> None:
        """A hand copied a znode, to give a topic another name. What is deleted with the copy are no records."""
        controller = await elected(store)
        made = await store.create_topic(controller, topic("t"))
        data, _ = await hand.get("/brokers/topics/t")
        await hand.create("/brokers/topics/a", data)
        found = await store.topics()
        assert found["t"] == made
        assert (found["a"].partitions, found["a"].damage) == (
            (),
            "its topic id is that of topic t, which was made before it",
        )
        await store.delete_topic(controller, found["a"])
        assert await store.topics() == {"t": made}
        assert await store.deleted_topics() == {}

    async def test_a_topic_that_a_hand_put_back_is_deleted_again(
        self, store: ZooKeeperMetadataStore, hand: ZooKeeper
    ) -> None:
        controller = await elected(store)
        made = await store.create_topic(controller, topic("t"))
        data, _ = await hand.get("/brokers/topics/t")
        await store.delete_topic(controller, made)
        await hand.create("/brokers/topics/t", data)
        await store.delete_topic(controller, (await store.topics())["t"])
        assert await store.topics() == {}
        assert (await store.deleted_topics()).keys() == {made.topic_id}
