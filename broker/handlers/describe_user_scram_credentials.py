"""DescribeUserScramCredentials, v0 (KIP-554): which mechanisms users have, and with how many iterations.

Of those in the metadata. Who stands in the broker's file alone is not there, as far as Kafka's tools can change.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.wire.vocabulary import SCRAM_MECHANISMS, AclOperation, AclResource

_CODES: Final = {mechanism: code for code, mechanism in SCRAM_MECHANISMS.items()}


async def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    try:
        context.rights.require(AclOperation.DESCRIBE, AclResource.CLUSTER)
    except BrokerError as error:
        code, text = error.error_code, str(error)
        # One for each who was asked for, and without his name, as Kafka has it.
        results = [DescribeUserScramCredentialsResult("", code, text) for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=text, results=results)
    named = Counter(asked.name for asked in request.users or ()) or Counter(dict.fromkeys(broker.users.stored, 1))
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_described(broker, user, count) for user, count in sorted(named.items())]
    )


def _described(broker: Broker, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    stored = broker.users.stored.get(user)
    if stored is None:
        return DescribeUserScramCredentialsResult(
            user, ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}"
        )
    infos = [CredentialInfo(_CODES[mechanism], one.iterations) for mechanism, one in sorted(stored.items())]
    return DescribeUserScramCredentialsResult(user, error_message=None, credential_infos=infos)


HANDLER = Handler(api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), handle=handle)
