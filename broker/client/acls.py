"""ACLs that deny principals to write to topics, and what a cluster lets this client do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_any_broker, ask_each_broker, await_every_broker, split_failures
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from broker.wire.messages.describe_acls import DescribeAclsRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.vocabulary import ANY_HOST, AclOperation, AclPattern, AclPermission, AclResource

N = TypeVar("N", str, None)

FREEZE_MARK: Final = "User:farshore-freeze/"
"""How the principals begin that are nobody's: by them a freeze's denials are known (`failover/freezing/denials.py`)."""
THAW_MARK: Final = "User:farshore-thaw/"
ACLS_PER_REQUEST: Final = 1_000
"""As many at least, where there are so many, and all of one topic: what belongs together is made, and goes, at once."""


class WriteDenial(NamedTuple):
    """The ACL that denies a principal (`User:*`: everybody but super users) to write to one topic, from any host."""

    topic: str
    principal: str


@dataclass(frozen=True, slots=True)
class KnownDenials:
    """Of all topics, as each broker goes by them, by node id, or why it does not say; one at least says."""

    by_broker: Mapping[int, frozenset[WriteDenial] | ClientError]

    @property
    def said(self) -> dict[int, frozenset[WriteDenial]]:
        """Of those brokers that say."""
        return split_failures(self.by_broker)[0]

    @property
    def by_any(self) -> frozenset[WriteDenial]:
        """A broker that is behind may be the only one, and it may have been taken back."""
        return frozenset[WriteDenial]().union(*self.said.values())

    @property
    def by_all(self) -> frozenset[WriteDenial]:
        """All brokers that say go by these."""
        first, *others = self.said.values()
        return first.intersection(*others)

    def without(self, denials: Collection[WriteDenial]) -> tuple[int, ...]:
        """The brokers that do not say that they go by all of these."""
        return tuple(sorted(self.by_broker.keys() - {node for node, at in self.said.items() if at.issuperset(denials)}))


@dataclass
class Asked:
    """How many requests were made for each denial, and how many of those were answered, be it with an error."""

    sent: Counter[WriteDenial] = field(default_factory=Counter)
    answered: Counter[WriteDenial] = field(default_factory=Counter)

    @property
    def unanswered(self) -> frozenset[WriteDenial]:
        """What a broker may read, and make, when nobody waits for it any more."""
        return frozenset(self.sent - self.answered)


class DenialsNotEverywhere(ClientError):
    """The ACLs are changed, and some brokers of the site have not said that they go by them."""

    retriable = True
    hint = "see `farshore site role` and the brokers' logs; `kafka-acls --list` says what is to hold"


async def known_denials(cluster: Cluster, behind: Collection[WriteDenial] = ()) -> KnownDenials:
    """What each broker goes by. `behind`: only of brokers that go by these; what was made before them these know, too.
    Raises KafkaError (SECURITY_DISABLED where the cluster has no authorizer, CLUSTER_AUTHORIZATION_FAILED where this
    client may not look), DenialsNotEverywhere where no broker goes by `behind`, ClientError where none answers.
    """
    retry = cluster.retry()
    while True:
        try:
            await cluster.metadata(())
            told = await ask_each_broker(cluster, partial(_known, cluster))
            said, failures = split_failures(told)
            if not said:
                raise next(iter(failures.values()))
            if seeing := {node: at for node, at in said.items() if at.issuperset(behind)}:
                return KnownDenials({**failures, **seeing} if behind else told)
            raise DenialsNotEverywhere(f"no broker of {cluster.site.name} has said that it goes by the new ACLs")
        except ClientError as error:
            await retry.pause(error)


async def create_denials(
    cluster: Cluster,
    denials: Iterable[WriteDenial],
    check: Callable[[], Awaitable[None]] | None = None,
    asked: Asked | None = None,
) -> None:
    """What is there already may be made again. `check`: awaited directly before each request, and raises where that is
    not to be made; `asked`: counts them. Raises ClientError.
    """
    asked, requests = asked or Asked(), list(_in_requests(denials))

    async def ask(connection: Connection) -> None:
        for wanted in requests:
            if check is not None:
                await check()
            asked.sent.update(wanted)
            answer = await connection.request(CreateAclsRequest([AclCreation(*_denial(*one)) for one in wanted]))
            asked.answered.update(wanted)
            for (topic, principal), result in zip(wanted, answer.results, strict=True):
                _check(cluster, result.error_code, result.error_message, f"deny {principal} {topic}")

    await ask_any_broker(cluster, ask)


async def delete_denials(
    cluster: Cluster, denials: Iterable[WriteDenial], check: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Just these; what is not there need not be. `check` as in `create_denials`. Raises ClientError."""
    requests = [[DeleteAclsFilter(*_denial(*one)) for one in each] for each in _in_requests(denials)]

    async def ask(connection: Connection) -> None:
        for asked in requests:
            if check is not None:
                await check()
            answer = await connection.request(DeleteAclsRequest(asked))
            for one, result in zip(asked, answer.filter_results, strict=True):
                what = f"let {one.principal_filter} write to {one.resource_name_filter}"
                _check(cluster, result.error_code, result.error_message, what)
                for matching in result.matching_acls:
                    _check(cluster, matching.error_code, matching.error_message, what)

    await ask_any_broker(cluster, ask)


