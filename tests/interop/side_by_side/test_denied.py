"""Requests of those who lack a right, to Apache Kafka 3.9 and 4.3 with StandardAuthorizer and to our broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from broker.wire.api import ApiKey
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission
from tests.broker.handlers.group_rights import GROUP_CASES
from tests.broker.handlers.rights_table import (
    FLIGHTS,
    GROUP,
    ID,
    NONE,
    Case,
    Right,
    cluster,
    group,
    topic,
    transactional,
)
from tests.broker.handlers.test_rights import served_in
from tests.broker.handlers.topic_rights import TOPIC_CASES
from tests.broker.wire_client import WireClient
from tests.interop.locked import OTHERS, PASSWORD, USER, AuthorizingBroker, AuthorizingKafkaServer
from tests.interop.side_by_side.asking import Peer, differences

BETWEEN_BROKERS = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
ASKED = [case for case in (*TOPIC_CASES, *GROUP_CASES) if case.key not in BETWEEN_BROKERS]
Op = AclOperation
RIGHTS: Final[dict[str, list[Right]]] = {
    "limited": [],
    "shop": [
        topic(Op.WRITE),
        topic(Op.DESCRIBE, NONE),
        transactional(Op.WRITE),
        group(Op.DESCRIBE),
        cluster(Op.DESCRIBE),
    ],
    "reader": [
        topic(Op.READ),
        topic(Op.ALTER_CONFIGS, NONE),
        group(Op.READ),
        transactional(Op.DESCRIBE),
        cluster(Op.CREATE),
        cluster(Op.CLUSTER_ACTION),
    ],
}
"""What each user has; of it all come some cases of which a part is allowed."""

NOT_IN_KAFKA_39 = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
"""But for early access: it names them, and answers that it has no such version."""
REASONS: Final = {
    "create_topics and its configs/topics/none/configs/*": "another broker with other configs: see reasons.py",
}
IN_VERSIONS: Final = {f"v* {place}": why for place, why in REASONS.items()}
IN_VERSIONS_OF_39: Final = {
    **IN_VERSIONS,
    **{f"v0 {key.name.lower()}*/error_code": "Kafka 3.9: UNSUPPORTED_VERSION to everybody" for key in NOT_IN_KAFKA_39},
    "v1 offset_fetch/topics": "Kafka 3.9 answers with no topic, and so with no error; 4.3 has both, as ours",
}


class Authorizing(Protocol):
    """A server that asks who comes, at WORDS; USER is a super user."""

    def at(self, listener: str) -> str: ...


class LoggedIn(Peer):
    """A broker as one user sees it."""

    def __init__(self, address: str, user: str) -> None:
        super().__init__(address, "denied")
        self._user = user

    async def _connected(self) -> WireClient:
        if self._client is None:
            client = await super()._connected()
            assert (await client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)).error_code == 0
            token = SaslAuthenticateRequest(f"\0{self._user}\0{PASSWORD}".encode())
            assert (await client.ask(token, 2, SaslAuthenticateResponse)).error_code == 0
        return await super()._connected()


@asynccontextmanager
async def logged_in(server: Authorizing, user: str) -> AsyncIterator[LoggedIn]:
    peer = LoggedIn(server.at("WORDS"), user)
    try:
        yield peer
    finally:
        await peer.close()


async def prepare(server: Authorizing) -> None:
    async with logged_in(server, USER) as peer:
        made = await peer.prepare(CreateTopicsRequest([CreatableTopic(FLIGHTS, 1, 1)], 30_000), 7, CreateTopicsResponse)
        assert made.topics[0].error_code == 0, made
        await peer.coordinator(GROUP, 0)
        await peer.coordinator(ID, 1)
        offsets = [OffsetCommitRequestTopic(FLIGHTS, [OffsetCommitRequestPartition(0, 7)])]
        committing = OffsetCommitRequest(GROUP, topics=offsets)
        await peer.until_loaded(
            committing, 8, OffsetCommitResponse, lambda answer: answer.topics[0].partitions[0].error_code
        )
        producing = InitProducerIdRequest(ID, 60_000)
        await peer.until_loaded(producing, 4, InitProducerIdResponse, lambda answer: answer.error_code)
        literal, allow = AclPattern.LITERAL, AclPermission.ALLOW
        acls = [
            AclCreation(one.kind, one.name, literal, f"User:{user}", "*", one.operation, allow)
            for user, rights in RIGHTS.items()
            for one in rights
        ]
        granted = await peer.prepare(CreateAclsRequest(acls), 3, CreateAclsResponse)
        assert not any(result.error_code for result in granted.results), granted


@pytest.fixture(scope="module", params=["3.9.1", "4.3.0"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Authorizing, Authorizing]]:
    folder: Path = tmp_path_factory.mktemp("denied")
    with AuthorizingKafkaServer(request.param, folder / "kafka") as kafka, AuthorizingBroker(folder / "ours") as ours:
        for server in (kafka, ours):
            asyncio.run(prepare(server))
        yield request.param, kafka, ours


async def answer(server: Authorizing, user: str, case: Case, version: int | None = None) -> Any:
    async with logged_in(server, user) as peer:
        await peer.ask(str(case), case.request(), case.version if version is None else version)
        return peer.answers


@pytest.mark.parametrize("user", OTHERS)
async def test_who_lacks_a_right_is_answered_as_by_kafka(pair: tuple[str, Authorizing, Authorizing], user: str) -> None:
    version, kafka, ours = pair
    found: list[str] = []
    for case in ASKED:
        if version.startswith("3.") and case.key in NOT_IN_KAFKA_39:
            continue
        theirs, own = await answer(kafka, user, case), await answer(ours, user, case)
        found += differences(theirs, own)
    left = [line for line in found if not any(fnmatchcase(line.partition(": Kafka ")[0], each) for each in REASONS)]
    print("\n".join(found))
    assert not left, "\n".join(left)


@pytest.mark.slow
async def test_in_each_version_that_both_have(pair: tuple[str, Authorizing, Authorizing]) -> None:
    """Each API is asked, and each reason for a difference is needed, or it would hide the next one."""
    release, kafka, ours = pair
    is_39 = release.startswith("3.")
    async with logged_in(kafka, USER) as peer:
        told = await peer.prepare(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
    theirs = {each.api_key: range(each.min_version, each.max_version + 1) for each in told.api_keys}
    both = [(case, version) for case in ASKED for version in served_in(case) if version in theirs.get(case.key, ())]
    # By ids of topics, which the two have not the same, nothing is asked here.
    asked = [(case, version) for case, version in both if not (case.key is ApiKey.FETCH and version >= 13)]
    assert {case.key for case, _ in asked} == {case.key for case in ASKED}
    found: list[tuple[str, str]] = []
    for user in OTHERS:
        for case, version in asked:
            at_kafka, own = await answer(kafka, user, case, version), await answer(ours, user, case, version)
            found += [(f"v{version} {line}", user) for line in differences(at_kafka, own)]
    places = {line.partition(": Kafka ")[0] for line, _ in found}
    reasons = IN_VERSIONS_OF_39 if is_39 else IN_VERSIONS
    unneeded = [each for each in reasons if not any(fnmatchcase(place, each) for place in places)]
    excused = {place for place in places for each in reasons if fnmatchcase(place, each)}
    left = [f"{user}: {line}" for line, user in found if line.partition(": Kafka ")[0] not in excused]
    print("\n".join(f"{user}: {line}" for line, user in found))
    assert not left, "\n".join(left)
    assert not unneeded, "\n".join(unneeded)
