"""A listener that speaks TLS: who gets in, as whom, and certificates that change. On both event loops."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.base.reloaded import AccessInvalid
from broker.config import BrokerConfig
from broker.limits import TLS_HANDSHAKE_MS
from broker.server import Server
from tests.broker.running import running_server
from tests.broker.wire_client import WireClient, batch_of, connect, values_in
from tests.certificates import Authority, KeyPair, self_signed
from tests.ports import free_port

MIB = 1024 * 1024
ALERT = b"\x15"
REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def locked(tmp_path: Path, pair: KeyPair, **settings: Any) -> AsyncIterator[Server]:
    """A broker with one listener for TLS."""
    files = {"ssl_certificate_file": pair.certificate, "ssl_key_file": pair.key}
    where = ("SSL://127.0.0.1:0",)
    async with running_server(tmp_path / "data", **{"listeners": where, **files, **settings}) as server:
        yield server


def trusting(authority: Authority, own: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


@asynccontextmanager
async def safely(address: str, context: ssl.SSLContext) -> AsyncIterator[WireClient]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield WireClient(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def principals(server: Server) -> set[str]:
    return {connection.principal for connection in server.connections}


def serial_of(client: WireClient) -> str:
    return str(client.writer.get_extra_info("ssl_object").getpeercert()["serialNumber"])


@pytest.mark.parametrize("asks", ["none", "requested", "required"])
async def test_a_listener_at_which_nobody_has_to_show_who_he_is_says_so(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, asks: str
) -> None:
    """What passes is sealed, and whoever reaches it may do everything all the same."""
    open_to_others = {"listeners": ("SSL://0.0.0.0:0",), "advertised_listeners": ("SSL://127.0.0.1:9093",)}
    client_ca = {} if asks == "none" else {"ssl_client_ca_file": authority.certificate}
    with caplog.at_level(logging.WARNING, "broker.server"):
        async with locked(tmp_path, authority.sign("server"), **open_to_others, **client_ca, ssl_client_auth=asks):
            pass
    told = "SSL://0.0.0.0:0 asks for no certificate and no login: whoever reaches it may read, write and delete"
    assert any(line.startswith(told) for line in caplog.messages) == (asks != "required")


async def test_records_of_all_sizes_pass(tmp_path: Path, authority: Authority) -> None:
    async with (
        locked(tmp_path, authority.sign("server")) as server,
        safely(server.address, trusting(authority)) as client,
    ):
        await client.create_topic("t", max_message_bytes=str(8 * MIB))
        for number, size in enumerate((1, 9_000, 300_000, 3 * MIB)):
            assert (await client.produce("t", batch_of("x" * size))).error_code == 0
            data = await client.fetch("t", number, partition_max_bytes=8 * MIB, max_bytes=8 * MIB)
            assert [len(value) for value in values_in(data)] == [size]
        assert client.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert principals(server) == {"User:ANONYMOUS"}


async def test_many_requests_at_once_are_answered_in_order(tmp_path: Path, authority: Authority) -> None:
    async with (
        locked(tmp_path, authority.sign("server")) as server,
        safely(server.address, trusting(authority)) as client,
    ):
        await client.create_topic("t")
        for _ in range(50):
            await client.produce("t", batch_of("x" * 5000))
        assert len(values_in(await client.fetch("t", 0))) == 50


async def test_tls_below_1_2_and_plain_bytes_do_not_get_in(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with locked(tmp_path, authority.sign("server")) as server:
        old = trusting(authority)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with caplog.at_level(logging.WARNING, "broker.base.server_tls"), pytest.raises(REFUSED):
            async with safely(server.address, old):
                pass
        assert "a client and this broker agree on no TLS" in caplog.text
        async with connect(server.address) as plain:
            await plain.send_bytes(b"\0\0\0\x14\0\x12\0\x03\0\0\0\x01\xff\xff" + b"\0" * 10)
            with suppress(ConnectionError):
                assert (await plain.reader.read())[:1] in (b"", ALERT)
        newer = trusting(authority)
        newer.maximum_version = ssl.TLSVersion.TLSv1_2
        async with safely(server.address, newer) as client:
            await client.create_topic("t")


async def test_required_certificates_say_who_came(tmp_path: Path, authority: Authority) -> None:
    asked = {"ssl_client_ca_file": authority.certificate, "ssl_client_auth": "required"}
    async with locked(tmp_path, authority.sign("server"), **asked) as server:
        async with safely(server.address, trusting(authority, authority.sign("shop"))) as client:
            await client.create_topic("t")
            assert principals(server) == {"User:CN=shop"}
        stranger = Authority(tmp_path / "other").sign("shop")
        for context in (trusting(authority), trusting(authority, stranger)):
            with pytest.raises(REFUSED):
                async with safely(server.address, context) as client:
                    await client.create_topic("u")


async def test_who_fails_at_tls_is_told_why(tmp_path: Path, authority: Authority) -> None:
    """By TLS's own alert: without it clients see a connection that ends, and come again and again."""
    asked = {"ssl_client_ca_file": authority.certificate, "ssl_client_auth": "required"}
    async with locked(tmp_path, authority.sign("server"), **asked) as server:
        refused = (
            (None, "CERTIFICATE_REQUIRED"),
            (Authority(tmp_path / "other").sign("shop"), "UNKNOWN_CA"),
            (authority.sign("late", days=-1), "CERTIFICATE_EXPIRED"),
            (self_signed(tmp_path / "own", "shop"), "UNKNOWN_CA"),
            (self_signed(tmp_path / "called as the CA", "ca"), "UNKNOWN_CA"),
        )
        for own, alert in refused:
            with pytest.raises(ssl.SSLError, match=alert):
                async with safely(server.address, trusting(authority, own)) as client:
                    await client.create_topic("u")
        assert "u" not in server.broker.topics
        assert server.failed_logins.counts == {("SSL", "certificate"): len(refused)}


