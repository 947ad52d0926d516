"""A stand-in for Apache Kafka's authorizer, before a broker of ours: ACLs of topics, who is denied, who may see them.

What it answers is held against Kafka 3.9 and 4.3 by tests/interop/test_acls.py. A client's principal is User: and its
client id; whatever begins with `farshore` is User:farshore. Everybody may do all that is not denied here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

import broker.connection
from broker.broker import Broker
from broker.client.acl_bindings import Acl
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.table import HANDLERS
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from broker.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from broker.wire.messages.describe_cluster import DescribeClusterResponse
from broker.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation, AclPermission
from failover.freezing.denials import LEAVING_MARK, MARK

OWN = "User:farshore"
NOT_ASKED = -(2**31)


@dataclass
class Authorizer:
    """Of one site. `behind`: how many looks at the ACLs still show those of before, as of a broker that is late; what
    it goes by is what it shows. `dead_ports`: of brokers at 127.0.0.1 that are still registered. `unanswered`: where it
    is a list denials that are asked for (no marks alone) come to lie there, and nobody has an answer until `land`.
    """

    super_users: frozenset[str] = frozenset({OWN})
    operations: Mapping[str, frozenset[AclOperation]] = field(default_factory=dict)
    """Of the cluster, per principal; all where it does not say."""
    acls: set[Acl] = field(default_factory=set)
    behind: int = 0
    dead_ports: tuple[int, ...] = ()
    unanswered: list[CreateAclsRequest] | None = None
    _shown: frozenset[Acl] = frozenset()

    def changing(self) -> None:
        if not self.behind:
            self._shown = frozenset(self.acls)

    def land(self) -> None:
        """What nobody was answered to is made, though nobody waits for it any more."""
        late, self.unanswered = self.unanswered or [], None
        for request in late:
            _create(self, request, OWN)

    @property
    def known(self) -> frozenset[Acl]:
        return self._shown if self.behind else frozenset(self.acls)

    def may(self, principal: str, operation: AclOperation) -> bool:
        return operation in self.operations.get(principal, CLUSTER_OPERATIONS)

    def may_write(self, principal: str, topic: str) -> bool:
        what = (AclOperation.WRITE, AclPermission.DENY)
        denied = {acl.principal for acl in self.known if acl.resource_name == topic and acl[5:] == what}
        return principal in self.super_users or not denied & {principal, "User:*"}


def principal_of(context: RequestContext) -> str:
    client_id = context.client_id or ""
    return OWN if client_id.startswith("farshore") else f"User:{client_id}"


@contextmanager
def authorized(monkeypatch: pytest.MonkeyPatch, sites: Mapping[Broker, Authorizer]) -> Iterator[None]:
    """These brokers have an authorizer, and no roles; all others answer as they are."""

    def before(handler: Handler) -> Handler:
        async def handle(served: Broker, request: Any, context: RequestContext) -> Any:
            mine = next((found for of, found in sites.items() if of is served), None)
            if mine is None:
                return await handler.handle(served, request, context)
            return await _answer(mine, handler, served, request, context)

        return replace(handler, handle=handle, begin=None)

    with monkeypatch.context() as patched:
        table = {key: before(handler) for key, handler in HANDLERS.items()}
        patched.setattr(broker.connection, "HANDLERS", MappingProxyType(table))
        patched.setattr("broker.client.site_role.SITE_ROLE", "a config that no broker has")
        yield


def without_acl_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is asked for ACLs from here on, as behind a proxy that does not know that request."""
    table = {key: handler for key, handler in HANDLERS.items() if key != ApiKey.DESCRIBE_ACLS}
    monkeypatch.setattr(broker.connection, "HANDLERS", MappingProxyType(table))


