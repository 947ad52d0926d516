"""TLS: whom the client believes, and what it says of whom it does not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.connection import Connection, connect
from broker.client.errors import AccessRefused, CertificateRefused, ConnectionLost, SiteInvalid, TlsRefused
from broker.client.limits import ClientLimits
from broker.client.log import FetchLimits, fetch_request
from broker.client.security.settings import Access, Secret, Security, Tls, TlsVersion
from broker.wire.frames import RequestHeader
from broker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from tests.broker.client.peer import peer
from tests.certificates import Authority, KeyPair

LIMITS = ClientLimits(connect_timeout_ms=2_000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> KeyPair:
    return authority.sign("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> KeyPair:
    return authority.sign("client")


def context(pair: KeyPair, clients_of: Authority | None = None) -> ssl.SSLContext:
    """A broker's; with `clients_of` it asks for certificates of these."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(pair.certificate, pair.key)
    if clients_of is not None:
        made.load_verify_locations(clients_of.certificate)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


async def answer(_header: RequestHeader, message: Message) -> Message:
    if isinstance(message, FetchRequest):
        data = PartitionData(records=bytes(range(256)) * (message.max_bytes // 256))
        return FetchResponse(responses=[FetchableTopicResponse("t", [data])])
    return ListGroupsResponse()


async def open_to(address: Address, tls: Tls | None, server_name: str = "127.0.0.1") -> Connection:
    return await connect(address, client_id="test", limits=LIMITS, access=Access("east", server_name, Security(tls)))


@contextmanager
def shaking_hands(made: ssl.SSLContext | None) -> Iterator[Address]:
    """Who does no more than that, and says why it fails, as brokers do and asyncio's servers do not; None: hangs up."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                dialled, _ = listener.accept()
                with dialled.dup() as outside, suppress(OSError):
                    if made is None:
                        dialled.recv(1)
                        dialled.close()
                        continue
                    with suppress(ssl.SSLError), made.wrap_socket(dialled, server_side=True) as inside:
                        while inside.recv(1):
                            pass
                    while outside.recv(4096):  # hung up on with words unread, the peer might lose the alert
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address(*listener.getsockname())
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


async def refusal(made: ssl.SSLContext, tls: Tls, server_name: str = "127.0.0.1") -> AccessRefused:
    with shaking_hands(made) as address, pytest.raises(AccessRefused) as caught:
        await open_to(address, tls, server_name)
    assert f"site east at {address}" in str(caught.value)
    assert caught.value.hint
    return caught.value


async def test_small_and_large_answers_come_whole_and_writable(authority: Authority, server: KeyPair) -> None:
    async with peer(answer, tls=context(server)) as address:
        connection = await open_to(address, Tls(authority.certificate))
        limits = FetchLimits(8 << 20, 8 << 20)
        asked = [ListGroupsRequest(), fetch_request({TopicPartition("t", 0): 0}, limits), ListGroupsRequest()]
        _, fetched, _ = await asyncio.gather(*[await connection.send(message) for message in asked])
        await connection.close()
    records = fetched.responses[0].partitions[0].records
    assert bytes(records) == bytes(range(256)) * (8 << 12)
    assert not records.readonly


async def test_a_certificate_for_another_host(authority: Authority) -> None:
    named = authority.sign("named", "DNS:kafka-1.example")
    async with peer(answer, tls=context(named)) as address:
        # Dialled by another address (NAT, a proxy), a broker still is who it says it is.
        await (await open_to(address, Tls(authority.certificate), "kafka-1.example")).close()
    refused = await refusal(context(named), Tls(authority.certificate))
    assert isinstance(refused, CertificateRefused)
    assert "not for 127.0.0.1" in str(refused)


async def test_a_certificate_that_has_expired(authority: Authority) -> None:
    refused = await refusal(context(authority.sign("old", days=-1)), Tls(authority.certificate))
    assert isinstance(refused, CertificateRefused)
    assert str(refused).endswith("has expired; farshore comes as nobody by name")


async def test_who_comes_is_told_though_the_broker_never_heard_it(authority: Authority, client: KeyPair) -> None:
    shown = context(authority.sign("older", days=-1))
    own = Tls(authority.certificate, client.certificate, client.key)
    told = str(await refusal(shown, own))
    assert told.endswith(f"farshore comes as the subject of {client.certificate}, which it had not told yet")


async def test_a_certificate_of_nobody_known(tmp_path: Path, authority: Authority) -> None:
    stranger = Authority(tmp_path).sign("stranger")
    refused = await refusal(context(stranger), Tls(authority.certificate))
    assert isinstance(refused, CertificateRefused)
    assert str(authority.certificate) in str(refused)
    by_the_system = await refusal(context(stranger), Tls())
    assert "the system" in str(by_the_system)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_broker_that_asks_who_comes(
    authority: Authority, server: KeyPair, client: KeyPair, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    """By TLS 1.3 it judges behind the handshake."""
    made = context(server, clients_of=authority)
    made.minimum_version = made.maximum_version = version
    own = Tls(authority.certificate, client.certificate, client.key)
    async with peer(answer, tls=made) as address:
        connection = await open_to(address, own)
        await connection.request(ListGroupsRequest())
        await connection.close()
    refused = await refusal(made, Tls(authority.certificate))
    if version is ssl.TLSVersion.TLSv1_3:
        assert "a client without a certificate" in str(refused)
    else:  # which has no word of its own for it
        assert "a client's certificate" in refused.hint
    stranger = Authority(tmp_path).sign("stranger")
    refused = await refusal(made, Tls(authority.certificate, stranger.certificate, stranger.key))
    assert str(stranger.certificate) in str(refused)


async def test_a_version_that_is_too_old(authority: Authority, server: KeyPair) -> None:
    made = context(server)
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    refused = await refusal(made, Tls(authority.certificate, version_min=TlsVersion.TLS_1_3))
    assert isinstance(refused, TlsRefused)


async def test_who_speaks_tls_to_who_does_not(authority: Authority) -> None:
    with shaking_hands(None) as address, pytest.raises(ConnectionLost, match="is it a listener for SSL"):
        await open_to(address, Tls(authority.certificate))


async def test_who_does_not_speak_tls_to_who_does() -> None:
    async def alert(_header: RequestHeader, _message: Message) -> bytes:
        return b"\x15\x03\x03\x00\x02\x02\x46"

    async with peer(answer, versions=alert) as address:
        with pytest.raises(TlsRefused, match="speaks TLS"):
            await open_to(address, None)


async def test_files_that_changed_hold_for_the_next_connection(
    tmp_path: Path, authority: Authority, server: KeyPair
) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(authority.certificate.read_bytes())
    tls = Tls(ca_file)
    async with peer(answer, tls=context(server)) as address:
        open_one = await open_to(address, tls)
        ca_file.write_bytes(Authority(tmp_path / "other").certificate.read_bytes())
        with pytest.raises(CertificateRefused):
            await open_to(address, tls)
        await open_one.request(ListGroupsRequest())
        await open_one.close()
        ca_file.write_bytes(authority.certificate.read_bytes())
        await (await open_to(address, tls)).close()


async def test_files_that_are_none(tmp_path: Path, server: KeyPair, client: KeyPair, authority: Authority) -> None:
    """Told before anything is dialled."""
    (tmp_path / "empty").write_text("")
    ca = authority.certificate
    for tls, named in (
        (Tls(tmp_path / "nowhere"), "nowhere"),
        (Tls(tmp_path / "empty"), "empty"),
        (Tls(ca, client.certificate, server.key), "server.key"),
        (Tls(ca, client.certificate), "client.pem"),
        (Tls(ca, client.certificate, tmp_path / "empty"), "empty"),
        (Tls(ca, client.certificate, client.key, Secret(file=tmp_path / "no secret")), "no secret"),
    ):
        with pytest.raises(SiteInvalid, match=named) as caught:
            await open_to(Address("127.0.0.1", 1), tls)
        assert caught.value.hint