async def test_requested_certificates_may_be_missing_and_never_wrong(tmp_path: Path, authority: Authority) -> None:
    asked = {"ssl_client_ca_file": authority.certificate, "ssl_client_auth": "requested"}
    rules = {"ssl_principal_mapping_rules": "RULE:^CN=(.*)$/$1/U"}
    async with locked(tmp_path, authority.sign("server"), **asked, **rules) as server:
        for own, principal in ((None, "User:ANONYMOUS"), (authority.sign("shop"), "User:SHOP")):
            async with safely(server.address, trusting(authority, own)) as client:
                assert await client.try_create_topic("t") in (0, 36)
                assert principal in principals(server)
        stranger = Authority(tmp_path / "other").sign("shop")
        with pytest.raises(REFUSED):
            async with safely(server.address, trusting(authority, stranger)) as client:
                await client.create_topic("u")


async def test_a_certificate_that_no_rule_takes_does_not_get_in(tmp_path: Path, authority: Authority) -> None:
    asked = {"ssl_client_ca_file": authority.certificate, "ssl_client_auth": "required"}
    rules = {"ssl_principal_mapping_rules": "RULE:^CN=reader$/reader/"}
    async with locked(tmp_path, authority.sign("server"), **asked, **rules) as server:
        with pytest.raises(REFUSED):
            async with safely(server.address, trusting(authority, authority.sign("shop"))) as client:
                await client.create_topic("t")
        assert "t" not in server.broker.topics


