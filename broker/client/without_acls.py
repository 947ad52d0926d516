"""What a cluster lets everybody do with what no ACL is about: nothing, or all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

from broker.client.acl_bindings import describe_acls
from broker.client.acls import writable_topics
from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.fanout import ask_these_brokers, split_failures
from broker.client.limits import LAGGARD_MS
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.wire.vocabulary import BROKER_RESOURCE, EVERY_RESOURCE, AclPattern, AclResource

ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


class OpenTopics(NamedTuple):
    """That no ACL is about, and that everybody may use by that: `is_known`, or may for all that is known."""

    names: tuple[str, ...] = ()
    is_known: bool = False


async def open_without_acls(cluster: Cluster, topics: Iterable[str]) -> OpenTopics:
    """Those of these topics that no ACL is about, and that everybody may use by that, or may for all that is known: of
    such a one the first ACL, whatever it denies and to whom, takes every right on it from all but super users. What
    this client itself may not write to is not open to everybody. Raises KafkaError as `describe_acls`, ClientError.
    """
    names = sorted(set(topics))
    acls = await describe_acls(cluster, [AclResource.TOPIC]) if names else frozenset()
    exact = {acl.resource_name for acl in acls if acl.pattern_type == AclPattern.LITERAL}
    prefixes = tuple({acl.resource_name for acl in acls if acl.pattern_type == AclPattern.PREFIXED})
    if EVERY_RESOURCE in exact:
        return OpenTopics()
    without = [name for name in names if name not in exact and not name.startswith(prefixes)]
    everybody_may = await _everybody_may(cluster) if without else False
    if everybody_may is False:
        return OpenTopics()
    writable = await writable_topics(cluster, without)
    is_open = [any(name in said for said in writable.values()) for name in without]
    return OpenTopics(tuple(compress(without, is_open)), everybody_may is True)


async def _everybody_may(cluster: Cluster) -> bool | None:
    """Whether everybody may do everything with what no ACL is about, at one broker at least. None: that is not known.
    Apache Kafka's brokers say that the authorizer's setting is there, and not what it is; where it is not, nobody may.
    """
    said, _ = split_failures(await ask_these_brokers(cluster, cluster.nodes, partial(_told_by, cluster), LAGGARD_MS))
    told = set(said.values())
    return True if "true" in told else False if told == {"false"} else None


async def _told_by(cluster: Cluster, node_id: int) -> str | None:
    """As the broker shows it; None: it hides it. Raises ClientError."""
    asked = DescribeConfigsResource(BROKER_RESOURCE, str(node_id), [ALLOW_EVERYONE])
    (result,) = (await (await cluster.connection(node_id)).request(DescribeConfigsRequest([asked]))).results
    if result.error_code:
        raise KafkaError(result.error_code, f"configs of broker {node_id} of {cluster.site.name}", result.error_message)
    found = [config.value for config in result.configs if config.name == ALLOW_EVERYONE]
    return None if None in found else "".join(filter(None, found)).strip().lower() or "false"
