"""The messages of OAUTHBEARER (RFC 7628), as clients send them, and cut, repeated and reordered."""

from __future__ import annotations

import json

import pytest

from broker.access.bearer import Bearer, BearerServer, TokenRefused
from broker.access.scram import LoginRefused
from tests.issuer import said

GOOD = said("a.good.token")


def bearer(token: bytes) -> Bearer:
    if token == b"a.good.token":
        return Bearer("shop", 1000)
    raise TokenRefused("the token's signature is wrong")


def a_server(*scopes: str) -> BearerServer:
    return BearerServer(bearer, scopes)


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        b"y,,\x01auth=Bearer a.good.token\x01\x01",
        b"n,a=shop,\x01auth=Bearer a.good.token\x01\x01",
        b"n,,\x01host=east.example\x01port=9093\x01auth=bearer  a.good.token\x01\x01",
        b"n,,\x01auth=Bearer a.good.token\x01logicalCluster=lkc 1\x01\x01",
    ],
)
async def test_a_token_that_holds_lets_in(message: bytes) -> None:
    server = a_server()
    assert (server.user, server.ends_ms) == (None, None)
    assert await server.step(message) == b""
    assert (server.user, server.ends_ms) == ("shop", 1000)


async def test_who_is_refused_is_told_in_json_and_then_in_words() -> None:
    server = a_server("kafka", "write")
    assert json.loads(await server.step(said("another"))) == {"status": "invalid_token", "scope": "kafka write"}
    with pytest.raises(LoginRefused, match=r"^Authentication failed: the token's signature is wrong$"):
        await server.step(b"\x01")
    assert server.user is None
    assert json.loads(await a_server().step(said("another"))) == {"status": "invalid_token"}


@pytest.mark.parametrize("then", [GOOD, b"", b"\x01\x01", b"n,,\x01\x01"])
async def test_behind_a_refusal_no_other_token_is_taken(then: bytes) -> None:
    server = a_server()
    await server.step(said("another"))
    with pytest.raises(LoginRefused, match="a refusal was answered by another token"):
        await server.step(then)
    assert server.user is None


@pytest.mark.parametrize(
    "message",
    [
        *(GOOD[:size] for size in range(len(GOOD))),
        GOOD + GOOD,
        GOOD + b"\x01",
        GOOD[::-1],
        b"\x01",
        b"p=tls-unique,,\x01auth=Bearer a.good.token\x01\x01",
        b"n,b=shop,\x01auth=Bearer a.good.token\x01\x01",
        b"n,a=,\x01auth=Bearer a.good.token\x01\x01",
        b"n,a=\xff,\x01auth=Bearer a.good.token\x01\x01",
        b"n,,auth=Bearer a.good.token\x01\x01",
        b"n,,\x01auth=Basic a.good.token\x01\x01",
        b"n,,\x01auth=a.good.token\x01\x01",
        b"n,,\x01auth=Bearer a.good token\x01\x01",
        b"n,,\x01auth=Bearer a.good.token\x00\x01\x01",
        b"n,,\x01auth=Bearer other\x01auth=Bearer a.good.token\x01\x01",
        b"n,,\x01auth=Bearer a.good.token\x01other\x01\x01",
        b"n,,\x01user=shop\x01\x01",
        b"\x01auth=Bearer a.good.token\x01n,,\x01\x01",
        b"\0shop\0secret",
        b"n,,n=shop,r=abc",
        b"a.good.token",
    ],
)
async def test_what_is_no_message_of_oauthbearer_is_refused_at_once(message: bytes) -> None:
    server = a_server()
    with pytest.raises(LoginRefused, match=r"^Authentication failed: what was sent is not OAUTHBEARER$"):
        await server.step(message)
    assert server.user is None


async def test_nobody_comes_for_another_one() -> None:
    server = a_server()
    with pytest.raises(LoginRefused, match="authorization id is another one"):
        await server.step(b"n,a=farshore,\x01auth=Bearer a.good.token\x01\x01")
    assert server.user is None


async def test_who_is_refused_for_a_token_is_not_sent_to_the_file_of_users() -> None:
    server = a_server()
    await server.step(said("another"))
    for one, message in ((server, b"\x01"), (a_server(), b"rubbish"), (a_server(), GOOD.replace(b"n,,", b"n,a=else,"))):
        with pytest.raises(LoginRefused) as refused:
            await one.step(message)
        assert refused.value.hint == TokenRefused.hint