async def test_a_certificate_that_changes_is_taken_for_new_connections_alone(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.sign("server")
    own = KeyPair(tmp_path / "own.pem", tmp_path / "own.key")

    def place(certificate: bytes, key: bytes) -> None:
        own.certificate.write_bytes(certificate)
        own.key.write_bytes(key)

    place(pair.certificate.read_bytes(), pair.key.read_bytes())
    async with locked(tmp_path, own) as server, safely(server.address, trusting(authority)) as first:
        await first.create_topic("t")
        with caplog.at_level(logging.WARNING, "broker.base.reloaded"):
            place(b"half a file", pair.key.read_bytes())
            async with safely(server.address, trusting(authority)) as second:
                assert serial_of(second) == serial_of(first)
            async with safely(server.address, trusting(authority)):
                pass
            assert [line for line in caplog.messages if "goes on until that is mended" in line] == caplog.messages
            assert len(caplog.messages) == 1
            renewed = authority.sign("renewed")
            place(renewed.certificate.read_bytes(), renewed.key.read_bytes())
            async with safely(server.address, trusting(authority)) as third:
                assert serial_of(third) != serial_of(first)
                await third.create_topic("u")
            assert caplog.messages[-1].endswith("it is in order again")
        assert (await first.produce("t", batch_of("old connection"))).error_code == 0


async def test_silence_before_the_handshake_locks_nobody_out(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes is let in, in place of who shakes no hands for longest."""
    monkeypatch.setattr("broker.server.STRANGERS_MAX", 5)
    async with AsyncExitStack() as silent, asyncio.timeout(TLS_HANDSHAKE_MS / 1000 / 2):
        async with locked(tmp_path, authority.sign("server")) as server:
            there = [await silent.enter_async_context(connect(server.address)) for _ in range(6)]
            assert await there[0].is_closed()
            async with safely(server.address, trusting(authority)) as client:
                assert await there[1].is_closed()
                await client.create_topic("t")
                for _ in range(6):
                    there.append(await silent.enter_async_context(connect(server.address)))
                async with safely(server.address, trusting(authority)) as another:
                    await another.create_topic("u")
                assert (await client.produce("t", batch_of("a"))).error_code == 0
            assert server.refused == {"unauthenticated": 8}
        assert all([await one.is_closed() for one in there]), "a stop does not wait for hands to be shaken"


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_who_shakes_no_hands_is_closed_in_time(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    assert TLS_HANDSHAKE_MS <= 30_000, "what docs/security.md promises"
    monkeypatch.setattr("broker.server.TLS_HANDSHAKE_MS", 100)
    async with locked(tmp_path, authority.sign("server")) as server, connect(server.address) as silent:
        await silent.send_bytes(begun)
        assert await silent.is_closed()
        async with safely(server.address, trusting(authority)) as client:
            await client.create_topic("t")


async def test_who_shakes_no_hands_is_one_of_his_addresses_connections(tmp_path: Path, authority: Authority) -> None:
    async with (
        locked(tmp_path, authority.sign("server"), max_connections_per_ip=2) as server,
        safely(server.address, trusting(authority)) as client,
        connect(server.address),
        connect(server.address) as third,
    ):
        assert await third.is_closed()
        assert server.refused == {"max.connections.per.ip": 1}
        await client.create_topic("t")


async def test_a_broker_with_several_listeners_locks_those_that_say_so(tmp_path: Path, authority: Authority) -> None:
    both = (f"PLAINTEXT://127.0.0.1:{free_port()}", f"SSL://127.0.0.1:{free_port()}")
    async with locked(tmp_path, authority.sign("server"), listeners=both) as server:
        async with connect(server.address) as plain:
            await plain.create_topic("t")
        async with safely(str(server.broker.advertised_at("SSL")), trusting(authority)) as client:
            assert (await client.produce("t", batch_of("a"))).error_code == 0


async def test_files_that_cannot_be_taken_stop_the_start(tmp_path: Path, authority: Authority) -> None:
    server, other = authority.sign("server"), authority.sign("other")
    for pair in (KeyPair(tmp_path / "none.pem", server.key), KeyPair(server.certificate, other.key)):
        with pytest.raises(AccessInvalid, match="TLS cannot be had with"):
            async with locked(tmp_path, pair):
                pass


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": ("SSL://h:1",)}, "ssl_certificate_file is missing; listener SSL needs it"),
        ({"ssl_certificate_file": Path("c")}, "no listener has TLS"),
        ({"ssl_client_auth": "maybe"}, "ssl_client_auth 'maybe' is none of none, requested, required"),
        ({"ssl_client_auth": "required"}, "ssl_client_ca_file is missing; ssl_client_auth is required"),
        (
            {"listeners": ("SSL://h:1",), "ssl_certificate_file": Path("c"), "ssl_client_ca_file": Path("c")},
            "no client would be asked",
        ),
        ({"ssl_principal_mapping_rules": "x"}, "ssl_principal_mapping_rules: 'x' is no rule"),
    ],
)
def test_settings_that_lock_nothing_are_told(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        BrokerConfig(tmp_path, **given)
    assert told in str(caught.value)
