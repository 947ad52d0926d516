"""A request of many things, all of which are refused, is answered in turns with what others ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.access.authorizer import Authorizer
from broker.base.clock import SystemClock
from broker.handlers.handler import RequestContext
from broker.handlers.table import HANDLERS
from broker.limits import ITEMS_PER_TURN
from broker.wire.api import ApiKey
from broker.wire.messages import delete_records, describe_producers, fetch, list_offsets, offset_for_leader_epoch
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.schema import Message
from tests.broker.running import running_server

ITEMS = 1_600
NAMES = [f"t{number}" for number in range(ITEMS)]
NUMBERS = range(ITEMS)


class Shape(NamedTuple):
    """A topic with many partitions, or many topics with one each."""

    what: str
    names: list[str]
    numbers: range


SHAPES = [Shape("partitions", ["t"], NUMBERS), Shape("topics", NAMES, range(1))]


def fetching(names: list[str], numbers: range) -> Message:
    topics = [fetch.FetchTopic(name, partitions=[fetch.FetchPartition(n) for n in numbers]) for name in names]
    return fetch.FetchRequest(max_wait_ms=0, topics=topics)


def listing(names: list[str], numbers: range) -> Message:
    partition, topic = list_offsets.ListOffsetsPartition, list_offsets.ListOffsetsTopic
    return list_offsets.ListOffsetsRequest(topics=[topic(name, [partition(n) for n in numbers]) for name in names])


def of_epochs(names: list[str], numbers: range) -> Message:
    partition, topic = offset_for_leader_epoch.OffsetForLeaderPartition, offset_for_leader_epoch.OffsetForLeaderTopic
    topics = [topic(name, [partition(n) for n in numbers]) for name in names]
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)


def deleting(names: list[str], numbers: range) -> Message:
    partition, topic = delete_records.DeleteRecordsPartition, delete_records.DeleteRecordsTopic
    return delete_records.DeleteRecordsRequest([topic(name, [partition(n) for n in numbers]) for name in names])


def of_producers(names: list[str], numbers: range) -> Message:
    return describe_producers.DescribeProducersRequest(
        [describe_producers.TopicRequest(name, list(numbers)) for name in names]
    )


OF_TOPICS: dict[ApiKey, tuple[int, Callable[[list[str], range], Message]]] = {
    ApiKey.FETCH: (12, fetching),
    ApiKey.LIST_OFFSETS: (9, listing),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, of_epochs),
    ApiKey.DELETE_RECORDS: (2, deleting),
    ApiKey.DESCRIBE_PRODUCERS: (0, of_producers),
}
WITHOUT, WITH_ALL = (), ("User:shop",)
ASKED = [
    *(
        pytest.param(
            key, version, make(shape.names, shape.numbers), users, id=f"{key.name.lower()}, {shape.what}, {why}"
        )
        for key, (version, make) in OF_TOPICS.items()
        for shape in SHAPES
        for users, why in ((WITHOUT, "without rights"), (WITH_ALL, "not there"))
    ),
    pytest.param(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(NAMES), WITHOUT, id="describe_groups"),
    pytest.param(
        ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=NAMES), WITHOUT, id="find_coordinator"
    ),
]


async def turns_during(asking: asyncio.Task[object]) -> int:
    """How often somebody else got the event loop."""
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize(("key", "version", "request_", "super_users"), ASKED)
async def test_others_are_served_meanwhile(
    key: ApiKey, version: int, request_: Message, super_users: tuple[str, ...], tmp_path: Path
) -> None:
    """199,000 that were refused kept all others waiting for half a second and more."""
    authorizer = Authorizer(super_users, allows_without_acls=False, clock=SystemClock())
    rights = authorizer.rights("User:shop", "10.0.0.1")
    context = RequestContext(version, "test", "10.0.0.1", HANDLERS, rights=rights)
    async with running_server(tmp_path) as server:
        asking = asyncio.ensure_future(HANDLERS[key].handle(server.broker, request_, context))
        turns = await turns_during(asking)
    assert turns >= ITEMS // ITEMS_PER_TURN
    assert len(str(asking.result())) > ITEMS
