"""Listeners that ask for a login: who gets in, and how little may be done before. On both event loops."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.access.users import Users, new_credentials, write_users
from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.errors import AuthenticationFailed
from broker.client.security.scram import HASHES, ScramClient
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.config import BrokerConfig
from broker.handlers.table import INTER_BROKER_HANDLERS
from broker.limits import LOGIN_API_VERSIONS_MAX, LOGIN_MS, LOGIN_REQUEST_BYTES_MAX, TOKEN_BYTES_MAX
from broker.server import Server
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.wire_client import WireClient, batch_of, connect
from tests.certificates import Authority

MIB = 1024 * 1024
PASSWORD = "canary-secret-7Qw"
GOOD = f"\0shop\0{PASSWORD}".encode()
USERS: Users = {"shop": new_credentials(PASSWORD), "reader": new_credentials(PASSWORD)}
ALL = ("PLAIN", *HASHES)
REQUESTS = {17, 18, 36}
BEGINNERS, BEGUN_BYTES = 70, 9000
"""Strangers that begin a large request and stop."""


class Ahead(SystemClock):
    """The system's clock, set forward."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def boottime(self) -> float:
        return super().boottime() + self.ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)


@asynccontextmanager
async def guarded(tmp_path: Path, clock: Ahead | None = None, **settings: Any) -> AsyncIterator[Server]:
    """A broker with one listener for logins without TLS."""
    file = tmp_path / "users.json"
    write_users(file, USERS)
    given = {"listeners": ("SASL_PLAINTEXT://127.0.0.1:0",), "sasl_enabled_mechanisms": ALL, "sasl_users_file": file}
    async with running_server(tmp_path / "data", clock, **{**given, **settings}) as server:
        yield server


async def shake(client: WireClient, mechanism: str = "PLAIN", version: int = 1) -> int:
    return (await client.ask(SaslHandshakeRequest(mechanism), version, SaslHandshakeResponse)).error_code


async def present(client: WireClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(token), version, SaslAuthenticateResponse)


async def log_in(client: WireClient, token: bytes = GOOD) -> SaslAuthenticateResponse:
    assert await shake(client) == 0
    return await present(client, token)


@asynccontextmanager
async def refused_late() -> AsyncIterator[None]:
    """Later than it is known: who guesses guesses slowly."""
    began_s = asyncio.get_running_loop().time()
    yield
    assert asyncio.get_running_loop().time() - began_s >= 0.099


async def works(client: WireClient) -> bool:
    return bool((await client.ask(MetadataRequest([]), 12, MetadataResponse)).brokers)


def site(
    server: Server, tmp_path: Path, mechanism: Mechanism, password: str = PASSWORD, tls: Tls | None = None
) -> Site:
    (tmp_path / "secret").write_text(password)
    return Site(
        "east", server.address, security=Security(tls, Sasl(mechanism, "shop", Secret(file=tmp_path / "secret")))
    )


