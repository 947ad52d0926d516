"""DescribeAcls, v1-3: there is no authoriser, and SECURITY_DISABLED is what Kafka answers then. MirrorMaker 2 asks
regularly.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(broker: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker."
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_ACLS, versions=(1, 3), handle=handle)
