"""The same requests to two brokers, and what differs in their answers.

A case is a function that asks a `Peer`; it is run once for each broker. Answers are kept as plain values in which what
must differ (ids, times, hosts, the words of an error) is replaced by what it stands for: an id by the question that it
was first seen in, so that one which should be the same twice still has to be.
"""

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeVar, cast

from broker.wire.batch import iter_batches
from broker.wire.errors import CorruptBatch, ErrorCode, WireError
from broker.wire.frames import decode_response
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.produce import ProduceResponse
from broker.wire.schema import ZERO_UUID, Message, Struct
from broker.wire.vocabulary import LATEST, TOPIC_RESOURCE
from tests.broker.wire_client import WireClient, produce_request

Case = Callable[["Peer"], Awaitable[None]]
M = TypeVar("M", bound=Message)

DAY_MS = 24 * 60 * 60 * 1000
READY_SECONDS = 60.0
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
# For what one of the brokers is known not to answer.
SHORT_PATIENCE_SECONDS = 4.0
CLOSED = "the connection is closed"
SILENT = "no answer"
# What is never compared: it names a machine, or says how busy it is.
PLACES = ("host", "port", "cluster_id", "rack", "client_host", "throttle_time_ms", "log_dir", "total_bytes",
          "usable_bytes")  # fmt: skip
TEXTS = ("error_message", "batch_index_error_message", "documentation")
# What a broker makes up, and what stands for nothing there.
NAMED = {"member_id": "", "leader": "", "producer_id": -1, "session_id": 0}
# By what an element of a list is known, in this order: lists are compared by it, not by their order.
KEYS = ("name", "topic", "group_id", "transactional_id", "key", "partition_index", "partition", "index", "api_key",
        "resource_name", "broker_id", "node_id")  # fmt: skip
