"""ACLs of any kind as values: what a cluster has, made and removed one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.client.acls import ACLS_PER_REQUEST
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_any_broker, ask_each_broker, await_every_broker
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.schema import Message
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource


class Acl(NamedTuple):
    """One ACL, in the order of Kafka's messages. Numbers are Kafka's, also those that this version has no name for."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def is_denial(self) -> bool:
        return self.permission_type == AclPermission.DENY

    @property
    def resource(self) -> str:
        """As kafka-acls has it: topic orders-, prefixed."""
        pattern = "" if self.pattern_type == AclPattern.LITERAL else f", {_word(AclPattern, self.pattern_type)}"
        return f"{_word(AclResource, self.resource_type)} {self.resource_name}{pattern}"

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        verb = _word(AclPermission, self.permission_type)
        return f"{verb} {self.principal}{host} {operation_word(self.operation)} on {self.resource}"


def operation_word(operation: int) -> str:
    """As kafka-acls has it: DescribeConfigs; the number where there is no name for it."""
    if operation not in set(AclOperation):
        return str(operation)
    return AclOperation(operation).word


def _word(kind: type[AclResource | AclPattern | AclPermission], code: int) -> str:
    return kind(code).name.lower() if code in set(kind) else str(code)


async def describe_acls(cluster: Cluster, kinds: Iterable[AclResource]) -> frozenset[Acl]:
    """All about resources of these kinds, as one broker knows them.

    Raises KafkaError (SECURITY_DISABLED where the cluster has no authorizer, CLUSTER_AUTHORIZATION_FAILED where this
    client may not look), ClientError.
    """
    return await ask_any_broker(cluster, lambda connection: _known(cluster, connection, kinds))


async def _known(cluster: Cluster, connection: Connection, kinds: Iterable[AclResource]) -> frozenset[Acl]:
    found: set[Acl] = set()
    for kind in kinds:
        everything = kind, None, AclPattern.ANY, None, None, AclOperation.ANY, AclPermission.ANY
        answer = await connection.request(DescribeAclsRequest(*everything))
        if answer.error_code:
            what = f"see the ACLs of {cluster.site.name}"
            raise KafkaError(ErrorCode.of(answer.error_code), what, answer.error_message)
        for resource in answer.resources:
            at = resource.resource_type, resource.resource_name, resource.pattern_type
            found |= {Acl(*at, acl.principal, acl.host, acl.operation, acl.permission_type) for acl in resource.acls}
    return frozenset(found)


class AclsNotEverywhere(ClientError):
    """The ACLs are made, and some brokers of the site have not said that they go by them."""

    retriable = True
    hint = "see the brokers' logs; `kafka-acls --list` says what is to hold"


async def await_acls(cluster: Cluster, present: Collection[Acl]) -> None:
    """Returns when each broker goes by these. Raises AclsNotEverywhere, ClientError."""
    kinds = sorted({AclResource(acl.resource_type) for acl in present})

    def not_everywhere(why: str) -> AclsNotEverywhere:
        return AclsNotEverywhere(
            f"it is not known of every broker of {cluster.site.name} that it goes by new ACLs: {why}"
        )

    await await_every_broker(
        cluster,
        lambda: ask_each_broker(cluster, lambda connection: _known(cluster, connection, kinds)),
        lambda found: found.issuperset(present),
        not_everywhere,
    )


async def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, KafkaError]:
    """Make them, in this order; what is there already may be made again -> those that failed. Raises ClientError."""
    failures: dict[Acl, KafkaError] = {}
    for wanted in _in_requests(acls):
        request = CreateAclsRequest([AclCreation(*acl) for acl in wanted])
        answer = await ask_any_broker(cluster, partial(_request, request=request))
        for acl, result in zip(wanted, answer.results, strict=True):
            if result.error_code:
                failures[acl] = _failure(cluster, acl, result.error_code, result.error_message)
    return failures


async def delete_acls(cluster: Cluster, acls: Sequence[Acl]) -> dict[Acl, KafkaError]:
    """Just these, in this order; what is not there need not be -> those that failed. Raises ClientError."""
    failures: dict[Acl, KafkaError] = {}
    for unwanted in _in_requests(acls):
        request = DeleteAclsRequest([DeleteAclsFilter(*acl) for acl in unwanted])
        answer = await ask_any_broker(cluster, partial(_request, request=request))
        for acl, result in zip(unwanted, answer.filter_results, strict=True):
            told = [(result.error_code, result.error_message)]
            told += [(one.error_code, one.error_message) for one in result.matching_acls]
            for code, message in told:
                if code:
                    failures[acl] = _failure(cluster, acl, code, message)
    return failures


async def _request(connection: Connection, request: Message) -> Any:
    return await connection.request(request)


def _in_requests(acls: Sequence[Acl]) -> Iterator[Sequence[Acl]]:
    for at in range(0, len(acls), ACLS_PER_REQUEST):
        yield acls[at : at + ACLS_PER_REQUEST]


def _failure(cluster: Cluster, acl: Acl, code: int, message: str | None) -> KafkaError:
    return KafkaError(ErrorCode.of(code), f"{acl} at {cluster.site.name}", message)
