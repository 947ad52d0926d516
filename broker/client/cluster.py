"""One cluster: bootstrap, metadata, leaders and coordinators, a connection per broker and purpose.

A fetch that is parked at the broker holds back all later answers of its connection (Kafka answers in order), so
fetches, produces and everything else have connections of their own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal, Self

from broker.base.address import Address
from broker.base.clock import Clock, SystemClock
from broker.client.connection import Connection, connect
from broker.client.errors import (
    NOT_LET_IN,
    AccessRefused,
    BrokerSetAside,
    ClientError,
    ClusterUnreachable,
    ConnectionLost,
    KafkaError,
)
from broker.client.limits import ClientLimits
from broker.client.model import ClusterMetadata, Node, read_metadata
from broker.client.retry import Retry
from broker.client.security.settings import Access
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.vocabulary import (
    GROUP_COORDINATOR,
    NO_LEADER,
    NO_LEADER_EPOCH,
    TRANSACTION_COORDINATOR,
    TopicPartition,
)

Purpose = Literal["fetch", "produce", "admin"]
CoordinatorKind = Literal["group", "transaction"]

_KEY_TYPES: dict[CoordinatorKind, int] = {"group": GROUP_COORDINATOR, "transaction": TRANSACTION_COORDINATOR}


class Cluster:
    """`async with Cluster(site) as cluster`: entering bootstraps, leaving closes every connection.

    Entering raises ClusterUnreachable when no server answers within `bootstrap_timeout_ms`, and AccessRefused at once
    when one does not let this client in and no other does. Methods raise ClientError and its kinds. `jitter` gives
    numbers in [0, 1) that spread retries.
    """

    def __init__(
        self,
        site: Site,
        *,
        client_id: str = "farshore",
        limits: ClientLimits | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.site = site
        self.client_id = client_id
        self.limits = limits or ClientLimits()
        self.clock: Clock = clock or SystemClock()
        self.cluster_id = ""
        self._jitter = jitter
        self._controller_id = NO_LEADER
        self._nodes: dict[int, Node] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._connections: dict[tuple[int, Purpose], Connection] = {}
        self._answering: Connection | None = None
        self._opening: dict[tuple[int, Purpose], asyncio.Lock] = {}
        self._aside: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unentered:  # no __aexit__ follows then
            unentered.push_async_callback(self.close)
            await self._bootstrap()
            unentered.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and wait until their buffers are free."""
        connections = list(self._connections.values())
        self._connections.clear()
        # All of them before the first wait: who closes may be cancelled while it waits.
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.close()

    @property
    def nodes(self) -> dict[int, Node]:
        """The brokers of the last metadata seen."""
        return dict(self._nodes)

    def retry(self, patience_ms: int | None = None) -> Retry:
        """The retry policy for one operation that begins now; `patience_ms` (None: no other limit) bounds it."""
        return Retry(self.limits, self.clock, self._jitter, patience_ms)

    # -- metadata

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Ask for these topics (None: all). Never creates a topic; topics with errors are in `topic_errors`."""
        names = None if topics is None else sorted(set(topics))  # once: what is asked again must be the same
        retry = self.retry()
        while True:
            try:
                return await self._ask_metadata(await self.any_connection(), names)
            except ClientError as error:
                await retry.pause(error)

    async def leader(self, topic: str, partition: int) -> int:
        """The node id of the leader, from memory if it is known. Raises KafkaError when there is none now."""
        where = TopicPartition(topic, partition)
        if where not in self._leaders:
            await self._ask_metadata(await self.any_connection(), [topic])
        node_id = self._leaders.get(where)
        if node_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} at {self.site.name}")
        if node_id == NO_LEADER:
            del self._leaders[where]
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} at {self.site.name}")
        return node_id

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by their leader's node id; one metadata request for all that are not known.

        A partition without a leader is under NO_LEADER, one that does not exist under neither.
        """
        wanted = list(partitions)
        unknown = {where.topic for where in wanted if self._leaders.get(where, NO_LEADER) == NO_LEADER}
        if unknown:
            await self._ask_metadata(await self.any_connection(), unknown)
        grouped: dict[int, list[TopicPartition]] = {}
        for where in wanted:
            if where in self._leaders:
                grouped.setdefault(self._leaders[where], []).append(where)
        return grouped

    def leader_epoch(self, where: TopicPartition) -> int:
        """The leader's epoch as the metadata last said it, NO_LEADER_EPOCH where it did not (KIP-320)."""
        return self._leader_epochs.get(where, NO_LEADER_EPOCH)

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Ask again for the leaders of these topics when they are next needed (after NOT_LEADER, a lost connection)."""
        names = set(topics)
        for where in [where for where in self._leaders if where.topic in names]:
            del self._leaders[where]
            self._leader_epochs.pop(where, None)

    async def _ask_metadata(self, connection: Connection, topics: Iterable[str] | None) -> ClusterMetadata:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(set(topics))]
        request = MetadataRequest(names, allow_auto_topic_creation=False)
        metadata = read_metadata(await connection.request(request))
        if not metadata.nodes:
            raise ClusterUnreachable(f"{self.site.name} names no broker yet", "wait until its brokers have registered")
        self.cluster_id = metadata.cluster_id
        self._controller_id = metadata.controller_id
        self._nodes = dict(metadata.nodes)
        self.forget_leaders([*metadata.topics, *metadata.topic_errors])
        for topic in metadata.topics.values():
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition)
                self._leaders[where] = partition.leader_id
                self._leader_epochs[where] = partition.leader_epoch
        return metadata

    # -- connections

    async def connection(self, node_id: int, purpose: Purpose = "admin") -> Connection:
        """The open connection to this broker for this purpose, opened if need be. Raises ClientError."""
        key = (node_id, purpose)
        node = self._nodes.get(node_id)
        if self._aside and node is not None and str(self.site.dial(node.host, node.port)) in self._aside:
            raise BrokerSetAside(f"broker {node_id} of {self.site.name} was silent when it was called")
        existing = self._connections.get(key)
        if existing is not None and existing.is_open:
            return existing
        async with self._opening.setdefault(key, asyncio.Lock()):
            existing = self._connections.get(key)
            if existing is not None and existing.is_open:
                return existing
            node = self._nodes.get(node_id)
            if node is None:
                raise ConnectionLost(f"node {node_id} has left the cluster of {self.site.name}")
            address = self.site.dial(node.host, node.port)
            opened = await self._connect(address, self.site.access(node.host))
            self._connections[key] = opened
            return opened

    def set_aside(self, addresses: Iterable[str]) -> None:
        """From now on no broker that is dialled there is asked anything, which fails with BrokerSetAside at once: for
        who has waited for one that is silent, and is to wait for it no more.
        """
        self._aside = frozenset(addresses)

    async def any_connection(self) -> Connection:
        """A connection to any broker; bootstraps again when no known one answers. Raises ClusterUnreachable."""
        if self._answering is not None and self._answering.is_open:
            return self._answering
        for (_, purpose), connection in self._connections.items():
            if purpose == "admin" and connection.is_open:
                return connection
        for node_id in list(self._nodes):
            try:
                return await self.connection(node_id)
            except ClientError:
                continue  # the next broker, or the bootstrap servers, may answer; the last error is told there
        await self._bootstrap()
        return await self.connection(next(iter(self._nodes)))

    async def find_answering(self) -> None:
        """Asks all known brokers who there is, side by side; from then on `any_connection` gives the one that answers
        first, while it is open: another one may take connections and be silent. Raises ClientError where none answers.
        """

        async def answering(node_id: int) -> Connection | None:
            try:
                connection = await self.connection(node_id)
                await self._ask_metadata(connection, [])
            except ClientError:
                return None  # the next broker, or the bootstrap servers, may answer
            return connection

        waiting = {asyncio.create_task(answering(node_id)) for node_id in self._nodes}
        self._answering = None
        try:
            while waiting and self._answering is None:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._answering = next((found for one in done if (found := one.result())), None)
        finally:
            for one in waiting:
                one.cancel()
            if waiting:
                await asyncio.wait(waiting)
        if self._answering is None:
            await self.metadata(())

    async def controller(self) -> Connection:
        """The controller, or in KRaft clusters a broker that forwards to it."""
        if self._controller_id not in self._nodes:
            await self._ask_metadata(await self.any_connection(), [])
        if self._controller_id not in self._nodes:
            return await self.any_connection()
        return await self.connection(self._controller_id)

    def forget_controller(self) -> None:
        """Ask again for the controller (after NOT_CONTROLLER)."""
        self._controller_id = NO_LEADER

    async def _connect(self, address: Address, access: Access) -> Connection:
        return await connect(address, client_id=self.client_id, limits=self.limits, access=access)

    async def _bootstrap(self) -> None:
        deadline = self.clock.monotonic() + self.limits.bootstrap_timeout_ms / 1000
        servers = self.site.bootstrap()
        attempt = 0
        while True:
            last: ClientError | None = None
            for address, access in servers.items():
                try:
                    connection = await self._connect(address, access)
                    async with AsyncExitStack() as unused:
                        unused.push_async_callback(connection.close)
                        await self._ask_metadata(connection, [])
                        if self._keeps(connection, address, access):
                            unused.pop_all()
                    return
                except ClientError as error:
                    # Who is not let in by one may tell more than who is not answered by the others.
                    last = last if isinstance(last, AccessRefused) else error
            if isinstance(last, NOT_LET_IN):
                raise last  # again and again, it would lock the user out, or fill the broker's log
            pause = self.retry().pause_seconds(attempt)
            attempt += 1
            if self.clock.monotonic() + pause >= deadline:
                text = f"site {self.site.name} does not answer at {self.site.bootstrap_servers}: {last}"
                raise ClusterUnreachable(text) from last
            await self.clock.sleep(pause)

    def _keeps(self, connection: Connection, address: Address, access: Access) -> bool:
        """Whether it goes on as the connection to the broker that it reached: over a distance two round trips less.

        Only where that broker would be dialled just so; who else answers there may be any of them.
        """
        for node in self._nodes.values():
            key: tuple[int, Purpose] = (node.node_id, "admin")
            known, opening = self._connections.get(key), self._opening.get(key)
            is_free = (known is None or not known.is_open) and (opening is None or not opening.locked())
            is_there = self.site.dial(node.host, node.port) == address and self.site.access(node.host) == access
            if is_there and is_free:
                self._connections[key] = connection
                return True
        return False

    # -- coordinators

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | KafkaError]:
        """The coordinating broker's node id per group or transactional id, or why there is none now."""
        found: dict[str, int | KafkaError] = {}
        unknown = []
        for key in dict.fromkeys(keys):
            node_id = self._coordinators.get((kind, key))
            if node_id is None:
                unknown.append(key)
            else:
                found[key] = node_id
        if not unknown:
            return found
        connection = await self.any_connection()
        batched = connection.version(FindCoordinatorRequest.API_KEY) >= 4
        shares = [unknown] if batched else [[key] for key in unknown]
        requests = [FindCoordinatorRequest(asked[0], _KEY_TYPES[kind], asked) for asked in shares]
        answers = [await connection.send(request) for request in requests]
        for asked, answer in zip(shares, answers, strict=True):
            found |= self._learn_coordinators(kind, asked, await answer)
        return found

    async def coordinator(self, kind: CoordinatorKind, key: str) -> Connection:
        """A connection to the coordinator of a group or a transactional id. Raises ClientError."""
        node_id = (await self.coordinators(kind, [key]))[key]
        if isinstance(node_id, KafkaError):
            raise node_id
        return await self.connection(node_id)

    def forget_coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> None:
        """Ask again for these coordinators (after NOT_COORDINATOR, a lost connection)."""
        for key in keys:
            self._coordinators.pop((kind, key), None)

    def _learn_coordinators(
        self, kind: CoordinatorKind, asked: list[str], response: FindCoordinatorResponse
    ) -> dict[str, int | KafkaError]:
        answers = [(c.key, c.error_code, c.node_id, c.host, c.port) for c in response.coordinators] or [
            (asked[0], response.error_code, response.node_id, response.host, response.port)
        ]
        found: dict[str, int | KafkaError] = {}
        for key, code, node_id, host, port in answers:
            if code:
                found[key] = KafkaError(code, f"coordinator of {kind} {key} at {self.site.name}")
                continue
            self._nodes.setdefault(node_id, Node(node_id, host, port))
            self._coordinators[(kind, key)] = found[key] = node_id
        return found