RETRIED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Peer:
    """One broker as one case sees it: `answers` is what it said, by the label of the question."""

    def __init__(self, address: str, prefix: str) -> None:
        self.answers: dict[str, Any] = {}
        self._address = address
        self._prefix = prefix
        self._client: WireClient | None = None
        self._named: dict[str, dict[Any, str]] = {}
        self._label = ""

    def name(self, suffix: str = "t") -> str:
        """A name of this case alone, the same on both brokers."""
        return f"{self._prefix}-{suffix}"

    async def ask(self, label: str, request: Message, version: int, patience_s: float = PATIENCE_SECONDS) -> Any:
        """Notes the answer under `label`: the answer, or None when the broker closed the connection or said nothing."""
        answer, said = await self._ask(request, version, patience_s)
        self._label = label
        self.note(label, said if answer is None else self._shown(answer, ""))
        return answer

    async def ask_raw(self, label: str, key: int, version: int, body: bytes, client_id: bytes | None = b"raw") -> None:
        """A request whose body, after its header of v1, is given in bytes; answers that have no name are their size."""
        name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
        await self.ask_frame(label, struct.pack(">hhi", key, version, 7) + name + body, key, version)

    async def ask_frame(self, label: str, frame: bytes, key: int, version: int) -> None:
        self._label = label
        client = await self._connected()
        await client.send_bytes(struct.pack(">i", len(frame)) + frame)
        try:
            answer = await client.receive_frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            self.note(label, CLOSED)
            return
        try:
            self.note(label, self._shown(decode_response(key, version, answer)[1], ""))
        except WireError:
            self.note(label, f"{len(answer)} bytes")

    def note(self, label: str, value: object) -> None:
        assert label not in self.answers, f"two questions are called {label}"
        self.answers[label] = value

    async def prepare(self, request: Message, version: int, answer: type[M]) -> M:
        """Ask without noting: what a case needs before its question."""
        given, said = await self._ask(request, version)
        assert isinstance(given, answer), f"{request}: {said}"
        return given

    async def topic(self, suffix: str = "t", partitions: int = 1, **configs: str) -> str:
        """A new topic that has its leader, and keeps what is written whatever its time."""
        name = self.name(suffix)
        configs.setdefault("retention_ms", "-1")
        given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=given)], 30_000)
        made = await self.prepare(request, 7, CreateTopicsResponse)
        assert made.topics[0].error_code == 0, made
        for partition in range(partitions):
            await self._led(name, partition)
        return name

    async def _led(self, topic: str, partition: int) -> None:
        """Waits until the partition answers as a leader does."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=LATEST)])
            answer = await self.prepare(ListOffsetsRequest(-1, topics=[asked]), 7, ListOffsetsResponse)
            code = answer.topics[0].partitions[0].error_code
            if code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                return
            assert time.monotonic() < deadline, f"{topic}-{partition}: {code}"
            await asyncio.sleep(POLL_SECONDS)

    async def produce(self, topic: str, batch: bytes | bytearray, **fields: Any) -> int:
        """-> the base offset."""
        answer = await self.prepare(produce_request(topic, batch, **fields), 9, ProduceResponse)
        (done,) = answer.responses[0].partition_responses
        assert done.error_code == 0, done
        return done.base_offset

    async def coordinator(self, key: str, kind: int) -> None:
        """Waits until the group (0) or transactional id (1) has its coordinator."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = (await self.prepare(request, 4, FindCoordinatorResponse)).coordinators[0]
            if found.error_code == 0:
                return
            assert time.monotonic() < deadline, found
            await asyncio.sleep(POLL_SECONDS)

    async def until_configured(self, topic: str, name: str, value: str | None, kind: int = TOPIC_RESOURCE) -> None:
        """Waits until the broker shows this value of a config of the topic, or of what is of another kind; None: no
        such config.
        """
        deadline = time.monotonic() + READY_SECONDS
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, topic, [name])])
        while True:
            (described,) = (await self.prepare(request, 4, DescribeConfigsResponse)).results
            if [config.value for config in described.configs] == ([] if value is None else [value]):
                return
            assert time.monotonic() < deadline, described
            await asyncio.sleep(POLL_SECONDS)

    async def until_loaded(self, request: Message, version: int, answer: type[M], error: Callable[[M], int]) -> M:
        """Asks until the coordinator has loaded: the first answer that is about the question."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            given = await self.prepare(request, version, answer)
            if error(given) not in RETRIED:
                return given
            assert time.monotonic() < deadline, given
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(
        self, request: Message, version: int, patience_s: float = PATIENCE_SECONDS
    ) -> tuple[Message | None, str]:
        client = await self._connected()
        try:
            async with asyncio.timeout(patience_s):
                return await client.ask(request, version, Message), ""
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            return None, CLOSED
        except TimeoutError:
            await self.close()
            return None, SILENT

    async def _connected(self) -> WireClient:
        if self._client is None:
            host, port = self._address.rsplit(":", 1)
            self._client = WireClient(*await asyncio.open_connection(host, int(port)))
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()

    # -- answers as plain values ---------------------------------------------------------------------------------

    def _shown(self, value: Any, name: str) -> Any:
        if isinstance(value, Struct):
            table = fields(cast(Any, value))
            return {one.name: self._shown(getattr(value, one.name), one.name) for one in table}
        if isinstance(value, list):
            shown = [self._shown(item, name) for item in value]
            return _keyed(shown)
        if name in PLACES or name in TEXTS:
            return f"<{name}>"
        if name == "error_code":
            return ErrorCode.of(value).name
        if isinstance(value, bytes | bytearray | memoryview):
            return _batches(memoryview(value)) if name == "records" else bytes(value).hex()
        return self._shown_plain(value, name)

    def _shown_plain(self, value: Any, name: str) -> Any:
        if isinstance(value, uuid.UUID):
            return "no id" if value == ZERO_UUID else self._known("id", value)
        if name in NAMED and value != NAMED[name]:
            return self._known(name, value)
        if isinstance(value, int) and abs(value - time.time() * 1000) < DAY_MS:
            return "<now>"
        return value

    def _known(self, kind: str, value: Any) -> str:
        """By the question that it was first seen in: the answers to others do not change it."""
        return self._named.setdefault(kind, {}).setdefault(value, f"the {kind} of {self._label!r}")


def _batches(data: memoryview) -> Any:
    """Record batches by their headers, without the times of control batches."""
    try:
        found = [header for header, _ in iter_batches(data)]
    except CorruptBatch as error:
        return f"{len(data)} bytes: {error}"
    return [
        f"{h.base_offset}..{h.last_offset} epoch {h.partition_leader_epoch} {h.size_bytes} bytes"
        f"{' control' if h.is_control else ''}{' transactional' if h.is_transactional else ''}"
        for h in found
    ]


def _keyed(items: list[Any]) -> Any:
    """A list of structs as a dict by what they are known by; others, and where that is not unique, in order."""
    if not items or not isinstance(items[0], dict):
        return sorted(items, key=repr)
    for key in KEYS:
        if key in items[0] and len({str(item[key]) for item in items}) == len(items):
            return {str(item[key]): item for item in items}
    return sorted(items, key=repr)


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[str]:
    """ "PATH: Kafka WHAT, ours WHAT" for all that is not the same."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in sorted(kafka.keys() | ours.keys()):
            below = f"{path}/{key}" if path else key
            yield from differences(kafka.get(key, "nothing"), ours.get(key, "nothing"), below)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, pair in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif kafka != ours:
        yield f"{path}: Kafka {_short(kafka)}, ours {_short(ours)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else f"{text[:157]}..."


async def answers_of(case: Case, address: str, prefix: str) -> dict[str, Any]:
    peer = Peer(address, prefix)
    try:
        await case(peer)
    finally:
        await peer.close()
    return peer.answers
