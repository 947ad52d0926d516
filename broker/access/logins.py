"""Logins by SASL, at listeners that ask for them: what all share, and the state of one connection (KIP-152, 368)."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

from broker.access.bearer import BearerServer, TokenCheck
from broker.access.failed_logins import FailedLogins, LoginFailure
from broker.access.known_users import KnownUsers
from broker.access.principals import ANONYMOUS
from broker.access.scram import LoginRefused, ScramServer
from broker.access.users import ITERATIONS, Credential, is_password, of_plain
from broker.base.clock import Clock
from broker.base.ending import to_its_end
from broker.base.fair_turns import FairTurns
from broker.client.security.scram import HASHES
from broker.client.security.settings import Mechanism
from broker.limits import LOGIN_API_VERSIONS_MAX, LOGIN_REFUSED_MS
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode

OF_PASSWORDS: Final = (Mechanism.PLAIN, *HASHES)
SERVED_MECHANISMS: Final = (*OF_PASSWORDS, Mechanism.OAUTHBEARER)
NONCE_BYTES: Final = 24
_TURN: Final = LoginFailure.OUT_OF_TURN
_OF_LOGINS: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class Exchange(Protocol):
    """The broker's side of a mechanism."""

    @property
    def user(self) -> str | None:
        """Who has proven who he is."""

    @property
    def ends_ms(self) -> int | None:
        """Until when that holds (Unix time); None: for as long as the broker lets a session last."""

    async def step(self, message: bytes) -> bytes:
        """What to answer. Raises LoginRefused."""


class Answer(NamedTuple):
    """To a token. `lifetime_ms` 0: the session has no end."""

    error: ErrorCode
    text: str | None
    token: bytes
    lifetime_ms: int


class Logins:
    """What the connections of the listeners with logins share."""

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        users: KnownUsers,
        session_ms: int,
        clock: Clock,
        failed: FailedLogins,
        tokens: TokenCheck | None = None,
    ) -> None:
        """`tokens` is there where OAUTHBEARER is one of the mechanisms."""
        self.failed = failed
        self.mechanisms, self.session_ms, self.clock = tuple(mechanisms), session_ms, clock
        self._users, self._tokens = users, tokens
        self._turns = FairTurns()

    def begin(self, host: str) -> Login:
        """Of one who comes from there."""
        return Login(self, host)

    def exchange(self, mechanism: Mechanism, host: str) -> Exchange:
        if mechanism is Mechanism.PLAIN:
            return _Plain(self, host)
        if mechanism is Mechanism.OAUTHBEARER:
            tokens = self._tokens
            assert tokens is not None, "the configuration was checked"
            return BearerServer(lambda token: tokens.bearer(token, self.clock.now_ms()), tokens.scopes)
        return ScramServer(mechanism, lambda user: self.credential(mechanism, user), secrets.token_urlsafe(NONCE_BYTES))

    def credential(self, mechanism: Mechanism, user: str) -> Credential:
        """For who is not known a made-up one, the same each time and at each broker of the cluster, as that of a user
        is: asking does not tell who there is.
        """
        made_up = self._made_up_of(mechanism, user, ITERATIONS)
        return self._users.of(user).get(mechanism, made_up)

    def _made_up_of(self, mechanism: Mechanism, user: str, iterations: int) -> Credential:
        secret = self._users.secret
        made_up = hmac.digest(secret, f"{mechanism} {user}".encode(), HASHES[mechanism])
        key = hmac.digest(secret, made_up, HASHES[mechanism])
        return Credential(made_up[:24], key, key, iterations)

    async def is_password(self, user: str, password: str, host: str) -> bool:
        """In a thread: it takes milliseconds on purpose, as many whoever it is and whether or not there is such a user.
        One at a time, to its end also where who asked is gone, and addresses take turns: who tries a thousand
        passwords holds up no other.
        """
        known, work = self._users.of(user), self._users.plain_work()
        mechanism, iterations = next(iter(work.items()))
        made_up = self._made_up_of(mechanism, user, iterations)
        mechanism, one = of_plain(known or {mechanism: made_up})
        async with self._turns.of(host):
            return await to_its_end(asyncio.to_thread(is_password, password, mechanism, one, work))


class _Plain:
    """RFC 4616, in one message."""

    ends_ms = None

    def __init__(self, logins: Logins, host: str) -> None:
        self._logins, self._host = logins, host
        self.user: str | None = None

    async def step(self, message: bytes) -> bytes:
        try:
            for_whom, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginRefused("Authentication failed: what was sent is not PLAIN") from None
        if for_whom not in ("", user) or not user or not password:
            raise LoginRefused("Authentication failed: PLAIN needs one user name and a password")
        if not await self._logins.is_password(user, password, self._host):
            raise LoginRefused("Authentication failed: Invalid username or password", LoginFailure.CREDENTIALS)
        self.user = user
        return b""


