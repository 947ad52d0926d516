"""Passwords that are set while the broker runs: who logs in by them, and what is refused."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from broker.client.security.scram import HASHES, ScramClient
from broker.client.security.settings import Mechanism
from broker.server import Server
from broker.wire.errors import ErrorCode
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from broker.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from broker.wire.vocabulary import CLUSTER_NAME, AclOperation, AclResource
from tests.broker.running_cluster import until
from tests.broker.server.test_authorizer import LOCKED, SUPER, allow, client_of, create
from tests.broker.server.test_locked_cluster import NODES, locked_cluster
from tests.broker.server.test_logins import guarded, log_in, present, shake
from tests.broker.wire_client import WireClient, connect
from tests.certificates import Authority

FIRST, SECOND = "canary-first-8Qx", "canary-second-9Zy"
SHA_256, SHA_512 = 1, 2
MECHANISMS = {SHA_256: Mechanism.SCRAM_SHA_256, SHA_512: Mechanism.SCRAM_SHA_512}


def upsertion(
    user: str, password: str, mechanism: int = SHA_512, iterations: int = 4096, **fields: Any
) -> ScramCredentialUpsertion:
    """As Kafka's tools salt it."""
    salt = fields.pop("salt", os.urandom(16))
    name = HASHES[MECHANISMS.get(mechanism, Mechanism.SCRAM_SHA_512)]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt or b"x", iterations)
    return ScramCredentialUpsertion(user, mechanism, iterations, salt, fields.pop("salted_password", salted))


async def alter(client: WireClient, *asked: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        [one for one in asked if isinstance(one, ScramCredentialDeletion)],
        [one for one in asked if isinstance(one, ScramCredentialUpsertion)],
    )
    answer = await client.ask(request, 0, AlterUserScramCredentialsResponse)
    for result in answer.results:
        assert (result.error_message is None) is (result.error_code == 0)
    return {result.user: ErrorCode.of(result.error_code) for result in answer.results}


async def described(client: WireClient, *users: str) -> dict[str, dict[int, int] | ErrorCode]:
    request = DescribeUserScramCredentialsRequest([UserName(user) for user in users] if users else None)
    answer = await client.ask(request, 0, DescribeUserScramCredentialsResponse)
    assert answer.error_code == 0, answer
    return {
        result.user: {info.mechanism: info.iterations for info in result.credential_infos}
        or ErrorCode.of(result.error_code)
        for result in answer.results
    }


async def gets_in(server: Server, user: str, password: str, mechanism: Mechanism) -> bool:
    async with connect(server.address) as client:
        if mechanism is Mechanism.PLAIN:
            return (await log_in(client, f"\0{user}\0{password}".encode())).error_code == 0
        assert await shake(client, mechanism) == 0
        scram = ScramClient(mechanism, user, password, "abc")
        answer: SaslAuthenticateResponse = await present(client, scram.begin())
        token = scram.step(bytes(answer.auth_bytes))
        assert token is not None
        answer = await present(client, token)
        return answer.error_code == 0 and scram.step(bytes(answer.auth_bytes)) is None


async def test_a_password_holds_at_once_and_until_it_is_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sha, name = Mechanism.SCRAM_SHA_512, "Ünï/+*~ ,="
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        assert await alter(owner, upsertion(name, FIRST)) == {name: ErrorCode.NONE}
        assert await gets_in(server, name, FIRST, sha)
        assert await gets_in(server, name, FIRST, Mechanism.PLAIN)
        assert not await gets_in(server, name, SECOND, sha)
        assert await alter(owner, upsertion(name, SECOND), upsertion("other", FIRST, SHA_256, 16384)) == {
            name: ErrorCode.NONE,
            "other": ErrorCode.NONE,
        }
        assert not await gets_in(server, name, FIRST, sha)
        assert await gets_in(server, name, SECOND, sha)
        assert await described(owner) == {name: {SHA_512: 4096}, "other": {SHA_256: 16384}}
        async with client_of(server, "shop") as shop:
            refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            deletion = ScramCredentialDeletion("other", SHA_256)
            assert await alter(shop, upsertion(name, FIRST), deletion) == {name: refused, "other": refused}
            answer = await shop.ask(DescribeUserScramCredentialsRequest(), 0, DescribeUserScramCredentialsResponse)
            assert answer.error_code == refused
    file = tmp_path / "data" / "metadata.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "canary" not in file.read_text() + caplog.text
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        assert await gets_in(server, name, SECOND, sha)
        assert await gets_in(server, "other", FIRST, Mechanism.SCRAM_SHA_256)
        assert await alter(owner, ScramCredentialDeletion(name, SHA_512)) == {name: ErrorCode.NONE}
        assert not await gets_in(server, name, SECOND, sha)
        assert not await gets_in(server, name, SECOND, Mechanism.PLAIN)
        assert await described(owner) == {"other": {SHA_256: 16384}}