def _in_requests(denials: Iterable[WriteDenial]) -> Iterator[list[WriteDenial]]:
    asked: list[WriteDenial] = []
    for _, of_topic in groupby(sorted(denials), key=lambda one: one.topic):
        asked += of_topic
        if len(asked) >= ACLS_PER_REQUEST:
            yield asked
            asked = []
    if asked:
        yield asked


async def await_denials(
    cluster: Cluster, present: Collection[WriteDenial], absent: Collection[WriteDenial] = ()
) -> None:
    """Returns when each broker goes by these: one that says so refuses, or takes, whatever it is asked from then on.

    Raises DenialsNotEverywhere, ClientError.
    """

    def not_everywhere(why: str) -> DenialsNotEverywhere:
        return DenialsNotEverywhere(f"it is not known of every broker of {cluster.site.name} whom it lets write: {why}")

    await await_every_broker(
        cluster,
        # Slow is not silent.
        lambda: ask_each_broker(cluster, partial(_known, cluster), laggard_ms=cluster.limits.retry_timeout_ms),
        lambda found: found.issuperset(present) and found.isdisjoint(absent),
        not_everywhere,
    )


async def cluster_operations(cluster: Cluster) -> frozenset[AclOperation]:
    """What this client may do to the cluster itself: who may not ALTER it makes no ACLs. Raises ClientError."""

    async def ask(connection: Connection) -> frozenset[AclOperation]:
        answer = await connection.request(DescribeClusterRequest(include_cluster_authorized_operations=True))
        _check(cluster, answer.error_code, answer.error_message, "describe the cluster")
        return frozenset(one for one in AclOperation if _is_in(one, answer.cluster_authorized_operations))

    return await ask_any_broker(cluster, ask)


async def writable_topics(cluster: Cluster, topics: Iterable[str]) -> dict[int, frozenset[str]]:
    """Those of them to which this client may write, by each broker that says it. Raises ClientError where none does."""
    told = await topic_operations(cluster, topics)
    return {
        node: frozenset(topic for topic, operation in may if operation is AclOperation.WRITE)
        for node, may in told.items()
    }


async def topic_operations(cluster: Cluster, topics: Iterable[str]) -> dict[int, frozenset[tuple[str, AclOperation]]]:
    """What this client may do to these topics, by each broker that says it. Raises ClientError where none does."""
    names = [MetadataRequestTopic(name=name) for name in sorted(set(topics))]

    async def ask(connection: Connection) -> frozenset[tuple[str, AclOperation]]:
        request = MetadataRequest(names, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
        found = (await connection.request(request)).topics
        return frozenset(
            (topic.name, operation)
            for topic in found
            if topic.name is not None and not topic.error_code
            for operation in AclOperation
            if _is_in(operation, topic.topic_authorized_operations)
        )

    retry = cluster.retry()
    while True:
        said, failures = split_failures(await ask_each_broker(cluster, ask))
        if said:
            return said
        await retry.pause(next(iter(failures.values())))


async def _known(cluster: Cluster, connection: Connection) -> frozenset[WriteDenial]:
    answer = await connection.request(DescribeAclsRequest(*_denial(None, None)))
    if answer.error_code:
        raise KafkaError(answer.error_code, f"ACLs of topics at {cluster.site.name}", answer.error_message)
    return frozenset(
        WriteDenial(resource.resource_name, acl.principal) for resource in answer.resources for acl in resource.acls
    )


def _denial(topic: N, principal: N) -> tuple[int, N, int, N, str, AclOperation, AclPermission]:
    """As Kafka says it, in each of its requests; None: of any."""
    literal = AclPattern.LITERAL
    return AclResource.TOPIC, topic, literal, principal, ANY_HOST, AclOperation.WRITE, AclPermission.DENY


def _check(cluster: Cluster, code: int, message: str | None, what: str) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), f"{what} at {cluster.site.name}", message)


def _is_in(operation: AclOperation, authorized_operations: int) -> bool:
    """Kafka says the lowest number where it was not asked."""
    return authorized_operations > 0 and bool(authorized_operations >> operation & 1)
