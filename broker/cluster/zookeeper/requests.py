"""Configs, producer ids, and what is asked of the controller by znodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from broker.cluster.metadata import UNWRITTEN, ConfigResource, Configs, Controller
from broker.cluster.metadata_store import MetadataConflict, MetadataUnreadable, NameUnstorable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import BadVersion, NodeExists, NoNode
from broker.cluster.zookeeper.session import Check, Create, Delete, Operation, SetData, ZooKeeper
from broker.cluster.zookeeper.topics import fenced, read_each
from broker.wire.vocabulary import TopicPartition

CHANGE_KEPT_MS: Final = 15 * 60 * 1000
"""For so long a broker that was cut off may find notifications of what changed; Kafka's value."""

PRODUCER_IDS_PER_MS: Final = 1000
"""More than a cluster ever takes: they are taken a thousand at a time, by brokers that start or have used up theirs."""

log = logging.getLogger(__name__)


async def read_configs(zk: ZooKeeper, resource: ConfigResource) -> Configs:
    path = layout.config(resource.path)
    try:
        data, stat = await zk.get(path)
    except NoNode:
        return Configs({}, UNWRITTEN)
    return Configs(layout.decode_configs(path, data), stat.version)


async def read_config_names(zk: ZooKeeper, entity_type: str) -> list[str]:
    """With those of clients below a user."""
    folder = f"{layout.CONFIGS}/{entity_type}"
    names = await zk.children(folder)
    below = await read_each(names, lambda name: _below(zk, f"{folder}/{name}"))
    return [*names, *(f"{name}/{rest}" for name, rests in zip(names, below, strict=True) for rest in rests)]


async def _below(zk: ZooKeeper, path: str) -> list[str]:
    found = []
    for folder in await _children(zk, path):
        found += [f"{folder}/{name}" for name in await _children(zk, f"{path}/{folder}")]
    return found


async def _children(zk: ZooKeeper, path: str) -> list[str]:
    try:
        return list(await zk.children(path))
    except NoNode:
        return []


async def _make_parents(zk: ZooKeeper, resource: ConfigResource) -> None:
    """Of a client of a user, as Kafka has it."""
    parts = resource.entity_name.split("/")
    if {".", ".."} & {*parts}:
        raise NameUnstorable(f"ZooKeeper can keep nothing of {resource.entity_name!r}: it has no such names")
    for count in range(1, len(parts)):
        with contextlib.suppress(NodeExists):
            await zk.create(layout.config(f"{resource.entity_type}/{'/'.join(parts[:count])}"))


async def set_configs(zk: ZooKeeper, resource: ConfigResource, configs: Configs, now_ms: int, again: bool) -> Configs:
    """The change and its notification by one transaction; notifications that everybody has seen go."""
    path = layout.config(resource.path)
    changed = Configs(dict(configs.values), configs.version + 1)
    if again and await read_configs(zk, resource) == changed:
        return changed
    data = layout.encode_configs(configs.values)
    operations: list[Operation] = []
    if resource.entity_type == "topics":
        # A topic that is gone must not leave configs to a later one of its name.
        stat = await zk.exists(layout.topic(resource.entity_name))
        operations.append(Check(layout.topic(resource.entity_name), stat.version if stat else 0))
    elif configs.version == UNWRITTEN:
        await _make_parents(zk, resource)
    operations.append(Create(path, data) if configs.version == UNWRITTEN else SetData(path, data, configs.version))
    operations.append(Create(layout.CONFIG_CHANGE_PREFIX, layout.encode_config_change(resource.path), sequence=True))
    try:
        await zk.multi(operations)
    except (BadVersion, NoNode, NodeExists) as refused:
        if isinstance(refused, NoNode) and isinstance(operations[refused.operation or 0], Create):
            raise  # what it was to be made in is missing
        raise MetadataConflict(f"configs of {resource.path} were changed since version {configs.version}") from refused
    await sweep_changes(zk, layout.CONFIG_CHANGES, now_ms)
    return changed


async def sweep_changes(zk: ZooKeeper, folder: str, now_ms: int) -> None:
    for name in await zk.children(folder):
        path = f"{folder}/{name}"
        stat = await zk.exists(path)
        if stat is not None and now_ms - stat.ctime_ms <= CHANGE_KEPT_MS:
            return  # they are in the order of their making
        with contextlib.suppress(NoNode):
            await zk.delete(path)


