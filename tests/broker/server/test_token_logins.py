"""Listeners that take tokens: who gets in, for how long, and what a cheat is told. On both event loops."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.access.users import write_users
from broker.client.cluster import Cluster
from broker.client.errors import AuthenticationFailed
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.config import BrokerConfig
from broker.server import Server
from broker.wire.errors import ErrorCode
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.running import running_server
from tests.broker.server.test_logins import PASSWORD, USERS, Ahead, present, refused_late, shake, works
from tests.broker.wire_client import WireClient, connect
from tests.issuer import AUDIENCE, ISSUER, a_token, claims_of, ec_key, rsa_key, said, signed, unsigned, write_keys


@asynccontextmanager
async def guarded(tmp_path: Path, clock: Ahead | None = None, **settings: Any) -> AsyncIterator[Server]:
    """A broker with one listener for tokens without TLS."""
    given = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "sasl_enabled_mechanisms": ("OAUTHBEARER",),
        "sasl_oauthbearer_jwks_file": write_keys(tmp_path / "jwks.json", rsa_key("rsa-1"), ec_key("ec-1")),
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": (AUDIENCE,),
        "sasl_oauthbearer_clock_skew_seconds": 0,
    }
    async with running_server(tmp_path / "data", clock, **{**given, **settings}) as server:
        yield server


async def log_in(client: WireClient, token: str) -> SaslAuthenticateResponse:
    assert await shake(client, "OAUTHBEARER") == 0
    return await present(client, said(token))


async def refusal(client: WireClient, token: str) -> str:
    """What is told in the end, when all was said that the RFC asks for."""
    challenge = await log_in(client, token)
    assert (challenge.error_code, challenge.session_lifetime_ms) == (0, 0)
    assert json.loads(bytes(challenge.auth_bytes))["status"] in ("invalid_token", "insufficient_scope")
    async with refused_late():
        answer = await present(client, b"\x01")
    assert (answer.error_code, bytes(answer.auth_bytes)) == (58, b"")
    assert await client.is_closed()
    return answer.error_message or ""


def site(server: Server, tmp_path: Path, token: str) -> Site:
    (tmp_path / "token").write_text(token)
    sasl = Sasl(Mechanism.OAUTHBEARER, "", Secret(file=tmp_path / "token"))
    return Site("east", server.address, security=Security(sasl=sasl))


async def test_our_client_comes_in_by_its_token_and_is_told_why_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = a_token(), a_token(aud="shop")
    with caplog.at_level(logging.DEBUG):
        async with guarded(tmp_path) as server:
            async with Cluster(site(server, tmp_path, good)) as cluster:
                assert not await create_topics(cluster, [NewTopic("t", 1)])
                assert {each.principal for each in server.connections} == {"User:shop"}
            with pytest.raises(AuthenticationFailed, match="the token is for 'shop', and this broker is kafka"):
                async with Cluster(site(server, tmp_path, other)):
                    pass
    assert not [token for token in (good, other) if token in caplog.text or token.split(".")[2] in caplog.text]


async def test_a_cheat_is_told_in_words_what_is_wrong(tmp_path: Path) -> None:
    cheats = {
        unsigned({"alg": "none", "kid": "rsa-1"}, claims_of()): "is signed by none of RS256",
        signed(rsa_key("evil"), "RS256", claims_of(), kid="rsa-1"): "the token's signature is wrong",
        a_token(exp=1): "the token is over since 1970-01-01T00:00:01Z",
        "x" * 40_000: "the token has 40000 bytes, and 32768 is the most",
        "x": "what was sent is no token",
    }
    async with guarded(tmp_path) as server:
        for token, why in cheats.items():
            async with connect(server.address) as client:
                told = await refusal(client, token)
                assert told.startswith("Authentication failed: ")
                assert why in told
                assert token not in told or token == "x"


async def test_a_session_ends_with_its_token_unless_a_newer_one_is_shown(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock) as server:
        async with connect(server.address) as client:
            assert 299_000 <= (await log_in(client, a_token())).session_lifetime_ms <= 300_000
            clock.ahead_s += 250
            newer = signed(ec_key("ec-1"), "ES256", claims_of(now_s=clock.now_ms() / 1000, exp=None) | {"exp": 2**60})
            assert (await log_in(client, newer)).session_lifetime_ms > 10**12
            clock.ahead_s += 100
            assert await works(client)
        async with connect(server.address) as client:
            short = claims_of(now_s=clock.now_ms() / 1000)
            assert (await log_in(client, signed(rsa_key("rsa-1"), "RS256", short))).error_code == 0
            clock.ahead_s += 290
            assert await works(client)
            clock.ahead_s += 11
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()


async def test_the_sooner_of_two_ends_is_told(tmp_path: Path) -> None:
    async with guarded(tmp_path, connections_max_reauth_ms=60_000) as server, connect(server.address) as client:
        assert (await log_in(client, a_token())).session_lifetime_ms == 60_000
        soon = claims_of()["iat"] + 30
        assert 28_000 <= (await log_in(client, a_token(exp=soon))).session_lifetime_ms <= 30_000


async def test_who_logs_in_again_is_the_same_and_comes_by_the_same_mechanism(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", USERS)
    both: dict[str, Any] = {
        "sasl_enabled_mechanisms": ("OAUTHBEARER", "PLAIN"),
        "sasl_users_file": tmp_path / "users.json",
    }
    async with guarded(tmp_path, **both) as server:
        async with connect(server.address) as client:
            assert (await log_in(client, a_token())).error_code == 0
            answer = await log_in(client, a_token("farshore"))
            assert (answer.error_code, answer.error_message) == (
                58,
                "Authentication failed: Cannot change principals during re-authentication",
            )
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client, a_token())).error_code == 0
            assert await shake(client, "PLAIN") == 34
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client, a_token())).error_code == 0
            assert "signature" in await refusal(client, signed(rsa_key("evil"), "RS256", claims_of(), kid="rsa-1"))
        async with connect(server.address) as client:
            assert await shake(client, "PLAIN") == 0
            assert (await present(client, said(a_token()))).error_code == 58, "a token is no password"
        async with connect(server.address) as client:
            assert await shake(client, "OAUTHBEARER") == 0
            assert (await present(client, f"\0shop\0{PASSWORD}".encode())).error_code == 58, "nor a password a token"


async def test_messages_that_are_repeated_left_out_or_reordered_do_not_let_in(tmp_path: Path) -> None:
    good = said(a_token())
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            assert (await present(client, good)).error_code == 34, "a token before the handshake"
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client, "OAUTHBEARER") == 0
            assert await shake(client, "OAUTHBEARER") == 34
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client, a_token())).error_code == 0
            assert (await present(client, good)).error_code == 34, "said twice"
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client, "OAUTHBEARER") == 0
            assert (await present(client, b"\x01")).error_code == 58, "the end before the beginning"
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client, "OAUTHBEARER") == 0
            assert (await present(client, good[:-1])).error_code == 58, "cut short"
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert bytes((await log_in(client, "x")).auth_bytes)
            assert (await present(client, good)).error_code == 58, "a second try behind a refusal"
            assert await client.is_closed()


async def test_who_was_refused_and_goes_on_as_if_not_gets_nothing(tmp_path: Path) -> None:
    """Some clients take any answer for a yes."""
    async with guarded(tmp_path) as server:
        for token in ("x", a_token(aud="shop")):
            async with connect(server.address) as client:
                await log_in(client, token)
                await client.send(MetadataRequest([]), 12)
                assert await client.is_closed()
        async with connect(server.address) as client:
            versions = await client.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
        for key in sorted({each.api_key for each in versions.api_keys} - {17, 18, 36}):
            async with connect(server.address) as client:
                assert await shake(client, "OAUTHBEARER") == 0
                await client.send_bytes(struct.pack(">ihhih", 10, key, 0, 1, -1))
                assert await client.is_closed(), f"API key {key} in the middle of a login"


async def test_bare_tokens_follow_a_handshake_of_version_0(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        for token, lets_in in ((a_token(), True), (a_token(aud="shop"), False)):
            async with connect(server.address) as client:
                assert await shake(client, "OAUTHBEARER", 0) == 0
                message = said(token)
                await client.send_bytes(struct.pack(">i", len(message)) + message)
                if lets_in:
                    assert await client.receive_frame() == b""
                    assert await works(client)
                else:
                    assert json.loads(await client.receive_frame()) == {"status": "invalid_token"}
                    await client.send_bytes(struct.pack(">i", 1) + b"\x01")
                    assert await client.is_closed()


async def test_keys_that_are_changed_on_disk_hold_for_the_next_login(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    newer = signed(rsa_key("rsa-2"), "RS256", claims_of())
    async with guarded(tmp_path) as server, connect(server.address) as before:
        assert (await log_in(before, a_token())).error_code == 0
        async with connect(server.address) as client:
            assert "a key that this broker does not know" in await refusal(client, newer)
        write_keys(file, rsa_key("rsa-2"))
        async with connect(server.address) as client:
            assert (await log_in(client, newer)).error_code == 0
            assert await works(client)
        async with connect(server.address) as client:
            assert "a key that this broker does not know" in await refusal(client, a_token())
        file.write_text("half")
        async with connect(server.address) as client:
            assert (await log_in(client, newer)).error_code == 0
        assert await works(before), "who is in stays so until the session ends"


async def test_a_scope_that_is_lacking_is_named_as_the_rfc_has_it(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"sasl_oauthbearer_required_scope": ("kafka",), "sasl_oauthbearer_sub_claim_name": "azp"}
    async with guarded(tmp_path, **asked) as server:
        async with connect(server.address) as client:
            answer = await log_in(client, a_token(scope="other", azp="mirror"))
            assert json.loads(bytes(answer.auth_bytes)) == {"status": "insufficient_scope", "scope": "kafka"}
            assert "the token lacks the scope kafka" in ((await present(client, b"\x01")).error_message or "")
        async with connect(server.address) as client:
            assert (await log_in(client, a_token(scope="other kafka", azp="mirror"))).error_code == 0
            assert {each.principal for each in server.connections} == {"User:mirror"}


async def test_rights_are_those_of_whom_the_token_names(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"authorizer_enable": True, "super_users": ("User:farshore",)}
    async with guarded(tmp_path, **asked) as server:
        async with Cluster(site(server, tmp_path, a_token("farshore"))) as cluster:
            assert not await create_topics(cluster, [NewTopic("t", 1)])
        async with Cluster(site(server, tmp_path, a_token("shop"))) as cluster:
            refused = await create_topics(cluster, [NewTopic("u", 1)])
            assert {topic: error.code for topic, error in refused.items()} == {
                "u": ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }


async def test_no_token_is_that_of_who_does_not_log_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, connect(server.address) as client:
        assert (await log_in(client, a_token("ANONYMOUS"))).error_code == 58
        assert await client.is_closed()


async def test_what_is_offered_is_named(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server, connect(server.address) as client:
        answer = await client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
        assert (answer.error_code, answer.mechanisms) == (33, ["OAUTHBEARER"])


async def test_tokens_that_pass_unencrypted_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where: dict[str, Any] = {"listeners": ("OUT://0.0.0.0:0",), "advertised_listeners": ("OUT://127.0.0.1:9",)}
    names: dict[str, Any] = {"listener_security_protocol_map": {"OUT": "SASL_PLAINTEXT"}}
    with caplog.at_level(logging.WARNING, "broker.server"):
        async with guarded(tmp_path, **where, **names):
            pass
    assert "OUT://0.0.0.0:0 lets clients log in by OAUTHBEARER without TLS: their tokens pass unenc" in caplog.text


OF_TOKENS: dict[str, Any] = {
    "listeners": ("SASL_PLAINTEXT://127.0.0.1:1",),
    "sasl_enabled_mechanisms": ("OAUTHBEARER",),
    "sasl_oauthbearer_jwks_file": Path("jwks.json"),
    "sasl_oauthbearer_expected_issuer": ISSUER,
    "sasl_oauthbearer_expected_audience": (AUDIENCE,),
}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sasl_oauthbearer_jwks_file": None}, "sasl_oauthbearer_jwks_file is missing; OAUTHBEARER needs it"),
        ({"sasl_oauthbearer_expected_issuer": None}, "sasl_oauthbearer_expected_issuer is missing; OAUTHBEARER"),
        ({"sasl_oauthbearer_expected_audience": ()}, "sasl_oauthbearer_expected_audience is missing, or"),
        ({"sasl_oauthbearer_expected_audience": ("a b",)}, "sasl_oauthbearer_expected_audience has one that is empty"),
        ({"sasl_oauthbearer_required_scope": ("",)}, "sasl_oauthbearer_required_scope has one that is empty"),
        ({"sasl_oauthbearer_sub_claim_name": ""}, "sasl_oauthbearer_sub_claim_name is empty"),
        ({"sasl_oauthbearer_clock_skew_seconds": -1}, "sasl_oauthbearer_clock_skew_seconds -1 is below 0"),
        (
            {"sasl_users_file": Path("users.json")},
            "sasl_users_file is there, and sasl_enabled_mechanisms has no login",
        ),
        (
            {"sasl_enabled_mechanisms": ("SCRAM-SHA-512",), "sasl_users_file": Path("users.json")},
            "sasl_oauthbearer_jwks_file is there, and sasl_enabled_mechanisms has no OAUTHBEARER",
        ),
    ],
)
def test_settings_that_let_too_many_in_or_are_of_no_use_are_told(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    BrokerConfig(tmp_path, **OF_TOKENS)
    with pytest.raises(ValueError, match=r"^") as caught:
        BrokerConfig(tmp_path, **{**OF_TOKENS, **changed})
    assert told in str(caught.value)