@pytest.mark.parametrize("mechanism", [Mechanism(each) for each in ALL])
async def test_our_client_logs_in_by_each_mechanism_and_not_with_another_password(
    tmp_path: Path, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with guarded(tmp_path) as server:
            async with Cluster(site(server, tmp_path, mechanism)) as cluster:
                assert not await create_topics(cluster, [NewTopic("t", 1)])
                assert {each.principal for each in server.connections} == {"User:shop"}
            with pytest.raises(AuthenticationFailed):
                async with Cluster(site(server, tmp_path, mechanism, "wrong-secret-9Zx")):
                    pass
    assert PASSWORD not in caplog.text
    assert "wrong-secret" not in caplog.text


async def test_a_login_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on the last place of a stranger: who shook hands needs no second one for his login."""
    monkeypatch.setattr("broker.server.STRANGERS_MAX", 1)
    authority = Authority(tmp_path / "ca")
    pair = authority.sign("server")
    files: dict[str, Any] = {"ssl_certificate_file": pair.certificate, "ssl_key_file": pair.key}
    async with guarded(tmp_path, listeners=("SASL_SSL://127.0.0.1:0",), **files) as server:
        where = site(server, tmp_path, Mechanism.SCRAM_SHA_512, tls=Tls(authority.certificate))
        async with Cluster(where) as cluster:
            assert not await create_topics(cluster, [NewTopic("t", 1)])
            assert {each.principal for each in server.connections} == {"User:shop"}
        assert not server.refused


async def test_before_a_login_only_what_belongs_to_it_is_answered(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            versions = await client.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
            promised = {each.api_key for each in versions.api_keys}
            assert promised > REQUESTS, "clients ask once, before they log in"
            assert (await log_in(client)).error_code == 0
            assert await works(client)
        # With those between brokers, and some that there are not.
        keys = {*promised, *INTER_BROKER_HANDLERS, -1, 99} - REQUESTS
        assert keys > {4, 5, 6, 7}
        for key in sorted(keys):
            async with connect(server.address) as client:
                await client.send_bytes(struct.pack(">ihhih", 10, key, 0, 1, -1))
                assert await client.is_closed(), f"API key {key}"
        assert server.failed_logins.counts == {("none", "out_of_turn"): len(keys)}, "and not as what is malformed"


async def test_a_stranger_asks_for_versions_a_few_times_and_a_user_as_often_as_ever(tmp_path: Path) -> None:
    """Quotas pass over strangers: one could keep the broker busy until its time for a login is over."""
    asked = ApiVersionsRequest("test", "1")
    async with guarded(tmp_path) as server, connect(server.address) as stranger, connect(server.address) as user:
        for client in (stranger, user):
            for _ in range(LOGIN_API_VERSIONS_MAX):
                assert (await client.ask(asked, 3, ApiVersionsResponse)).error_code == 0
        await stranger.send(asked, 3)
        assert await stranger.is_closed()
        assert (await log_in(user)).error_code == 0
        for _ in range(LOGIN_API_VERSIONS_MAX + 1):
            assert (await user.ask(asked, 3, ApiVersionsResponse)).error_code == 0


async def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            assert (await present(client, GOOD)).error_code == 34
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client) == 0
            assert await shake(client) == 34
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert await shake(client) == 0
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
            assert await shake(client) == 34, "no session ends here, so there is nothing to go on with"
            assert await works(client)


async def test_a_mechanism_that_is_not_enabled_is_named_with_those_that_are(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, sasl_enabled_mechanisms=("SCRAM-SHA-512",)) as server,
        connect(server.address) as client,
    ):
        answer = await client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
        assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-512"])
        assert await client.is_closed()


async def test_bare_tokens_follow_a_handshake_of_version_0(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            assert await shake(client, version=0) == 0
            await client.send_bytes(struct.pack(">i", len(GOOD)) + GOOD)
            assert await client.receive_frame() == b""
            assert await works(client)
        async with connect(server.address) as client:
            assert await shake(client, "SCRAM-SHA-512", 0) == 0
            scram = ScramClient(Mechanism.SCRAM_SHA_512, "shop", PASSWORD, "abc")
            token: bytes | None = scram.begin()
            while token is not None:
                await client.send_bytes(struct.pack(">i", len(token)) + token)
                token = scram.step(await client.receive_frame())
            assert await works(client)
        async with connect(server.address) as client:
            assert await shake(client, version=0) == 0
            await client.send_bytes(struct.pack(">i", 0))
            assert await client.is_closed()


async def test_a_stranger_sends_little_and_a_user_as_much_as_ever(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            await client.send_bytes(struct.pack(">i", LOGIN_REQUEST_BYTES_MAX + 1))
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client, b"x" * (LOGIN_REQUEST_BYTES_MAX - 100))).error_code == 58
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
            await client.send_bytes(struct.pack(">i", LOGIN_REQUEST_BYTES_MAX + 1) + b"\0\x12\0\x63\0\0\0\x01\xff\xff")
            await client.send_bytes(b"x" * (LOGIN_REQUEST_BYTES_MAX + 1 - 10))
            assert len(await client.receive_frame()) > 10, "ApiVersions of a version that is not known is answered"


async def test_a_stranger_who_waits_is_closed_and_a_user_is_not(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock) as server, connect(server.address) as user, connect(server.address) as stranger:
        assert (await log_in(user)).error_code == 0
        assert await shake(stranger) == 0
        later = clock.monotonic() + LOGIN_MS / 1000 + 1
        for connection in list(server.connections):
            connection.check(later)
        assert await stranger.is_closed()
        assert await works(user)


async def test_strangers_are_few_and_users_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes is let in, in place of who is a stranger for longest: strangers that say nothing lock nobody out."""
    monkeypatch.setattr("broker.server.STRANGERS_MAX", 2)
    async with guarded(tmp_path) as server, connect(server.address) as one, connect(server.address) as two:
        assert await shake(one) == 0
        assert await shake(two) == 0
        assert (await present(one, GOOD)).error_code == 0
        async with connect(server.address) as third, connect(server.address) as fourth:
            assert await two.is_closed()
            assert (await log_in(third)).error_code == 0
            assert (await log_in(fourth)).error_code == 0
        assert await works(one)


async def test_frames_that_strangers_begin_take_no_memory_of_users(tmp_path: Path) -> None:
    """A few that announced much, sent little and said no more once held up everybody's larger requests."""
    budget: dict[str, Any] = {"queued_max_request_bytes": MIB, "socket_request_max_bytes": MIB}
    async with guarded(tmp_path, **budget) as server, connect(server.address) as user, AsyncExitStack() as strangers:
        assert (await log_in(user)).error_code == 0
        await user.create_topic("t")
        for _ in range(BEGINNERS):
            stranger = await strangers.enter_async_context(connect(server.address))
            await stranger.send_bytes(struct.pack(">ihhih", LOGIN_REQUEST_BYTES_MAX, 36, 2, 1, -1) + b"x" * BEGUN_BYTES)
        async with asyncio.timeout(LOGIN_MS / 1000 / 2):
            await until(lambda: len(server.connections) == BEGINNERS + 1)
            assert await works(user), "what strangers sent was read meanwhile"
            assert (await user.produce("t", batch_of("x" * 600_000))).error_code == 0
            async with connect(server.address) as another:
                assert (await log_in(another, b"x" * TOKEN_BYTES_MAX)).error_code == 58, "a large token does not wait"
        assert server.strangers_memory.used_bytes <= BEGINNERS * 2 * BEGUN_BYTES


async def test_what_a_connection_leaves_waits_for_no_look_of_the_garbage_collector(tmp_path: Path) -> None:
    """A thousand a second were half a second's look every few, in which the broker answered nobody."""
    async with guarded(tmp_path) as server:
        gc.disable()
        try:
            async with connect(server.address) as silent, connect(server.address) as refused:
                assert (await log_in(refused, b"wrong")).error_code == 58
                assert await refused.is_closed()
                await silent.send_bytes(b"\0")
                await until(lambda: len(server.connections) == 1)
                (left,) = [weakref.ref(each) for each in server.connections]
            await until(lambda: left() is None)
        finally:
            gc.enable()


async def test_requests_behind_a_login_are_the_users_and_nothing_is_left_counted(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        async with connect(server.address) as client:
            assert await shake(client) == 0
            await client.send(SaslAuthenticateRequest(GOOD), 2)
            await client.send(MetadataRequest([]), 12)
            await client.receive_frame()
            await client.receive_frame()
            assert await works(client)
        await until(lambda: not server.connections)
        assert (server.memory.used_bytes, server.strangers_memory.used_bytes) == (0, 0)


async def test_a_session_ends_unless_the_same_user_logs_in_again(tmp_path: Path) -> None:
    clock = Ahead()
    async with guarded(tmp_path, clock, connections_max_reauth_ms=60_000) as server:
        async with connect(server.address) as client:
            assert (await log_in(client)).session_lifetime_ms == 60_000
            clock.ahead_s += 50
            assert (await log_in(client)).error_code == 0
            clock.ahead_s += 50
            assert await works(client)
            clock.ahead_s += 10
            await client.send(MetadataRequest([]), 12)
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
            clock.ahead_s += 60
            assert (await log_in(client)).error_code == 0, "behind the end only a login is taken"
            assert await works(client)
            assert (await log_in(client, f"\0reader\0{PASSWORD}".encode())).error_code == 58
            assert await client.is_closed()
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
            assert await shake(client, "SCRAM-SHA-256") == 34
            assert await client.is_closed()


async def test_users_that_change_on_disk_are_taken_and_half_a_file_is_not(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        (tmp_path / "users.json").write_text("half")
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 0
        write_users(tmp_path / "users.json", {"reader": USERS["reader"]})
        async with connect(server.address) as client:
            assert (await log_in(client)).error_code == 58
        async with connect(server.address) as client:
            assert (await log_in(client, f"\0reader\0{PASSWORD}".encode())).error_code == 0


async def test_nobody_logs_in_as_who_does_not_log_in(tmp_path: Path) -> None:
    """He may have rights that are meant for a listener which only this machine reaches."""
    async with guarded(tmp_path) as server:
        write_users(tmp_path / "users.json", {**USERS, "ANONYMOUS": USERS["shop"]})
        async with connect(server.address) as client:
            assert (await log_in(client, f"\0ANONYMOUS\0{PASSWORD}".encode())).error_code == 58
            assert await client.is_closed()


@pytest.mark.parametrize(("mechanisms", "is_told"), [(ALL, True), (HASHES, False)])
async def test_passwords_that_pass_unencrypted_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanisms: tuple[str, ...], is_told: bool
) -> None:
    where: dict[str, Any] = {"listeners": ("OUT://0.0.0.0:0",), "advertised_listeners": ("OUT://127.0.0.1:9",)}
    names: dict[str, Any] = {"listener_security_protocol_map": {"OUT": "SASL_PLAINTEXT"}}
    with caplog.at_level(logging.WARNING, "broker.server"):
        async with guarded(tmp_path, sasl_enabled_mechanisms=tuple(mechanisms), **where, **names):
            pass
    assert ("OUT://0.0.0.0:0 lets clients log in by PLAIN without TLS" in caplog.text) is is_told
    assert "neither TLS nor" not in caplog.text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"listeners": ("SASL_PLAINTEXT://h:1",)}, "sasl_enabled_mechanisms is missing; listener SASL_PLAINTEXT"),
        (
            {"listeners": ("SASL_PLAINTEXT://h:1",), "sasl_enabled_mechanisms": ALL},
            "sasl_users_file is missing; listener SASL_PLAINTEXT needs it",
        ),
        ({"sasl_users_file": Path("u")}, "sasl_users_file is there, and no listener asks for a login"),
        ({"sasl_oauthbearer_jwks_file": Path("k")}, "sasl_oauthbearer_jwks_file is there, and no listener asks"),
        ({"sasl_enabled_mechanisms": ("GSSAPI",)}, "sasl_enabled_mechanisms has 'GSSAPI', which is none of PLAIN"),
        ({"connections_max_reauth_ms": -1}, "connections_max_reauth_ms -1 is below 0"),
    ],
)
def test_settings_that_let_nobody_or_everybody_in_are_told(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        BrokerConfig(tmp_path, **given)
    assert told in str(caught.value)
