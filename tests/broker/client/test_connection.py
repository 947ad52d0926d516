"""The connection against a peer that behaves well, and one that does not."""

from __future__ import annotations

import asyncio
import struct

import pytest

from broker.base.address import Address
from broker.client.connection import Connection, common_versions, connect
from broker.client.errors import ConnectionLost, RequestTimedOut, ResponseTooLarge, UnsupportedByCluster
from broker.client.limits import ClientLimits
from broker.client.log import FetchLimits, fetch_request, fetch_within_quota
from broker.wire.api import API, ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader, encode_response
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from tests.broker.client.peer import all_versions, peer

LIMITS = ClientLimits(connect_timeout_ms=2_000)


async def open_to(address: Address, limits: ClientLimits = LIMITS) -> Connection:
    return await connect(address, client_id="test", limits=limits)


async def echo_groups(header: RequestHeader, message: Message) -> Message:
    """ListGroups answers with its own correlation id, Fetch with as many bytes as were asked for."""
    if isinstance(message, FetchRequest):
        data = PartitionData(records=b"x" * message.max_bytes)
        return FetchResponse(responses=[FetchableTopicResponse("t", [data])])
    return ListGroupsResponse(groups=[ListedGroup(str(header.correlation_id))])


async def test_pipelined_answers_reach_their_requests() -> None:
    async with peer(echo_groups) as address:
        connection = await open_to(address)
        answers = [await connection.send(ListGroupsRequest()) for _ in range(200)]
        assert connection.in_flight_requests == 200
        ids = [int((await answer).groups[0].group_id) for answer in answers]
        assert ids == list(range(ids[0], ids[0] + 200))
        await connection.close()
        assert not connection.is_open


@pytest.mark.parametrize("size", [0, 1, 65_000, 65_536, 70_000, 5_000_000])
async def test_large_and_small_frames_come_whole_and_writable(size: int) -> None:
    async with peer(echo_groups) as address:
        connection = await open_to(address)
        asked = [FetchRequest(max_bytes=size), ListGroupsRequest(), FetchRequest(max_bytes=size)]
        answers = [await connection.send(message) for message in asked]
        first, groups, second = [await answer for answer in answers]
        assert groups.groups[0].group_id
        for response in (first, second):
            records = response.responses[0].partitions[0].records
            assert len(records) == size
            assert bytes(records) == b"x" * size
            assert not records.readonly
        await connection.close()


async def test_a_fetch_keeps_its_bytes_after_later_answers() -> None:
    async with peer(echo_groups) as address:
        connection = await open_to(address)
        kept = (await connection.request(FetchRequest(max_bytes=1000))).responses[0].partitions[0].records
        kept[:] = b"y" * 1000
        for _ in range(50):
            await connection.request(FetchRequest(max_bytes=1000))
        assert bytes(kept) == b"y" * 1000
        await connection.close()


async def test_time_out_closes_the_connection_and_fails_what_is_in_flight() -> None:
    never = asyncio.Event()

    async def silent(header: RequestHeader, message: Message) -> Message:
        await never.wait()
        return ListGroupsResponse()

    async with peer(silent) as address:
        connection = await open_to(address)
        slow = await connection.send(ListGroupsRequest())
        quick = await connection.send(ListGroupsRequest(), timeout_ms=50)
        with pytest.raises(RequestTimedOut):
            await quick
        with pytest.raises(ConnectionLost):
            await slow
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.send(ListGroupsRequest())
        await connection.close()
        never.set()


async def test_a_closing_broker_fails_what_is_in_flight() -> None:
    async def hang_up(header: RequestHeader, message: Message) -> None:
        return None

    async with peer(hang_up) as address:
        connection = await open_to(address)
        with pytest.raises(ConnectionLost):
            await connection.request(ListGroupsRequest())
        assert not connection.is_open


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (struct.pack(">i", 2_000_000_000), ConnectionLost),
        (struct.pack(">i", -5), ConnectionLost),
        (struct.pack(">i", 0), ConnectionLost),
        (struct.pack(">ii", 4, 99_999), ConnectionLost),
        (struct.pack(">iib", 5, 2, 0), ConnectionLost),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConnectionLost),
    ],
)
async def test_garbage_closes_the_connection(raw: bytes, error: type[Exception]) -> None:
    async def garbage(header: RequestHeader, message: Message) -> bytes:
        return raw

    async with peer(garbage) as address:
        connection = await open_to(address)
        with pytest.raises(error):
            await connection.request(ListGroupsRequest(), timeout_ms=1_000)
        assert not connection.is_open