class Login:
    """Of one connection: who it is, until when, and what it may ask meanwhile."""

    def __init__(self, logins: Logins, host: str) -> None:
        self._logins, self._clock, self._host = logins, logins.clock, host
        self._mechanism: Mechanism | None = None
        self._exchange: Exchange | None = None
        self._ends_s = inf
        self._versions_asked = 0
        self.principal: str | None = None
        self.is_bare = False
        """The next frame is a token and nothing else, as a handshake of version 0 has it."""
        self.is_refused = False
        """The connection ends when this is answered."""

    @property
    def mechanisms(self) -> list[str]:
        return [str(each) for each in self._logins.mechanisms]

    def check(self, api_key: int) -> None:
        """Whether such a request may be asked now. Raises LoginRefused, which closes the connection."""
        if self.is_refused:
            raise LoginRefused("a request behind a login that was refused")
        try:
            self._check_turn(api_key)
        except LoginRefused as refused:
            self.failed(refused.reason)
            raise

    def failed(self, reason: LoginFailure) -> None:
        """It is counted."""
        self._logins.failed.note(self._mechanism, reason)

    def _check_turn(self, api_key: int) -> None:
        if api_key in _OF_LOGINS:
            return
        if self._exchange is not None:
            raise LoginRefused(f"a request with API key {api_key} in the middle of a login", _TURN)
        if self.principal is None:
            if api_key != ApiKey.API_VERSIONS:
                raise LoginRefused(f"a request with API key {api_key} before a login", _TURN)
            self._versions_asked += 1
            if self._versions_asked > LOGIN_API_VERSIONS_MAX:
                raise LoginRefused(f"more than {LOGIN_API_VERSIONS_MAX} requests of ApiVersions before a login", _TURN)
        if self._clock.boottime() >= self._ends_s:
            raise LoginRefused(f"the session of {self.principal} is over, and no new login came", LoginFailure.SESSION)

    async def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """`mechanism` is what the client wants to log in by; again, where a session is to go on."""
        if self._exchange is None and self.principal is not None and self._ends_s == inf:
            return ErrorCode.ILLEGAL_SASL_STATE
        is_another = self._mechanism is not None and mechanism != self._mechanism
        if self._exchange is not None or is_another:
            return await self._refused(ErrorCode.ILLEGAL_SASL_STATE, _TURN)
        if mechanism not in self.mechanisms:
            return await self._refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, LoginFailure.MECHANISM)
        self._mechanism = Mechanism(mechanism)
        self._exchange = self._logins.exchange(self._mechanism, self._host)
        self.is_bare = version == 0
        return ErrorCode.NONE

    async def present(self, token: bytes) -> Answer:
        """A token of the mechanism that the handshake named."""
        exchange = self._exchange
        if exchange is None:
            error = await self._refused(ErrorCode.ILLEGAL_SASL_STATE, _TURN)
            return Answer(error, "SaslAuthenticate request received before a SaslHandshake", b"", 0)
        try:
            answer = await exchange.step(token)
            lifetime_ms = 0 if exchange.user is None else self._logged_in(f"User:{exchange.user}", exchange.ends_ms)
        except LoginRefused as refused:
            return Answer(await self._refused(refused.error_code, refused.reason), str(refused), b"", 0)
        return Answer(ErrorCode.NONE, None, answer, lifetime_ms)

    def _logged_in(self, principal: str, ends_ms: int | None) -> int:
        """-> how long the session is, in milliseconds; 0: it has no end."""
        if principal == ANONYMOUS:
            # His rights may be for another listener, which asks nobody and is not reached from everywhere.
            raise LoginRefused(f"Authentication failed: {principal} is who does not log in", LoginFailure.CREDENTIALS)
        if self.principal not in (None, principal):
            raise LoginRefused(
                "Authentication failed: Cannot change principals during re-authentication", LoginFailure.SESSION
            )
        self.principal = principal
        self._exchange, self.is_bare = None, False
        limits_ms = [self._logins.session_ms] if self._logins.session_ms else []
        if ends_ms is not None:
            limits_ms.append(max(1, ends_ms - self._clock.now_ms()))
        lifetime_ms = min(limits_ms, default=0)
        self._ends_s = self._clock.boottime() + lifetime_ms / 1000 if lifetime_ms else inf
        return lifetime_ms

    async def _refused(self, error: ErrorCode, reason: LoginFailure) -> ErrorCode:
        """Later than it is known: who guesses passwords guesses slowly."""
        self.is_refused = True
        self.failed(reason)
        await self._clock.sleep(LOGIN_REFUSED_MS / 1000)
        return error
