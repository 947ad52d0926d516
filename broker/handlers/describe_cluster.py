"""DescribeCluster, v0-1 (KIP-700): the cluster's id and brokers. v1 asks for an endpoint type: there are brokers
only.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.metadata import NO_CONTROLLER, cluster_operations
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


async def handle(broker: Broker, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(error_code=code, error_message=code.description)
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=NO_CONTROLLER if broker.view.controller is None else broker.view.controller,
        brokers=[
            DescribeClusterBroker(node_id, endpoint.host, endpoint.port, rack)
            for node_id, (endpoint, rack) in broker.view.endpoints(context.listener).items()
        ],
        cluster_authorized_operations=cluster_operations(
            context.rights, show=request.include_cluster_authorized_operations
        ),
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 1), handle=handle)
