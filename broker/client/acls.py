"""ACLs that deny principals to write to topics, and what a cluster lets this client do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeVar

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_any_broker, side_by_side, split_failures
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.vocabulary import ANY_HOST, LITERAL_PATTERN, TOPIC_RESOURCE, AclOperation, AclPermission

N = TypeVar("N", str, None)

ACLS_PER_REQUEST: Final = 1_000


class WriteDenial(NamedTuple):
    """The ACL that denies a principal (`User:*`: everybody but super users) to write to one topic, from any host."""

    topic: str
    principal: str


class DenialsNotEverywhere(ClientError):
    """The ACLs are changed, and some brokers of the site do not go by them yet."""

    retriable = True
    hint = "see the brokers' logs; `kafka-acls --list` says what each of them knows"


async def write_denials(cluster: Cluster) -> frozenset[WriteDenial]:
    """Those of all topics that a broker knows of: one may be behind. Raises KafkaError (SECURITY_DISABLED where the
    cluster has no authorizer, CLUSTER_AUTHORIZATION_FAILED where this client may not look), ClientError where none
    answers.
    """
    retry = cluster.retry()
    while True:
        try:
            await cluster.metadata(())
            told, failures = split_failures(await _told_by_each(cluster))
            if told:
                return frozenset[WriteDenial]().union(*told.values())
            raise next(iter(failures.values()))
        except ClientError as error:
            await retry.pause(error)


async def create_denials(cluster: Cluster, denials: Iterable[WriteDenial]) -> None:
    """What is there already may be made again. Raises ClientError."""
    wanted = [AclCreation(*_denial(*one)) for one in sorted(denials)]

    async def ask(connection: Connection) -> None:
        for at in range(0, len(wanted), ACLS_PER_REQUEST):
            asked = wanted[at : at + ACLS_PER_REQUEST]
            answer = await connection.request(CreateAclsRequest(asked))
            for acl, result in zip(asked, answer.results, strict=True):
                _check(cluster, result.error_code, result.error_message, f"deny {acl.principal} {acl.resource_name}")

    await ask_any_broker(cluster, ask)


async def delete_denials(cluster: Cluster, denials: Iterable[WriteDenial]) -> None:
    """Just these; what is not there need not be. Raises ClientError."""
    wanted = [DeleteAclsFilter(*_denial(*one)) for one in sorted(denials)]

    async def ask(connection: Connection) -> None:
        for at in range(0, len(wanted), ACLS_PER_REQUEST):
            asked = wanted[at : at + ACLS_PER_REQUEST]
            answer = await connection.request(DeleteAclsRequest(asked))
            for one, result in zip(asked, answer.filter_results, strict=True):
                what = f"let {one.principal_filter} write to {one.resource_name_filter}"
                _check(cluster, result.error_code, result.error_message, what)
                for matching in result.matching_acls:
                    _check(cluster, matching.error_code, matching.error_message, what)

    await ask_any_broker(cluster, ask)


async def await_denials(
    cluster: Cluster, present: Collection[WriteDenial], absent: Collection[WriteDenial] = ()
) -> None:
    """Returns when each broker goes by these: one that says so refuses, or takes, whatever it is asked from then on.

    Raises DenialsNotEverywhere, ClientError.
    """
    retry = cluster.retry()
    while True:
        try:
            await cluster.metadata(())
            told, failures = split_failures(await _told_by_each(cluster))
            await cluster.metadata(())  # who came meanwhile is asked, too
            done = {n for n, found in told.items() if found.issuperset(present) and found.isdisjoint(absent)}
            late = sorted({*told, *failures, *cluster.nodes} - done)
            if not late:
                return
            missing = f"brokers {', '.join(map(str, late))} do not go by the ACLs yet"
        except ClientError as error:
            if not error.retriable:
                raise
            missing = str(error)
        text = f"it is not known of every broker of {cluster.site.name} whom it lets write: {missing}"
        await retry.pause(DenialsNotEverywhere(text))


async def cluster_operations(cluster: Cluster) -> frozenset[AclOperation]:
    """What this client may do to the cluster itself: who may not ALTER it makes no ACLs. Raises ClientError."""

    async def ask(connection: Connection) -> frozenset[AclOperation]:
        answer = await connection.request(DescribeClusterRequest(include_cluster_authorized_operations=True))
        _check(cluster, answer.error_code, answer.error_message, "describe the cluster")
        return frozenset(one for one in AclOperation if _is_in(one, answer.cluster_authorized_operations))

    return await ask_any_broker(cluster, ask)


async def writable_topics(cluster: Cluster, topics: Iterable[str]) -> frozenset[str]:
    """Those of them to which this client may write. Raises ClientError."""
    names = [MetadataRequestTopic(name=name) for name in sorted(set(topics))]

    async def ask(connection: Connection) -> frozenset[str]:
        request = MetadataRequest(names, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
        found = (await connection.request(request)).topics
        may = [topic for topic in found if _is_in(AclOperation.WRITE, topic.topic_authorized_operations)]
        return frozenset(topic.name for topic in may if topic.name is not None and not topic.error_code)

    return await ask_any_broker(cluster, ask)


async def _told_by_each(cluster: Cluster) -> dict[int, frozenset[WriteDenial] | ClientError]:
    nodes = list(cluster.nodes)
    return dict(zip(nodes, await side_by_side(_told_by(cluster, node_id) for node_id in nodes), strict=True))


async def _told_by(cluster: Cluster, node_id: int) -> frozenset[WriteDenial] | ClientError:
    try:
        return await _known(await cluster.connection(node_id))
    except ClientError as error:
        return error


async def _known(connection: Connection) -> frozenset[WriteDenial]:
    answer = await connection.request(DescribeAclsRequest(*_denial(None, None)))
    if answer.error_code:
        raise KafkaError(answer.error_code, "ACLs of topics", answer.error_message)
    return frozenset(
        WriteDenial(resource.resource_name, acl.principal) for resource in answer.resources for acl in resource.acls
    )


def _denial(topic: N, principal: N) -> tuple[int, N, int, N, str, AclOperation, AclPermission]:
    """As Kafka says it, in each of its requests; None: of any."""
    return TOPIC_RESOURCE, topic, LITERAL_PATTERN, principal, ANY_HOST, AclOperation.WRITE, AclPermission.DENY


def _check(cluster: Cluster, code: int, message: str | None, what: str) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), f"{what} at {cluster.site.name}", message)


def _is_in(operation: AclOperation, authorized_operations: int) -> bool:
    """Kafka says the lowest number where it was not asked."""
    return authorized_operations > 0 and bool(authorized_operations >> operation & 1)
