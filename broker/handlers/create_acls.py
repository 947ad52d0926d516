"""CreateAcls, v1-3: each ACL by itself; what is there already may be made again. v2 prefixed patterns (KIP-290)."""

from __future__ import annotations

from broker.access.acls import AclBinding, AclInvalid, ResourcePattern, check_binding
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.describe_acls import NO_AUTHORIZER
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    try:
        context.rights.require(AclOperation.ALTER, AclResource.CLUSTER)
    except BrokerError as error:
        return _all(request, error.error_code, str(error))
    if broker.acls.authorizer is None:
        return _all(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results, added = [], dict[ResourcePattern, set[AclBinding]]()
    for creation in request.creations:
        binding = _binding(creation)
        try:
            check_binding(binding)
            added.setdefault(binding.pattern, set()).add(binding)
            results.append(AclCreationResult())
        except AclInvalid as error:
            results.append(AclCreationResult(ErrorCode.INVALID_REQUEST, str(error)))
    try:
        await broker.acls.change(list(added), lambda pattern, known: known | added[pattern])
    except AclInvalid as error:
        return _all(request, ErrorCode.INVALID_REQUEST, str(error))
    except BrokerError as error:
        return _all(request, error.error_code, str(error))
    return CreateAclsResponse(results=results)


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _all(request: CreateAclsRequest, code: ErrorCode, text: str) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, text) for _ in request.creations])


HANDLER = Handler(api=ApiKey.CREATE_ACLS, versions=(1, 3), handle=handle)
