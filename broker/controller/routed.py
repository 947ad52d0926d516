"""Requests to the controller, wherever it is: this broker, or another one, which is sent the same request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from broker.base.clock import Clock
from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.cluster.metadata import NO_LEADER, BrokerRegistration, PartitionState, TopicState
from broker.cluster.metadata_store import MetadataStore
from broker.cluster.orders import StaleBrokerEpoch
from broker.cluster.view import ClusterView
from broker.controller.errors import AnotherController, ControllerError, NotController, StillUnderWay
from broker.controller.reassignment import Assignment
from broker.controller.requests import CHANGE_MS_MIN, ControllerRequests, NewTopic, Outcomes
from broker.errors import BrokerError
from broker.topics.errors import TopicExists, UnknownTopic
from broker.wire.errors import ErrorCode, WireError
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from broker.wire.schema import Message
from broker.wire.vocabulary import ConfigSource, ElectionType, TopicPartition, by_topic

T = TypeVar("T")

LOOK_AGAIN_S: Final = 0.1
"""While there is no controller, or it does not answer."""
ANSWER_MS: Final = 5_000
"""What an answer may take on its way, beyond the time that the change itself has."""

_KINDS: Final = {kind.error_code: kind for kind in (TopicExists, UnknownTopic, StillUnderWay, StaleBrokerEpoch)}


class ControllerRefused(ControllerError):
    """What the controller answered, in its own words."""

    hint = "correct the request, or see the log of the controller"


class RoutedController:
    """Implements ControllerRequests. Nothing is asked twice: where an answer is lost, NotController says so."""

    def __init__(
        self,
        own: ControllerRequests,
        node_id: int,
        store: MetadataStore,
        view: ClusterView,
        connect_to: Callable[[BrokerRegistration], Awaitable[Connection]],
        clock: Clock,
    ) -> None:
        """`own`: this broker, for while it is the controller."""
        self._own = own
        self._node_id = node_id
        self._store = store
        self._view = view
        self._connect_to = connect_to
        self._clock = clock

    async def create_topic(self, new: NewTopic, timeout_ms: int, *, validate_only: bool = False) -> TopicState:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> TopicState:
            request = CreateTopicsRequest([_creatable(new)], timeout_ms, validate_only)
            answer: CreateTopicsResponse = await _ask(connection, request, timeout_ms)
            result = answer.topics[0]
            _check(result.error_code, result.error_message)
            known = self._view.by_id(result.topic_id)
            return _described(result) if known is None else known

        return await self._routed(
            timeout_ms, lambda: self._own.create_topic(new, timeout_ms, validate_only=validate_only), there
        )

    async def delete_topic(self, name: str, timeout_ms: int) -> None:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> None:
            request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=timeout_ms)
            answer: DeleteTopicsResponse = await _ask(connection, request, timeout_ms)
            _check(answer.responses[0].error_code, answer.responses[0].error_message)

        await self._routed(timeout_ms, lambda: self._own.delete_topic(name, timeout_ms), there)

    async def grow_topic(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        timeout_ms: int,
        *,
        validate_only: bool = False,
    ) -> None:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> None:
            assigned = None if assignment is None else [CreatePartitionsAssignment(list(nodes)) for nodes in assignment]
            topic = CreatePartitionsTopic(name, count, assigned)
            request = CreatePartitionsRequest([topic], timeout_ms, validate_only)
            answer: CreatePartitionsResponse = await _ask(connection, request, timeout_ms)
            _check(answer.results[0].error_code, answer.results[0].error_message)

        await self._routed(
            timeout_ms,
            lambda: self._own.grow_topic(name, count, assignment, timeout_ms, validate_only=validate_only),
            there,
        )

    async def controlled_shutdown(self, node_id: int, broker_epoch: int, timeout_ms: int) -> frozenset[TopicPartition]:
        async def there(connection: Connection) -> frozenset[TopicPartition]:
            request = ControlledShutdownRequest(node_id, broker_epoch)
            answer: ControlledShutdownResponse = await _ask(connection, request, timeout_ms)
            _check(answer.error_code, None)
            return frozenset(
                TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions
            )

        return await self._routed(
            timeout_ms, lambda: self._own.controlled_shutdown(node_id, broker_epoch, timeout_ms), there
        )

    async def elect_leaders(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int, *, unclean: bool
    ) -> Outcomes:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> Outcomes:
            asked = _named(ElectLeadersTopicPartitions, wheres)
            kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
            answer: ElectLeadersResponse = await _ask(
                connection, ElectLeadersRequest(kind, asked, timeout_ms), timeout_ms
            )
            _check(answer.error_code, None)
            return {
                TopicPartition(topic.topic, result.partition_id): _refusal(result.error_code, result.error_message)
                for topic in answer.replica_election_results
                for result in topic.partition_result
            }

        return await self._routed(
            timeout_ms, lambda: self._own.elect_leaders(wheres, timeout_ms, unclean=unclean), there
        )

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Outcomes:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> Outcomes:
            request = AlterPartitionReassignmentsRequest(timeout_ms, _reassignable(wanted))
            answer: AlterPartitionReassignmentsResponse = await _ask(connection, request, timeout_ms)
            _check(answer.error_code, answer.error_message)
            return {
                TopicPartition(topic.name, result.partition_index): _refusal(result.error_code, result.error_message)
                for topic in answer.responses
                for result in topic.partitions
            }

        return await self._routed(timeout_ms, lambda: self._own.alter_reassignments(wanted, timeout_ms), there)

    async def reassignments(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int
    ) -> Mapping[TopicPartition, Assignment]:
        timeout_ms = max(timeout_ms, CHANGE_MS_MIN)

        async def there(connection: Connection) -> Mapping[TopicPartition, Assignment]:
            named = _named(ListPartitionReassignmentsTopics, wheres)
            answer: ListPartitionReassignmentsResponse = await _ask(
                connection, ListPartitionReassignmentsRequest(timeout_ms, named), timeout_ms
            )
            _check(answer.error_code, answer.error_message)
            return {
                TopicPartition(topic.name, one.partition_index): Assignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self._routed(timeout_ms, lambda: self._own.reassignments(wheres, timeout_ms), there)

    # -- the way there ---------------------------------------------------------------------------------------

    async def _routed(
        self,
        timeout_ms: int,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Connection], Awaitable[T]],
    ) -> T:
        """Looks for a controller that takes the request until the time is up. Raises NotController."""
        give_up_at = self._clock.monotonic() + timeout_ms / 1000
        while True:
            try:
                connection = await self._connection()
                if connection is None:
                    return await here()
            except AnotherController:
                if self._clock.monotonic() >= give_up_at:
                    raise
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            try:
                return await there(connection)
            finally:
                connection.abort()

    async def _connection(self) -> Connection | None:
        """None: this broker is the controller, or may become it. Raises AnotherController."""
        try:
            holder = await self._store.controller()
            if holder is None or holder == self._node_id:
                return None
            broker = (await self._store.brokers()).get(holder)
        except BrokerError as error:
            raise AnotherController(f"it is not known who is the controller: {error}") from error
        if broker is None:
            raise AnotherController(f"broker {holder} is the controller, and is not there")
        try:
            return await self._connect_to(broker.registration)
        except ClientError as error:
            raise AnotherController(f"broker {holder} is the controller, and does not answer: {error}") from error


async def _ask(connection: Connection, request: Message, timeout_ms: int) -> Any:
    """Raises NotController."""
    try:
        return await connection.request(request, timeout_ms=timeout_ms + ANSWER_MS)
    except (ClientError, WireError) as error:
        raise NotController(f"the controller's answer did not come: {error}") from error


def _check(code: int, text: str | None) -> None:
    """Raises what the controller raised, as far as it makes a difference."""
    if (refusal := _refusal(code, text)) is not None:
        raise refusal


def _refusal(number: int, text: str | None) -> BrokerError | None:
    if not number:
        return None
    code = ErrorCode.of(number)
    told = text or code.description
    if code is ErrorCode.NOT_CONTROLLER:
        return NotController(told)
    if (kind := _KINDS.get(code)) is not None:
        return kind(told)
    return ControllerRefused(told, error_code=code)


def _named(kind: Callable[[str, list[int]], T], wheres: Collection[TopicPartition] | None) -> list[T] | None:
    """Null names all partitions."""
    return None if wheres is None else [kind(*each) for each in by_topic(wheres).items()]


def _reassignable(wanted: Mapping[TopicPartition, Sequence[int] | None]) -> list[ReassignableTopic]:
    def replicas(where: TopicPartition) -> list[int] | None:
        return None if (target := wanted[where]) is None else list(target)

    return [
        ReassignableTopic(
            name, [ReassignablePartition(index, replicas(TopicPartition(name, index))) for index in indexes]
        )
        for name, indexes in by_topic(wanted).items()
    ]


def _creatable(new: NewTopic) -> CreatableTopic:
    assigned = new.assignment or {}
    return CreatableTopic(
        new.name,
        new.partitions,
        new.replication_factor,
        [CreatableReplicaAssignment(index, list(nodes)) for index, nodes in assigned.items()],
        [CreatableTopicConfig(name, value) for name, value in new.configs.items()],
    )


def _described(result: CreatableTopicResult) -> TopicState:
    """A topic that this broker was not told of yet, or that was only validated: its brokers are not known."""
    state = PartitionState(NO_LEADER, -1, (NO_LEADER,) * result.replication_factor, ())
    configs = {
        config.name: config.value
        for config in result.configs or ()
        if config.config_source == ConfigSource.TOPIC and config.value is not None
    }
    return TopicState(result.name, result.topic_id, (state,) * result.num_partitions, configs)