async def _answer(mine: Authorizer, handler: Handler, served: Broker, request: Any, context: RequestContext) -> Any:
    principal = principal_of(context)
    match request:
        case ProduceRequest():
            return await _produce(mine, handler, served, request, context)
        case DescribeAclsRequest():
            return _describe(mine, request, principal)
        case CreateAclsRequest() if mine.unanswered is not None and not all(_is_mark(one) for one in request.creations):
            mine.unanswered.append(request)
            await asyncio.Event().wait()
        case CreateAclsRequest():
            return _create(mine, request, principal)
        case DeleteAclsRequest():
            return _delete(mine, request, principal)
    answer = await handler.handle(served, request, context)
    match answer:
        case MetadataResponse():
            dead = [MetadataResponseBroker(port, "127.0.0.1", port) for port in mine.dead_ports]
            answer.brokers = [*dead, *answer.brokers]  # whoever asks them in turn comes to these first
            for topic in answer.topics:
                if topic.topic_authorized_operations > 0 and not mine.may_write(principal, topic.name or ""):
                    topic.topic_authorized_operations &= ~(1 << AclOperation.WRITE)
        case DescribeClusterResponse() if answer.cluster_authorized_operations != NOT_ASKED:
            bits = (1 << operation for operation in CLUSTER_OPERATIONS if mine.may(principal, operation))
            answer.cluster_authorized_operations = sum(bits)
    return answer


async def _produce(
    mine: Authorizer, handler: Handler, served: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    names = {topic.topic_id: name for name, topic in served.view.topics.items()}

    def is_denied(data: TopicProduceData) -> bool:
        return not mine.may_write(principal_of(context), data.name or names.get(data.topic_id, ""))

    denied = [data for data in request.topic_data if is_denied(data)]
    taken = [data for data in request.topic_data if not is_denied(data)]
    answer: ProduceResponse | None = await handler.handle(served, replace(request, topic_data=taken), context)
    if answer is not None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer.responses += [
            TopicProduceResponse(
                data.name, [PartitionProduceResponse(one.index, code, -1) for one in data.partition_data], data.topic_id
            )
            for data in denied
        ]
    return answer


def _describe(mine: Authorizer, request: DescribeAclsRequest, principal: str) -> DescribeAclsResponse:
    if not mine.may(principal, AclOperation.DESCRIBE):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not authorized")
    wanted = (
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    known = mine.known
    mine.behind = max(0, mine.behind - 1)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in sorted(known):
        if _fits(acl, wanted):
            found.setdefault(acl[:3], []).append(AclDescription(*acl[3:]))
    return DescribeAclsResponse(resources=[DescribeAclsResource(*at, acls) for at, acls in found.items()])


def _is_mark(acl: AclCreation) -> bool:
    return acl.principal.startswith((MARK, LEAVING_MARK))


def _create(mine: Authorizer, request: CreateAclsRequest, principal: str) -> CreateAclsResponse:
    if not mine.may(principal, AclOperation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return CreateAclsResponse(results=[AclCreationResult(code, "not authorized") for _ in request.creations])
    mine.changing()
    mine.acls |= {
        Acl(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in request.creations
    }
    return CreateAclsResponse(results=[AclCreationResult() for _ in request.creations])


def _delete(mine: Authorizer, request: DeleteAclsRequest, principal: str) -> DeleteAclsResponse:
    if not mine.may(principal, AclOperation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(code, "not authorized")] * len(request.filters)
        )
    mine.changing()
    results = []
    for one in request.filters:
        wanted = (
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
        gone = sorted(acl for acl in mine.acls if _fits(acl, wanted))
        mine.acls -= set(gone)
        results.append(DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(0, None, *acl) for acl in gone]))
    return DeleteAclsResponse(filter_results=results)


def _fits(acl: Acl, wanted: tuple[Any, ...]) -> bool:
    """None, and ANY, are all of them."""
    anything = (None, AclOperation.ANY, AclPermission.ANY)
    return all(asked in anything or asked == has for has, asked in zip(acl, wanted, strict=True))
