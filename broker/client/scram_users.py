"""Who can log in by SCRAM: names, mechanisms and iterations. What a password was made into no cluster gives away."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.fanout import ask_any_broker
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

_ANY_ONE: Final = [UserName("nobody")]
"""Whether or not there is such a user."""
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class ScramCredential(NamedTuple):
    """One of a user's: how, never what."""

    user: str
    mechanism: str
    iterations: int


async def scram_credentials(cluster: Cluster) -> frozenset[ScramCredential]:
    """Those of all users. Raises ClientError (KafkaError where this client may not look)."""

    async def ask(connection: Connection) -> frozenset[ScramCredential]:
        what = f"see the users of {cluster.site.name}"
        # Kafka 3.9 and 4.3 never answer who may not look and asks for all: who asks for one is told.
        for asked in (_ANY_ONE, None):
            answer = await connection.request(DescribeUserScramCredentialsRequest(asked))
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), what, answer.error_message)
        found = set()
        for user in answer.results:
            if user.error_code:
                raise KafkaError(ErrorCode.of(user.error_code), f"{what}: {user.user}", user.error_message)
            for one in user.credential_infos:
                mechanism = _MECHANISMS.get(one.mechanism, str(one.mechanism))
                found.add(ScramCredential(user.user, mechanism, one.iterations))
        return frozenset(found)

    return await ask_any_broker(cluster, ask)
