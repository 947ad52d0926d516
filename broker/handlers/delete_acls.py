"""DeleteAcls, v1-3: all that each filter takes; what is not there need not be. v2 prefixed patterns (KIP-290)."""

from __future__ import annotations

from broker.access.acls import AclFilter, AclInvalid, check_filter
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.describe_acls import NO_AUTHORIZER, filter_of
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    try:
        context.rights.require(AclOperation.ALTER, AclResource.CLUSTER)
    except BrokerError as error:
        return _all(request, error.error_code, str(error))
    if broker.acls.authorizer is None:
        return _all(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters = [filter_of(asked) for asked in request.filters]
    faults = [_fault(wanted) for wanted in filters]
    try:
        removed = await broker.acls.remove([w for w, fault in zip(filters, faults, strict=True) if fault is None])
    except BrokerError as error:
        return _all(request, error.error_code, str(error))
    taken = iter(removed)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[DeleteAclsMatchingAcl(0, None, *acl) for acl in next(taken)]
            )
            if fault is None
            else DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, fault)
            for fault in faults
        ]
    )


def _fault(wanted: AclFilter) -> str | None:
    try:
        check_filter(wanted)
    except AclInvalid as error:
        return str(error)
    return None


def _all(request: DeleteAclsRequest, code: ErrorCode, text: str) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, text) for _ in request.filters])


HANDLER = Handler(api=ApiKey.DELETE_ACLS, versions=(1, 3), handle=handle)