async def test_what_kafka_refuses_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        assert await alter(owner, upsertion("there", FIRST)) == {"there": ErrorCode.NONE}
        unacceptable, twice = ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.DUPLICATE_RESOURCE
        assert await alter(
            owner,
            upsertion("few", FIRST, iterations=4095),
            upsertion("many", FIRST, iterations=16385),
            upsertion("", FIRST),
            upsertion("unknown", FIRST, 3),
            upsertion("unsalted", FIRST, salt=b""),
            upsertion("empty", FIRST, salted_password=b""),
            ScramCredentialDeletion("nobody", SHA_512),
            ScramCredentialDeletion("there", SHA_256),
            upsertion("twice", FIRST),
            upsertion("twice", FIRST, SHA_256),
            upsertion("twice", FIRST),
            upsertion("good", FIRST),
        ) == {
            "few": unacceptable,
            "many": unacceptable,
            "": unacceptable,
            "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "unsalted": unacceptable,
            "empty": unacceptable,
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
            "there": ErrorCode.RESOURCE_NOT_FOUND,
            "twice": twice,
            "good": ErrorCode.NONE,
        }
        assert await described(owner, "there", "good", "good", "twice") == {
            "there": {SHA_512: 4096},
            "good": twice,
            "twice": ErrorCode.RESOURCE_NOT_FOUND,
        }


async def test_who_stands_in_the_file_is_changed_there_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion("shop", FIRST)])
        (result,) = (await owner.ask(request, 0, AlterUserScramCredentialsResponse)).results
        assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert "sasl_users_file" in (result.error_message or "")
        assert not await gets_in(server, "shop", FIRST, Mechanism.SCRAM_SHA_512)


async def test_who_may_alter_the_cluster_becomes_no_super_user_by_it(tmp_path: Path) -> None:
    sha, unacceptable = Mechanism.SCRAM_SHA_512, ErrorCode.UNACCEPTABLE_CREDENTIAL
    settings = {**LOCKED, "super_users": (SUPER, "User:CN=one")}
    async with guarded(tmp_path, **settings) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        assert await create(owner, allow(CLUSTER_NAME, AclOperation.ALTER, AclResource.CLUSTER)) == [0]
        asked = [upsertion(user, FIRST) for user in ("CN=one", "ANONYMOUS", "two")]
        assert await alter(shop, *asked) == {
            "CN=one": unacceptable,
            "ANONYMOUS": unacceptable,
            "two": ErrorCode.NONE,
        }
        assert not await gets_in(server, "CN=one", FIRST, sha)
        assert await alter(owner, upsertion("CN=one", SECOND)) == {"CN=one": ErrorCode.NONE}
        assert await alter(shop, upsertion("CN=one", FIRST, SHA_256)) == {"CN=one": unacceptable}
        assert await gets_in(server, "CN=one", SECOND, sha)
        assert not await gets_in(server, "CN=one", FIRST, Mechanism.SCRAM_SHA_256)
        assert await alter(shop, ScramCredentialDeletion("CN=one", SHA_512)) == {"CN=one": ErrorCode.NONE}, (
            "that lets nobody in"
        )


async def test_nobody_sets_a_password_for_who_does_not_log_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, client_of(server) as shop:
        assert await alter(shop, upsertion("ANONYMOUS", FIRST)) == {"ANONYMOUS": ErrorCode.UNACCEPTABLE_CREDENTIAL}
        assert not await gets_in(server, "ANONYMOUS", FIRST, Mechanism.SCRAM_SHA_512)


async def test_a_password_from_before_its_name_was_a_super_users_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "super users that log in by a password which was set while brokers ran: "
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner:
        await alter(owner, upsertion("CN=two", FIRST), upsertion("other", FIRST))
    assert said not in caplog.text
    async with guarded(tmp_path, **{**LOCKED, "super_users": (SUPER, "User:CN=two")}):
        assert f"{said}CN=two; take away" in caplog.text


async def test_what_is_set_at_one_broker_holds_at_all(tmp_path: Path) -> None:
    sha = Mechanism.SCRAM_SHA_256
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca")) as cluster:
        first, *others = (cluster.servers[node] for node in NODES)
        async with client_of(first, "reader") as owner:
            assert await alter(owner, upsertion("new", FIRST, SHA_256)) == {"new": ErrorCode.NONE}
            assert await gets_in(first, "new", FIRST, sha)
            for other in others:
                await until(lambda server=other: gets_in(server, "new", FIRST, sha))
        async with client_of(others[0], "reader") as owner:
            assert await alter(owner, ScramCredentialDeletion("new", SHA_256)) == {"new": ErrorCode.NONE}

            async def is_gone() -> bool:
                return not await gets_in(first, "new", FIRST, sha)

            await until(is_gone)
            (answer,) = (await alter(owner, upsertion("..", FIRST))).values()
            assert answer is ErrorCode.INVALID_REQUEST, "ZooKeeper has no such names"
