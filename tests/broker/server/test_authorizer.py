"""A broker that asks those who came for their rights: its ACLs, what it tells of them, and what it refuses."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.base.address import Address
from broker.broker import Broker
from broker.config import BrokerConfig
from broker.data_dir import DataDirectory
from broker.limits import DENIALS_TOLD_MS, OPENED_AT_ONCE_RECORDS_MAX
from broker.outside import Outside
from broker.server import Server
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from broker.wire.messages.fetch import FetchResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.schema import ZERO_UUID
from broker.wire.vocabulary import (
    CLUSTER_NAME,
    CLUSTER_OPERATIONS,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.server.test_logins import ALL, PASSWORD, Ahead, guarded, present
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request
from tests.ports import free_port

Acl = tuple[int, str, int, str, str, int, int]
SUPER, SHOP = "User:reader", "User:shop"
LOCKED: dict[str, Any] = {"authorizer_enable": True, "super_users": (SUPER,)}
OPEN_TO_ALL: dict[str, Any] = {"authorizer_enable": True, "super_users": (SUPER, "User:ANONYMOUS")}
WORDS: dict[str, Any] = {
    "listeners": ("SASL_PLAINTEXT://h:1",),
    "sasl_enabled_mechanisms": ALL,
    "sasl_users_file": Path("u"),
}
EVERY = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def allow(name: str, operation: AclOperation, kind: AclResource = AclResource.TOPIC) -> Acl:
    return kind, name, AclPattern.LITERAL, SHOP, "*", operation, AclPermission.ALLOW


@asynccontextmanager
async def client_of(server: Server, user: str = "shop") -> AsyncIterator[WireClient]:
    async with connect(server.address) as client:
        assert (await client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)).error_code == 0
        assert (await present(client, f"\0{user}\0{PASSWORD}".encode())).error_code == 0
        yield client


async def create(client: WireClient, *acls: Acl) -> list[int]:
    answer = await client.ask(CreateAclsRequest([AclCreation(*acl) for acl in acls]), 3, CreateAclsResponse)
    return [result.error_code for result in answer.results]


async def delete(client: WireClient, *filters: Sequence[Any]) -> list[list[Acl]]:
    request = DeleteAclsRequest([DeleteAclsFilter(*one) for one in filters])
    answer = await client.ask(request, 3, DeleteAclsResponse)
    assert not any(result.error_code for result in answer.filter_results), answer
    return [
        [
            (m.resource_type, m.resource_name, m.pattern_type, m.principal, m.host, m.operation, m.permission_type)
            for m in result.matching_acls
        ]
        for result in answer.filter_results
    ]


async def described(client: WireClient, request: DescribeAclsRequest = EVERY) -> list[Acl]:
    answer = await client.ask(request, 3, DescribeAclsResponse)
    assert answer.error_code == 0, answer
    return [
        (
            at.resource_type,
            at.resource_name,
            at.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for at in answer.resources
        for acl in at.acls
    ]


async def test_acls_are_made_shown_and_removed_and_outlive_the_broker(tmp_path: Path) -> None:
    read, write = allow("flights", AclOperation.READ), allow("flights", AclOperation.WRITE)
    prefixed = (AclResource.GROUP, "an", AclPattern.PREFIXED, SHOP, "10.0.0.1", AclOperation.ALL, AclPermission.DENY)
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as client:
        assert await described(client) == []
        assert await create(client, read, write, prefixed, read) == [0, 0, 0, 0]
        assert await described(client) == [read, write, prefixed]
        refused = [allow("", AclOperation.READ), allow("x", AclOperation.READ, AclResource.DELEGATION_TOKEN), write]
        assert await create(client, *refused) == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as client:
        assert await described(client) == [read, write, prefixed]
        assert await described(client, DescribeAclsRequest(2, "flights", 2, None, None, 3, 1)) == [read]
        every_write = (1, None, 1, None, None, AclOperation.WRITE, 1)
        assert await delete(client, every_write, every_write, (3, "an", 4, None, None, 1, 1)) == [
            [write],
            [write],
            [prefixed],
        ]
        assert await delete(client, every_write) == [[]]
        assert await described(client) == [read]
        wrong = await client.ask(
            DeleteAclsRequest([DeleteAclsFilter(99, None, 1, None, None, 1, 1)]), 3, DeleteAclsResponse
        )
        assert wrong.filter_results[0].error_code == ErrorCode.INVALID_REQUEST


async def test_without_an_authorizer_there_are_none(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert (await client.ask(EVERY, 3, DescribeAclsResponse)).error_code == ErrorCode.SECURITY_DISABLED
        assert await create(client, allow("a", AclOperation.READ)) == [ErrorCode.SECURITY_DISABLED]
        removed = await client.ask(
            DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3, DeleteAclsResponse
        )
        assert removed.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED


async def test_who_has_no_right_writes_and_reads_nothing_and_who_gets_it_does(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, **LOCKED) as server,
        client_of(server, "reader") as owner,
        client_of(server) as shop,
    ):
        assert await shop.try_create_topic("flights") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await owner.create_topic("flights")
        assert (await shop.produce("flights", batch_of("a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await shop.fetch("flights", 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await create(owner, allow("flights", AclOperation.WRITE), allow("flights", AclOperation.READ))
        assert (await shop.produce("flights", batch_of("a"))).error_code == 0
        assert (await shop.fetch("flights", 0)).error_code == 0
        denied = (2, "flights", AclPattern.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermission.DENY)
        await create(owner, denied)
        assert (await shop.produce("flights", batch_of("b"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await owner.produce("flights", batch_of("c"))).error_code == 0, "a super user passes by it"
        await delete(owner, denied)
        assert (await shop.produce("flights", batch_of("d"))).error_code == 0


async def test_in_a_fetch_session_a_right_that_goes_is_gone_at_the_next_fetch(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await owner.create_topic("flights")
        await owner.produce("flights", batch_of("a"))
        read = allow("flights", AclOperation.READ)
        await create(owner, read)
        begun = await shop.ask(fetch_request("flights", 1, session_epoch=0), 12, FetchResponse)
        assert begun.session_id
        await delete(owner, read)
        again = fetch_request("flights", 1, session_id=begun.session_id, session_epoch=1)
        again.topics = []
        answer = await shop.ask(again, 12, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_batch_that_was_let_in_before_a_denial_is_not_appended_behind_it(tmp_path: Path) -> None:
    """It waited to be opened: who was told of the denial, and reads the end of the log, has seen all that comes."""
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await owner.create_topic("flights", compression_type="gzip")
        write = allow("flights", AclOperation.WRITE)
        await create(owner, write)
        release = threading.Event()
        busy = asyncio.create_task(server.broker.openings.run_in_thread(lambda: release.wait(60)))
        await asyncio.sleep(0)  # it has its turn
        many = batch_of(*map(str, range(OPENED_AT_ONCE_RECORDS_MAX + 1)))
        writing = asyncio.create_task(shop.produce("flights", many))
        await until(lambda: any(each.busy and each.principal == SHOP for each in server.connections))
        await delete(owner, write)
        release.set()
        assert (await writing).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await busy


async def test_a_broker_knows_its_acls_before_anything_is_told_of_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        await create(owner, allow("flights", AclOperation.WRITE))
        config = server.broker.config
    broker = await Broker.open(config, Outside(), DataDirectory.open(config.data_dir))
    try:
        await broker.bound([Address("127.0.0.1", 9092)])
        assert broker.acls.authorizer is not None
        assert len(broker.acls.authorizer.acls) == 1
    finally:
        await broker.close()


async def test_nobody_becomes_a_broker_by_saying_so(tmp_path: Path) -> None:
    """CVE-2018-1288: who may read would move the high watermark, or read above it."""
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await owner.create_topic("flights")
        await create(owner, allow("flights", AclOperation.READ))
        forged = await shop.fetch("flights", 0, replica_id=1, current_leader_epoch=0)
        assert forged.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await create(owner, allow(CLUSTER_NAME, AclOperation.CLUSTER_ACTION, AclResource.CLUSTER))
        # Kafka believes who has that right; ours only those who come by the listener between brokers.
        forged = await shop.fetch("flights", 0, replica_id=1, current_leader_epoch=0)
        assert forged.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_topic_that_may_not_be_seen_is_as_one_that_is_not_there(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        for name in ("hidden", "seen"):
            await owner.create_topic(name)
        await create(owner, allow("seen", AclOperation.DESCRIBE))
        everything = (await owner.ask(MetadataRequest(None), 12, MetadataResponse)).topics
        ids = {topic.name: topic.topic_id for topic in everything}
        named = MetadataRequest([MetadataRequestTopic(name=name) for name in ("hidden", "absent")])
        hidden, absent = (await shop.ask(named, 12, MetadataResponse)).topics
        assert [hidden.error_code, absent.error_code] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        assert [hidden.topic_id, hidden.partitions] == [absent.topic_id, absent.partitions] == [ZERO_UUID, []]
        by_id = MetadataRequest([MetadataRequestTopic(ids["hidden"]), MetadataRequestTopic(uuid.uuid4())])
        found = (await shop.ask(by_id, 12, MetadataResponse)).topics
        assert [(each.name, each.error_code) for each in found] == [
            (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        deleted = DeleteTopicsRequest([DeleteTopicState(None, ids["hidden"])])
        (answer,) = (await shop.ask(deleted, 6, DeleteTopicsResponse)).responses
        assert (answer.name, answer.error_code) == (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for guess in ("hidden", "absent"):
            guessed = DeleteTopicsRequest([DeleteTopicState(guess), DeleteTopicState(None, ids["hidden"])])
            answers = (await shop.ask(guessed, 6, DeleteTopicsResponse)).responses
            assert [(each.name, each.error_code) for each in answers] == [
                (guess, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
        assert [topic.name for topic in (await shop.ask(MetadataRequest(None), 12, MetadataResponse)).topics] == [
            "seen"
        ]


async def test_authorized_operations_are_those_that_would_be_allowed(tmp_path: Path) -> None:
    def bits(*operations: AclOperation) -> int:
        return sum(1 << operation for operation in operations)

    asked = MetadataRequest(
        [MetadataRequestTopic(name="flights")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await owner.create_topic("flights")
        await create(owner, allow("flights", AclOperation.WRITE), allow("*", AclOperation.ALTER_CONFIGS))
        answer = await shop.ask(asked, 8, MetadataResponse)
        assert answer.cluster_authorized_operations == 0
        may = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
        assert answer.topics[0].topic_authorized_operations == bits(*may)
        await create(owner, allow(CLUSTER_NAME, AclOperation.ALTER, AclResource.CLUSTER))
        answer = await shop.ask(asked, 8, MetadataResponse)
        assert answer.cluster_authorized_operations == bits(AclOperation.ALTER, AclOperation.DESCRIBE)
        whole = await owner.ask(asked, 8, MetadataResponse)
        assert whole.cluster_authorized_operations == bits(*CLUSTER_OPERATIONS)


async def test_configs_of_a_new_topic_are_shown_to_who_may_see_them(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await create(owner, allow("flights", AclOperation.CREATE))
        request = CreateTopicsRequest([CreatableTopic("flights", 1, 1)])
        (made,) = (await shop.ask(request, 7, CreateTopicsResponse)).topics
        assert (made.error_code, made.configs, made.num_partitions) == (0, [], -1)
        assert made.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_without_acls_everybody_passes_only_where_that_is_asked_for(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"authorizer_enable": True, "allow_everyone_if_no_acl_found": True}
    async with guarded(tmp_path, **settings) as server, client_of(server) as shop:
        await shop.create_topic("flights")
        assert (await shop.produce("flights", batch_of("a"))).error_code == 0
        await create(shop, (*allow("flights", AclOperation.READ)[:3], "User:other", *allow("", AclOperation.READ)[4:]))
        assert (await shop.produce("flights", batch_of("a"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_denials_are_told_once_a_minute_of_each_principal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock, **LOCKED) as server, client_of(server) as shop:
        for _ in range(3):
            await shop.produce("flights", batch_of("a"))
        assert [m for m in caplog.messages if "may not" in m] == [f"{SHOP} at 127.0.0.1 may not WRITE TOPIC 'flights'"]
        clock.ahead_s = DENIALS_TOLD_MS / 1000 + 1
        await shop.produce("flights", batch_of("a"))
        assert [m for m in caplog.messages if "may not" in m][1:] == [
            f"{SHOP} at 127.0.0.1 may not WRITE TOPIC 'flights', and 2 times more since it was last said"
        ]
        await shop.ask(MetadataRequest(None), 12, MetadataResponse)
        assert server.broker.acls.authorizer is not None
        assert server.broker.acls.authorizer.denials.count == 4, "what was not asked for by name is not denied"


async def test_that_everybody_on_this_machine_is_a_super_user_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = (f"PLAINTEXT://127.0.0.1:{free_port()}", "SASL_PLAINTEXT://127.0.0.1:0")
    async with guarded(tmp_path, **OPEN_TO_ALL, listeners=listeners):
        pass
    told = [line for line in caplog.messages if line.startswith("super_users has User:ANONYMOUS: whoever is on this")]
    assert [line.rpartition(" ")[2] for line in told] == [listeners[0]]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"super_users": (SUPER,)}, "super_users is there without authorizer_enable"),
        ({"allow_everyone_if_no_acl_found": True}, "allow_everyone_if_no_acl_found is there without authorizer_enable"),
        (LOCKED, "no listener tells who comes"),
        ({**LOCKED, "listeners": ("SSL://h:1",), "ssl_certificate_file": Path("c")}, "no listener tells who comes"),
        ({**LOCKED, "super_users": ("reader",)}, "super_users has 'reader'"),
        ({**LOCKED, "super_users": ("User:*",)}, "super_users has 'User:*'"),
        ({**WORDS, "authorizer_enable": True}, "super_users is missing"),
        (
            {**WORDS, **OPEN_TO_ALL, "listeners": ("SASL_PLAINTEXT://127.0.0.1:1", "PLAINTEXT://h:2")},
            "super_users has User:ANONYMOUS, and PLAINTEXT lets in who shows neither",
        ),
        (
            {
                **OPEN_TO_ALL,
                "listeners": ("SSL://h:1",),
                "ssl_certificate_file": Path("c"),
                "ssl_client_auth": "requested",
                "ssl_client_ca_file": Path("c"),
            },
            "super_users has User:ANONYMOUS, and SSL lets in who shows neither",
        ),
    ],
)
def test_an_authorizer_that_would_ask_nobody_is_refused(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        BrokerConfig(tmp_path, **given)
    assert told in str(caught.value)
