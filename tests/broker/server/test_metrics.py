"""What a broker counts for Prometheus, read back as Prometheus reads it: who was kept out or held back, and by what."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.client.security.scram import ScramClient
from broker.client.security.settings import Mechanism
from broker.http.registry import page_of
from broker.limits import LOGIN_MS
from broker.metrics import broker_registry
from broker.server import Server
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.produce import ProduceResponse
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.server.test_authorizer import LOCKED, client_of
from tests.broker.server.test_logins import GOOD, Ahead, guarded, log_in, present, shake
from tests.broker.server.test_quotas import LARGE, LIMIT, REST_MS_MIN, limit
from tests.broker.server.test_tls import REFUSED, locked, safely, trusting
from tests.broker.server.test_token_logins import guarded as guarded_by_tokens
from tests.broker.server.test_token_logins import log_in as show
from tests.broker.server.test_token_logins import refusal
from tests.broker.wire_client import batch_of, connect, produce_request
from tests.certificates import Authority
from tests.issuer import a_token, claims_of, rsa_key, signed

Labels = tuple[str, ...]


def counted(server: Server, name: str) -> dict[Labels, float]:
    """By the values of the labels, in their order by name."""
    page = page_of(broker_registry(server))("text/plain", ()).body.decode()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"farshore_broker_{name}"
    }


async def test_denials_are_counted_by_operation_and_kind_and_not_by_who(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server) as shop:
        assert counted(server, "authorization_denials_total") == {}
        for topic in ("a", "b", "b"):
            await shop.produce(topic, batch_of("x"))
        await shop.fetch("a", 0)
        await shop.ask(MetadataRequest(None), 12, MetadataResponse)
        assert counted(server, "authorization_denials_total") == {("WRITE", "TOPIC"): 3, ("READ", "TOPIC"): 1}
        page = page_of(broker_registry(server))("text/plain", ()).body.decode()
        assert "shop" not in page
        assert "127.0.0.1" not in page


async def test_failed_logins_are_counted_by_mechanism_and_reason(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock, sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-256")) as server:
        for token in (b"\0shop\0wrong", b"\0nobody\0wrong", b"\0shop"):
            async with connect(server.address) as client:
                await log_in(client, token)
        async with connect(server.address) as client:
            assert await shake(client, "SCRAM-SHA-512") == 33
        async with connect(server.address) as client:
            assert await shake(client, "SCRAM-SHA-256") == 0
            scram = ScramClient(Mechanism.SCRAM_SHA_256, "shop", "wrong", "abc")
            answer = scram.step(bytes((await present(client, scram.begin())).auth_bytes))
            assert (await present(client, answer or b"")).error_code == 58
        async with connect(server.address) as client:
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()
        async with connect(server.address) as client, connect(server.address) as user:
            assert (await log_in(user)).error_code == 0
            assert counted(server, "connections") == {(): 2}
            assert counted(server, "connections_unauthenticated") == {(): 1}
            clock.ahead_s = LOGIN_MS / 1000 + 1
            assert await client.is_closed()
        assert counted(server, "failed_authentications_total") == {
            ("PLAIN", "credentials"): 2,
            ("PLAIN", "malformed"): 1,
            ("none", "mechanism"): 1,
            ("SCRAM-SHA-256", "credentials"): 1,
            ("none", "out_of_turn"): 1,
            ("none", "timeout"): 1,
        }


async def test_a_session_that_is_over_and_a_bare_token_are_counted_once(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock, connections_max_reauth_ms=60_000) as server:
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
            clock.ahead_s = 61
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client, version=0) == 0
            await client.send_bytes(len(GOOD[:-1]).to_bytes(4, "big") + GOOD[:-1])
            assert await client.is_closed()
        assert counted(server, "failed_authentications_total") == {
            ("PLAIN", "session"): 1,
            ("PLAIN", "credentials"): 1,
        }


async def test_tokens_that_do_not_hold_or_no_more_are_counted_once(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded_by_tokens(tmp_path, clock) as server:
        forged = signed(rsa_key("evil"), "RS256", claims_of(), kid="rsa-1")
        for token in (a_token(exp=1), a_token(aud="shop"), forged, "x"):
            async with connect(server.address) as client:
                await refusal(client, token)
        assert counted(server, "failed_authentications_total") == {("OAUTHBEARER", "credentials"): 4}
        async with connect(server.address) as client:
            assert await shake(client, "OAUTHBEARER") == 0
            assert (await present(client, b"n,,\x01")).error_code == 58
        async with connect(server.address) as client:
            assert await shake(client, "PLAIN") == 33
        async with connect(server.address) as client:
            assert (await show(client, a_token())).error_code == 0
            clock.ahead_s = 301
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()
        assert counted(server, "failed_authentications_total") == {
            ("OAUTHBEARER", "credentials"): 4,
            ("OAUTHBEARER", "malformed"): 1,
            ("none", "mechanism"): 1,
            ("OAUTHBEARER", "session"): 1,
        }


async def test_failed_handshakes_are_counted_as_what_they_are(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "other")
    asked: dict[str, Any] = {"ssl_client_ca_file": authority.certificate, "ssl_client_auth": "required"}
    async with locked(tmp_path, authority.sign("server"), **asked) as server:
        for context in (trusting(authority), trusting(authority, other.sign("stranger"))):
            with suppress(*REFUSED):
                async with safely(server.address, context) as client:
                    await client.ask(MetadataRequest([]), 12, MetadataResponse)
        async with connect(server.address) as plain:
            await plain.send(MetadataRequest([]), 12)
            with suppress(*REFUSED):
                await plain.reader.read()
        async with safely(server.address, trusting(authority, authority.sign("shop"))) as client:
            await client.ask(MetadataRequest([]), 12, MetadataResponse)

        async def all_counted() -> bool:
            counts = counted(server, "failed_authentications_total")
            return counts == {("SSL", "certificate"): 2, ("SSL", "handshake"): 1}

        await until(all_counted)


async def test_throttles_are_counted_by_quota_with_their_time(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        await limit(client, {"client-id": "test"}, producer_byte_rate=LIMIT)
        assert counted(server, "quota_throttles_total") == {}
        answer = await client.ask(produce_request("t", LARGE), 9, ProduceResponse)
        assert counted(server, "quota_throttles_total") == {("producer_byte_rate",): 1}
        held_s = counted(server, "quota_throttle_seconds_total")[("producer_byte_rate",)]
        assert held_s >= REST_MS_MIN / 1000
        assert held_s == pytest.approx(answer.throttle_time_ms / 1000, abs=0.001)


async def test_connections_that_are_not_served_are_counted_by_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.STRANGERS_MAX", 1)
    async with guarded(tmp_path) as server, connect(server.address) as first, connect(server.address):
        assert await first.is_closed()
        assert counted(server, "connections_refused_total") == {("unauthenticated",): 1}
