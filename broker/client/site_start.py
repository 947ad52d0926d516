"""Whether a site of farshore's own brokers takes writes as soon as it is started again."""

from __future__ import annotations

from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import side_by_side
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.wire.vocabulary import BROKER_RESOURCE

SITE_START_FROZEN: Final = "site.start.frozen"
"""As a broker shows what it was started with; Apache Kafka's know no such thing."""


async def brokers_starting_active(cluster: Cluster) -> tuple[int, ...]:
    """Those that have said that they would not wait for a person; none of Apache Kafka. Raises ClientError where no
    broker says anything.
    """

    async def told_by(node_id: int) -> bool | ClientError:
        asked = DescribeConfigsResource(BROKER_RESOURCE, str(node_id), [SITE_START_FROZEN])
        try:
            (result,) = (await (await cluster.connection(node_id)).request(DescribeConfigsRequest([asked]))).results
        except ClientError as error:
            return error
        if result.error_code:
            return KafkaError(result.error_code, f"configs of broker {node_id} of {cluster.site.name}")
        return any(config.name == SITE_START_FROZEN and config.value == "false" for config in result.configs)

    await cluster.metadata(())
    node_ids = sorted(cluster.nodes)
    told = dict(zip(node_ids, await side_by_side(map(told_by, node_ids)), strict=True))
    if told and all(isinstance(said, ClientError) for said in told.values()):
        raise next(said for said in told.values() if isinstance(said, ClientError))
    return tuple(node_id for node_id, said in told.items() if said is True)
