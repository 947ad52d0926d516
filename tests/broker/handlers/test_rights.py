"""The authorization matrix: every API times every operation, allowed with just the right, and denied without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio

from broker.access.acls import AclBinding, Acls
from broker.access.authorizer import Authorizer
from broker.base.clock import SystemClock
from broker.broker import Broker
from broker.controller.requests import NewTopic
from broker.handlers.handler import RequestContext
from broker.handlers.table import HANDLERS, INTER_BROKER_HANDLERS, LOGIN_HANDLERS
from broker.wire.api import ApiKey
from broker.wire.codec import decode, encode_bytes
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.fetch import FetchRequest, FetchTopic
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.schema import Message
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission
from tests.broker.handlers.group_rights import GROUP_CASES
from tests.broker.handlers.rights_table import (
    C31,
    DELETED,
    EVERY_RIGHT,
    FLIGHTS,
    GROUP,
    ID,
    NEEDS_NOTHING,
    T29,
    Case,
    Right,
    cluster,
    refusals,
    topic,
)
from tests.broker.handlers.topic_rights import TOPIC_CASES
from tests.broker.running import TIMEOUT_MS, running_server
from tests.broker.wire_client import batch_of, connect, produce_request

CASES = [*TOPIC_CASES, *GROUP_CASES]
WHO, WHERE = "User:shop", "10.0.0.1"
COMMITTING = OffsetCommitRequest(
    GROUP, topics=[OffsetCommitRequestTopic(FLIGHTS, [OffsetCommitRequestPartition(0, 7)])]
)
IMPLIED = {
    AclOperation.READ: {AclOperation.DESCRIBE},
    AclOperation.WRITE: {AclOperation.DESCRIBE},
    AclOperation.DELETE: {AclOperation.DESCRIBE},
    AclOperation.ALTER: {AclOperation.DESCRIBE},
    AclOperation.ALTER_CONFIGS: {AclOperation.DESCRIBE_CONFIGS},
    AclOperation.ALL: set(AclOperation),
}


def bindings(rights: Iterable[Right], permission: AclPermission = AclPermission.ALLOW) -> list[AclBinding]:
    return [AclBinding(one.kind, one.name, AclPattern.LITERAL, WHO, "*", one.operation, permission) for one in rights]


def holds(rights: Iterable[Right]) -> set[Right]:
    """All that they come to."""
    found = set(rights)
    for one in rights:
        found |= {one._replace(operation=each) for each in IMPLIED.get(one.operation, ())}
    return found


def suffices(case: Case, rights: Iterable[Right]) -> bool:
    return any(needed <= holds(rights) for needed in case.needs)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """With a topic, a group and a transactional id."""
    folder = tmp_path_factory.mktemp("rights")
    async with running_server(folder) as server, connect(server.address) as client:
        await client.create_topic(FLIGHTS)
        await client.ask(InitProducerIdRequest(ID, 60_000), 4, InitProducerIdResponse)
        yield server.broker


async def asked(broker: Broker, case: Case, acls: Iterable[AclBinding], version: int | None = None) -> Any:
    """`version`: another than the case's, in which request and answer go over the wire."""
    authorizer = Authorizer((), allows_without_acls=False, clock=SystemClock())
    authorizer.acls = Acls.of(acls)
    rights = authorizer.rights(WHO, WHERE)
    context = RequestContext(case.version if version is None else version, "test", WHERE, HANDLERS, rights=rights)
    if case.key is ApiKey.DELETE_TOPICS and DELETED not in broker.view.topics:
        await broker.controller.create_topic(NewTopic(DELETED), TIMEOUT_MS)
    if case.key is ApiKey.LIST_GROUPS:
        # Whoever could has deleted it.
        await HANDLERS[ApiKey.OFFSET_COMMIT].handle(broker, COMMITTING, RequestContext(8, "test", WHERE, HANDLERS))
    handler = INTER_BROKER_HANDLERS[case.key]
    request = case.request() if version is None else by_wire(with_ids(broker, case.request()), version)
    async with asyncio.timeout(60):
        answer = await handler.handle(broker, request, context)
    return answer if version is None else by_wire(answer, version)