class ProducerIds:
    """Given out by compare-and-set. Ids keep up with the time: what says which were the last may be removed, or be an
    older copy, and all that were given out since are below. Clocks may be wrong: never below this broker's own either.
    """

    def __init__(self) -> None:
        self._end = 0

    async def allocate(self, zk: ZooKeeper, node_id: int, count: int, now_ms: int) -> range:
        """A block of which it is not known whether it was given out is not used."""
        path = layout.PRODUCER_ID_BLOCK
        while True:
            first, version = max(self._end, now_ms * PRODUCER_IDS_PER_MS), None
            with contextlib.suppress(NoNode):
                data, stat = await zk.get(path)
                first, version = max(first, layout.decode_producer_ids(data)[1].stop), stat.version
            if version is None:
                log.error("znode %s was removed by another hand; producer ids go on from %d", path, first)
            block = range(first, first + count)
            encoded = layout.encode_producer_ids(node_id, block)
            try:
                await (zk.create(path, encoded) if version is None else zk.set(path, encoded, version))
            except (BadVersion, NodeExists):
                continue
            except NoNode:
                if version is None:
                    raise  # where it is to be made is missing
                continue
            self._end = max(self._end, block.stop)
            return block


async def take_isr_changes(zk: ZooKeeper, controller: Controller, taken: set[TopicPartition]) -> None:
    """Into `taken`, which keeps what an earlier try has taken."""
    await _take_notes(
        zk, controller, layout.ISR_CHANGES, lambda p, data: taken.update(layout.decode_partitions(p, data))
    )


async def tell_log_dir_failed(zk: ZooKeeper, node_id: int) -> None:
    """Being told twice is no harm."""
    await zk.create(layout.LOG_DIR_EVENT_PREFIX, layout.encode_log_dir_event(node_id), sequence=True)


async def take_log_dir_failures(zk: ZooKeeper, controller: Controller, taken: set[int]) -> None:
    """As `take_isr_changes`."""
    await _take_notes(
        zk, controller, layout.LOG_DIR_EVENTS, lambda _, data: taken.add(layout.decode_log_dir_event(data))
    )


async def _take_notes(zk: ZooKeeper, controller: Controller, queue: str, take: Callable[[str, bytes], None]) -> None:
    for name in await zk.children(queue):
        path = f"{queue}/{name}"
        try:
            data, _ = await zk.get(path)
            try:
                take(path, data)
            except MetadataUnreadable as error:
                log.error("%s; it is removed, and what it told is not known", error)  # noqa: TRY400 - foreseen
            await fenced(zk, controller, [Delete(path)])
        except NoNode:
            continue


async def read_topic_deletions(zk: ZooKeeper) -> set[str]:
    return set(await zk.children(layout.TOPIC_DELETIONS))


async def request_topic_deletion(zk: ZooKeeper, name: str) -> None:
    with contextlib.suppress(NodeExists):
        await zk.create(layout.topic_deletion(name))


async def read_reassignments(zk: ZooKeeper) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        data, _ = await zk.get(layout.REASSIGNMENTS)
    except NoNode:
        return {}
    return layout.decode_reassignments(data)


async def set_reassignments(
    zk: ZooKeeper, controller: Controller, wanted: Mapping[TopicPartition, tuple[int, ...]]
) -> None:
    data = layout.encode_reassignments(wanted)
    there = await zk.exists(layout.REASSIGNMENTS)
    if wanted:
        path = layout.REASSIGNMENTS
        await fenced(zk, controller, [SetData(path, data) if there else Create(path, data)])
    elif there:
        await _removed(zk, controller, layout.REASSIGNMENTS)


async def read_preferred_elections(zk: ZooKeeper) -> set[TopicPartition]:
    try:
        data, _ = await zk.get(layout.PREFERRED_ELECTIONS)
    except NoNode:
        return set()
    return layout.decode_partitions(layout.PREFERRED_ELECTIONS, data)


async def request_preferred_elections(zk: ZooKeeper, partitions: Collection[TopicPartition], again: bool) -> None:
    if again and await read_preferred_elections(zk) == set(partitions):
        return
    try:
        await zk.create(layout.PREFERRED_ELECTIONS, layout.encode_partitions(partitions))
    except NodeExists as refused:
        raise MetadataConflict("elections of preferred leaders are under way") from refused


async def end_preferred_elections(zk: ZooKeeper, controller: Controller) -> None:
    await _removed(zk, controller, layout.PREFERRED_ELECTIONS)


async def _removed(zk: ZooKeeper, controller: Controller, path: str) -> None:
    with contextlib.suppress(NoNode):
        await fenced(zk, controller, [Delete(path)])
