"""Logging in over a connection, and again before its session ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.connection import Connection, connect
from broker.client.errors import AuthenticationFailed, ConnectionLost, SecretUnreadable
from broker.client.limits import ClientLimits
from broker.client.security import login
from broker.client.security.settings import Access, Mechanism, Sasl, Secret, Security
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.schema import Message
from tests.broker.client.peer import peer
from tests.broker.client.security.scram_server import ScramServer

LIMITS = ClientLimits(connect_timeout_ms=2_000)
PASSWORD = "hunter2"
OF_SECRETS = [mechanism for mechanism in Mechanism if mechanism is not Mechanism.GSSAPI]


@dataclass
class LockedBroker:
    """Lets in who knows the password, for `lifetime_ms`; says what came in which order."""

    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism)
    password: str = PASSWORD
    lifetime_ms: int = 0
    is_honest: bool = True
    logins: int = 0
    requests: list[str] = field(default_factory=list)
    held: asyncio.Event | None = None
    """Until it is set, what is not of a login is not answered."""
    _mechanism: Mechanism | None = None
    _scram: ScramServer | None = None

    async def answer(self, header: RequestHeader, message: Message) -> Message | None:
        self.requests.append(type(message).__name__.removesuffix("Request"))
        if isinstance(message, SaslHandshakeRequest):
            if message.mechanism not in self.mechanisms:
                return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, [*self.mechanisms])
            self._mechanism = Mechanism(message.mechanism)
            self._scram = None
            return SaslHandshakeResponse(0, [*self.mechanisms])
        if isinstance(message, SaslAuthenticateRequest):
            return self._authenticate(message.auth_bytes)
        if not self.logins:
            return None
        if self.held is not None:
            await self.held.wait()
        return ListGroupsResponse()

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        refused = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Authentication failed")
        if self._mechanism is Mechanism.PLAIN:
            return self._let_in() if token == f"\0farshore\0{self.password}".encode() else refused
        if self._mechanism is Mechanism.OAUTHBEARER:
            if token == b"\x01":
                return refused
            is_right = token == f"n,,\x01auth=Bearer {self.password}\x01\x01".encode()
            return self._let_in() if is_right else SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        assert self._mechanism is not None
        first = self._scram is None
        self._scram = self._scram or ScramServer(self._mechanism, {"farshore": self.password}, is_honest=self.is_honest)
        answer = self._scram.answer(token)
        if answer is None:
            return refused
        return SaslAuthenticateResponse(auth_bytes=answer) if first else self._let_in(answer)

    def _let_in(self, last: bytes = b"") -> SaslAuthenticateResponse:
        self.logins += 1
        return SaslAuthenticateResponse(auth_bytes=last, session_lifetime_ms=self.lifetime_ms)


def the_login(folder: Path, mechanism: Mechanism = Mechanism.SCRAM_SHA_256, secret: str = PASSWORD) -> Sasl:
    (folder / "secret").write_text(f"{secret}\n")
    username = "" if mechanism is Mechanism.OAUTHBEARER else "farshore"
    return Sasl(mechanism, username, Secret(file=folder / "secret"))


async def log_in(address: Address, sasl: Sasl) -> Connection:
    access = Access("east", address.host, Security(sasl=sasl))
    return await connect(address, client_id="test", limits=LIMITS, access=access)


@pytest.mark.parametrize("mechanism", OF_SECRETS)
async def test_who_knows_the_secret_is_let_in(mechanism: Mechanism, tmp_path: Path) -> None:
    broker = LockedBroker()
    async with peer(broker.answer) as address:
        connection = await log_in(address, the_login(tmp_path, mechanism))
        assert isinstance(await connection.request(ListGroupsRequest()), ListGroupsResponse)
        await connection.close()
    assert broker.logins == 1


@pytest.mark.parametrize("mechanism", OF_SECRETS)
async def test_who_does_not_is_told_so(mechanism: Mechanism, tmp_path: Path) -> None:
    broker = LockedBroker(password="another")
    async with peer(broker.answer) as address:
        with pytest.raises(AuthenticationFailed, match=r"site east at 127\.0\.0\.1:\d+ and .*: the broker ") as caught:
            await log_in(address, the_login(tmp_path, mechanism))
    assert mechanism in str(caught.value)
    assert caught.value.hint
    assert PASSWORD not in str(caught.value)
    assert broker.logins == 0


async def test_a_mechanism_that_is_not_offered_names_those_that_are(tmp_path: Path) -> None:
    broker = LockedBroker(mechanisms=(Mechanism.PLAIN, Mechanism.OAUTHBEARER))
    async with peer(broker.answer) as address:
        with pytest.raises(AuthenticationFailed, match="UNSUPPORTED_SASL_MECHANISM") as caught:
            await log_in(address, the_login(tmp_path))
    assert caught.value.hint == "it offers: PLAIN, OAUTHBEARER"


async def test_a_broker_that_does_not_know_the_password_gets_no_request(tmp_path: Path) -> None:
    broker = LockedBroker(is_honest=False)
    async with peer(broker.answer) as address:
        with pytest.raises(AuthenticationFailed, match="does not know the password"):
            await log_in(address, the_login(tmp_path))
    assert set(broker.requests) == {"SaslHandshake", "SaslAuthenticate"}


async def test_without_its_secret_nothing_is_sent(tmp_path: Path) -> None:
    broker = LockedBroker()
    async with peer(broker.answer) as address:
        sasl = the_login(tmp_path)
        (tmp_path / "secret").unlink()
        with pytest.raises(SecretUnreadable, match="secret"):
            await log_in(address, sasl)
    assert broker.requests == []


LOGIN = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]


async def test_a_login_is_renewed_in_time_with_nothing_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here before each request: whoever sends meanwhile waits, and what was sent before is answered first."""
    monkeypatch.setattr(login, "AGAIN_AT", 0.0)
    broker = LockedBroker(lifetime_ms=60_000, held=asyncio.Event())
    assert broker.held is not None
    async with peer(broker.answer) as address:
        connection = await log_in(address, the_login(tmp_path))
        first = await connection.send(ListGroupsRequest())
        others = [asyncio.ensure_future(connection.request(ListGroupsRequest())) for _ in range(3)]
        done, _ = await asyncio.wait(others, timeout=0.1)
        assert (done, connection.in_flight_requests) == (set(), 1)
        broker.held.set()
        await asyncio.gather(first, *others)
        await connection.close()
    assert broker.requests == [*LOGIN, *4 * [*LOGIN, "ListGroups"]]


async def test_a_login_without_an_end_is_not_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "AGAIN_AT", 0.0)
    broker = LockedBroker(lifetime_ms=0)
    async with peer(broker.answer) as address:
        connection = await log_in(address, the_login(tmp_path))
        await connection.request(ListGroupsRequest())
        await connection.close()
    assert broker.requests == [*LOGIN, "ListGroups"]


async def test_a_renewal_takes_the_secret_that_is_there_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "AGAIN_AT", 0.0)
    broker = LockedBroker(lifetime_ms=60_000)
    async with peer(broker.answer) as address:
        connection = await log_in(address, the_login(tmp_path))
        broker.password = "changed"
        the_login(tmp_path, secret="changed")
        await connection.request(ListGroupsRequest())
        broker.password = "changed again"
        with pytest.raises(AuthenticationFailed):
            await connection.request(ListGroupsRequest())
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            await connection.request(ListGroupsRequest())
    assert broker.logins == 2