async def test_a_frame_above_the_limit_is_named() -> None:
    limits = ClientLimits(max_frame_bytes=1_000_000, fetch_max_bytes=500_000, fetch_partition_max_bytes=500_000)
    async with peer(echo_groups) as address:
        connection = await open_to(address, limits)
        with pytest.raises(ConnectionLost) as failed:
            await connection.request(FetchRequest(max_bytes=2_000_000))
        assert ResponseTooLarge.hint
        assert "announced a response of" in str(failed.value)


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    release = asyncio.Event()

    async def wait_first(header: RequestHeader, message: Message) -> Message:
        await release.wait()
        return await echo_groups(header, message)

    async with peer(wait_first) as address:
        connection = await open_to(address)
        cancelled = asyncio.ensure_future(connection.request(ListGroupsRequest()))
        while connection.in_flight_requests == 0:
            await asyncio.sleep(0)
        kept = await connection.send(ListGroupsRequest())
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        release.set()
        assert (await kept).groups[0].group_id
        await connection.close()


async def test_an_old_broker_that_refuses_the_version_is_asked_again() -> None:
    seen: list[int] = []

    async def old(header: RequestHeader, message: Message) -> Message:
        seen.append(header.api_version)
        if header.api_version > 1:
            refused = [ApiVersion(int(ApiKey.API_VERSIONS), 0, 1)]
            return ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), refused)
        return all_versions()

    async with peer(echo_groups, old) as address:
        connection = await open_to(address)
        assert seen == [3, 1]
        assert connection.version(ApiKey.LIST_GROUPS) == API[ApiKey.LIST_GROUPS].max_version
        await connection.close()


async def test_a_broker_without_the_api_is_named() -> None:
    async def little(header: RequestHeader, message: Message) -> Message:
        return ApiVersionsResponse(0, [ApiVersion(int(ApiKey.API_VERSIONS), 0, 3)])

    async with peer(echo_groups, little) as address:
        connection = await open_to(address)
        assert not connection.supports(ApiKey.FETCH)
        with pytest.raises(UnsupportedByCluster, match="Fetch"):
            await connection.request(FetchRequest())
        await connection.close()


async def test_nobody_listens(unused_tcp_port: int) -> None:
    with pytest.raises(ConnectionLost):
        await open_to(Address("127.0.0.1", unused_tcp_port))


async def test_a_peer_that_says_nothing_does_not_hold_up_the_handshake() -> None:
    never = asyncio.Event()

    async def silent(header: RequestHeader, message: Message) -> Message:
        await never.wait()
        return all_versions()

    async with peer(echo_groups, silent) as address:
        with pytest.raises(RequestTimedOut):
            await open_to(address, ClientLimits(connect_timeout_ms=100))
        never.set()


def test_common_versions_are_the_highest_of_both() -> None:
    offered = {int(ApiKey.FETCH): (4, 17), int(ApiKey.PRODUCE): (0, 9), int(ApiKey.LIST_GROUPS): (9, 12), 999: (0, 1)}
    assert common_versions(offered) == {int(ApiKey.FETCH): 12, int(ApiKey.PRODUCE): 9}


def test_transactions_v2_is_never_spoken() -> None:
    everything = {int(key): (0, 99) for key in ApiKey}
    chosen = common_versions(everything)
    assert chosen[ApiKey.PRODUCE] <= 11
    assert chosen[ApiKey.END_TXN] <= 4
    assert chosen[ApiKey.ADD_PARTITIONS_TO_TXN] <= 3
    assert encode_response(int(ApiKey.END_TXN), 4, 1, API[ApiKey.END_TXN].response())


async def test_a_fetch_over_the_quota_is_asked_again() -> None:
    """Kafka answers it at once without any partition: taken for the answer, every partition would seem to be gone."""
    answers = [FetchResponse(throttle_time_ms=500), FetchResponse(throttle_time_ms=900)]
    answers.append(FetchResponse(responses=[FetchableTopicResponse("flights")], throttle_time_ms=3))

    async def answer(_header: RequestHeader, _message: Message) -> Message:
        return answers.pop(0)

    async with peer(answer) as address:
        connection = await open_to(address)
        asked = fetch_request({TopicPartition("flights", 0): 0}, FetchLimits(1, 1))
        found = await fetch_within_quota(connection, asked)
        assert [topic.topic for topic in found.responses] == ["flights"]
        assert not answers
        await connection.close()


@pytest.mark.parametrize("last", [FetchResponse(), FetchResponse(throttle_time_ms=9, error_code=70)])
async def test_an_empty_answer_for_another_reason_is_the_answer(last: FetchResponse) -> None:
    async def answer(_header: RequestHeader, _message: Message) -> Message:
        return last

    async with peer(answer) as address:
        connection = await open_to(address)
        asked = fetch_request({TopicPartition("flights", 0): 0}, FetchLimits(1, 1))
        assert await fetch_within_quota(connection, asked) == last
        await connection.close()
