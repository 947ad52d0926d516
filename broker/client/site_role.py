"""A site's role, asked of and set at its brokers; Apache Kafka's have none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_these_brokers, await_every_broker, both, split_failures
from broker.client.limits import LAGGARD_MS
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.wire.site_role import SITE_CONFIGS, SITE_ROLE, SITE_STANDBY, SiteRole, SiteStanding
from broker.wire.vocabulary import BROKER_RESOURCE, ConfigOperation


class SiteHasNoRoles(ClientError):
    """The site's brokers are not farshore's own."""

    hint = (
        "stop its clients, or refuse them there by ACLs (freeze_principals in farshore.toml, docs/operating.md); in a "
        "move a freeze_hook can do it (docs/configuration.md)"
    )


class SiteRoleChanged(ClientError):
    """Somebody else changed the site's role since it was read."""

    hint = "see `farshore site role`, then decide again"


class SiteRoleNotEverywhere(ClientError):
    """The role is set, and some brokers of the site have not said that they go by it: they may still take records."""

    retriable = True
    hint = "see `farshore site role` and the brokers' logs, then set it again"


async def site_standings(
    cluster: Cluster, *, laggard_ms: int = LAGGARD_MS
) -> Mapping[int, SiteStanding | ClientError | None]:
    """What each broker of the cluster goes by, or why it does not say (`laggard_ms` behind the first that does); None:
    it has no roles. From then on `any_connection` gives a broker that answers. Raises ClientError where the cluster
    does not answer at all.
    """

    def asked(node_ids: Iterable[int]) -> Coroutine[Any, Any, dict[int, SiteStanding | ClientError | None]]:
        return ask_these_brokers(cluster, node_ids, partial(_told_by, cluster), laggard_ms)

    known = cluster.nodes.keys()
    told, _ = await both(asked(known), cluster.find_answering())  # beside the question who there is
    if came := cluster.nodes.keys() - known:
        told |= await asked(came)
    stays = [one for one, said in told.items() if one in cluster.nodes or not isinstance(said, ClientError)]
    return {node_id: told[node_id] for node_id in sorted(stays)}


async def site_standing(cluster: Cluster) -> SiteStanding | None:
    """The newest that a broker goes by; None where the cluster has no roles. Raises ClientError where none says."""
    retry = cluster.retry()
    while True:
        told, failures = split_failures(await site_standings(cluster))
        if told:
            known = [standing for standing in told.values() if standing is not None]
            return max(known, key=lambda standing: standing.epoch, default=None)
        await retry.pause(next(iter(failures.values())))


async def set_site_role(
    cluster: Cluster,
    role: SiteRole,
    reason: str,
    known: SiteStanding | None,
    topics: Sequence[str] = (),
    standby: Sequence[str] = (),
    check: Callable[[], Awaitable[None]] | None = None,
) -> SiteStanding:
    """Follows `known`, and returns when every broker of the site has said that it goes by it. `topics`: regular
    expressions of those that the role is of; none: all. `standby`: as `SiteStanding` has it. `check`: awaited directly
    before each request to change it, behind the look that `known` comes from; raises where it is not to be changed.

    Raises SiteHasNoRoles (`known` is None), SiteRoleChanged, SiteRoleNotEverywhere, and ClientError where it is not
    known whether it was changed.
    """
    if known is None:
        raise has_no_roles(cluster.site.name)
    wanted = known.then(role, reason, topics, standby)
    values = ({SITE_STANDBY: ""} if known.standby else {}) | wanted.configs()
    configs = [AlterableConfig(name, ConfigOperation.SET, value) for name, value in values.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, "", configs)])
    retry = cluster.retry()
    while True:  # what was done already may be asked for again
        try:
            connection = await cluster.any_connection()
            if check is not None:
                await check()
            (answer,) = (await connection.request(request)).responses
            if not answer.error_code:
                break
            refused = KafkaError(answer.error_code, f"role of {cluster.site.name}", answer.error_message)
            if refused.code is not ErrorCode.INVALID_UPDATE_VERSION:
                raise refused
            if await site_standing(cluster) == wanted:
                break
            raise SiteRoleChanged(f"the role of {cluster.site.name} was changed by somebody else: {refused}")
        except ClientError as error:
            await retry.pause(error)
            await cluster.find_answering()
    await await_site_role(cluster, wanted)
    return wanted


def has_no_roles(site: str) -> SiteHasNoRoles:
    return SiteHasNoRoles(f"{site} is not a site of farshore's own brokers: none refuses writes")


async def await_site_role(cluster: Cluster, wanted: SiteStanding) -> None:
    """Returns when every broker of the site has said that it goes by this one. Raises SiteRoleNotEverywhere."""

    def not_everywhere(why: str) -> SiteRoleNotEverywhere:
        return SiteRoleNotEverywhere(
            f"it is not known of every broker of {cluster.site.name} that it is {wanted.role}: {why}"
        )

    patience_ms = cluster.limits.retry_timeout_ms  # slow is not silent
    asking = partial(site_standings, cluster, laggard_ms=patience_ms)
    await await_every_broker(cluster, asking, lambda at: at == wanted, not_everywhere)


async def _told_by(cluster: Cluster, node_id: int) -> SiteStanding | None:
    resource = DescribeConfigsResource(BROKER_RESOURCE, str(node_id), list(SITE_CONFIGS))
    (result,) = (await (await cluster.connection(node_id)).request(DescribeConfigsRequest([resource]))).results
    if result.error_code:
        raise KafkaError(result.error_code, f"role of {cluster.site.name} at broker {node_id}", result.error_message)
    configs = {config.name: config.value for config in result.configs if config.value is not None}
    return SiteStanding.of(configs) if SITE_ROLE in configs else None