def by_wire(message: Message, version: int) -> Message:
    """What the other side reads of it."""
    return decode(type(message), version, bytearray(encode_bytes(message, version)))[0]


def with_ids(broker: Broker, request: Message) -> Message:
    """Of the topics that it names, where later versions have these."""
    named = request.topics if isinstance(request, FetchRequest) else getattr(request, "topic_data", ())
    for each in named:
        known = broker.view.topics.get(each.topic if isinstance(each, FetchTopic) else each.name)
        each.topic_id = each.topic_id if known is None else known.topic_id
    return request


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_api_is_in_the_table() -> None:
    assert {case.key for case in CASES} | NEEDS_NOTHING == INTER_BROKER_HANDLERS.keys() | LOGIN_HANDLERS.keys()


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_without_a_right_it_is_refused_by_its_code(broker: Broker, case: Case) -> None:
    answer = await asked(broker, case, ())
    assert not case.is_allowed(answer)
    assert refusals(answer) == (set() if case.passes else {case.refused})


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_each_single_right_allows_just_what_it_is_for(broker: Broker, case: Case) -> None:
    for right in EVERY_RIGHT:
        answer = await asked(broker, case, bindings([right]))
        assert case.is_allowed(answer) is suffices(case, [right]), right


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_all_that_it_takes_allows_it_and_less_does_not(broker: Broker, case: Case) -> None:
    for needed in case.needs:
        assert case.is_allowed(await asked(broker, case, bindings(needed))), needed
        for right in needed:
            less = needed - {right}
            assert case.is_allowed(await asked(broker, case, bindings(less))) is suffices(case, less), right
            denied = [*bindings(needed), *bindings([right], AclPermission.DENY)]
            assert not case.is_allowed(await asked(broker, case, denied)), "a denial goes before it"


BY_WIRE = [
    Case(
        ApiKey.PRODUCE,
        13,
        lambda: produce_request(FLIGHTS, batch_of("a")),
        (frozenset({topic(AclOperation.WRITE)}),),
        T29,
        "by id",
        versions=(13, 13),
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        2,
        lambda: DescribeLogDirsRequest(None),
        (frozenset({cluster(AclOperation.DESCRIBE)}),),
        C31,
        "before it has a code for it",
        passes=lambda answer: bool(answer.results),
        versions=(1, 2),
    ),
]
"""Not among the others: one writes to what is there, and of one the version makes the answer."""


def served_in(case: Case) -> range:
    """The versions in which it can be asked, and is served: Produce is advertised from 0 on (see its handler)."""
    first, last = INTER_BROKER_HANDLERS[case.key].versions
    since, until = case.versions or (first, last)
    return range(max(first, since, type(case.request()).VERSIONS[0]), min(last, until) + 1)


IN_VERSIONS = [(case, version) for case in (*CASES, *BY_WIRE) for version in served_in(case)]


async def test_every_version_of_every_api_is_in_the_table() -> None:
    asked_for = {(case.key, version) for case, version in IN_VERSIONS}
    served = {
        (case.key, version)
        for case in CASES
        for version in range(type(case.request()).VERSIONS[0], INTER_BROKER_HANDLERS[case.key].versions[1] + 1)
        if version >= INTER_BROKER_HANDLERS[case.key].versions[0]
    }
    assert served - asked_for == set()


@pytest.mark.parametrize(("case", "version"), IN_VERSIONS, ids=lambda one: str(one))
async def test_in_each_version_it_is_refused_without_its_rights_and_allowed_with_them(
    broker: Broker, case: Case, version: int
) -> None:
    answer = await asked(broker, case, (), version)
    assert not case.is_allowed(answer)
    assert refusals(answer) == (set() if case.passes else {case.refused})
    for needed in case.needs:
        assert case.is_allowed(await asked(broker, case, bindings(needed), version)), needed
