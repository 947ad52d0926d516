"""DescribeAcls, v1-3: those that this broker goes by. v2 prefixed patterns, and all that hold for a name (KIP-290).

Without an authorizer the answer is SECURITY_DISABLED, as Kafka's is. MirrorMaker 2 asks regularly.
"""

from __future__ import annotations

from typing import Final

from broker.access.acls import AclFilter, AclInvalid, check_filter
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_acls import DeleteAclsFilter
from broker.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker."


async def handle(broker: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    try:
        context.rights.require(AclOperation.DESCRIBE, AclResource.CLUSTER)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.error_code, error_message=str(error))
    if broker.acls.authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    wanted = filter_of(request)
    try:
        check_filter(wanted)
    except AclInvalid as error:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(*pattern, [AclDescription(*acl[3:]) for acl in acls])
            for pattern, acls in broker.acls.authorizer.acls.taken_by(wanted).items()
        ],
    )


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_ACLS, versions=(1, 3), handle=handle)
