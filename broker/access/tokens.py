"""Whether a token holds: a JSON Web Token (RFC 7519) of one issuer, signed by one of its public keys. Pure but for the
file of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ClaimError,
    ExpiredTokenError,
    JoseError,
    MissingClaimError,
    MissingCritHeaderError,
    UnsupportedAlgorithmError,
    UnsupportedHeaderError,
)
from joserfc.jwk import ECKey, GuestProtocol, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.jwt import ClaimsOption

from broker.access.bearer import INSUFFICIENT_SCOPE, Bearer, TokenRefused
from broker.access.jwks import ALGORITHMS, Keys, read_keys
from broker.base.reloaded import Reloaded
from broker.limits import TOKEN_BYTES_MAX

PRINCIPAL_CHARACTERS_MAX: Final = 255
_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999: a token that ends later is one without an end to us."""
_SHOWN_CHARACTERS_MAX: Final = 100
_EXTENDED: Final = "the token asks for extensions (crit), and this broker knows none"


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens let in. Of `audiences` the token needs one, of `scopes` all; empty: it is not asked."""

    issuer: str
    audiences: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_seconds: int = 0


class _Registry(JWSRegistry):
    """The library's limits are for headers without a certificate in them; ours is on the token as a whole."""

    max_header_length = TOKEN_BYTES_MAX
    max_payload_length = TOKEN_BYTES_MAX


class Tokens:
    """What all who show tokens share. The keys are read again when their file changes."""

    def __init__(self, keys_file: Path, rules: TokenRules, now_s: Callable[[], float]) -> None:
        """`now_s` is a steady clock. Raises AccessInvalid."""
        self._rules, self.scopes = rules, rules.scopes
        self._keys: Reloaded[Keys] = Reloaded([keys_file], lambda: read_keys(keys_file), now_s)

    def bearer(self, token: bytes, now_ms: int) -> Bearer:
        """Raises TokenRefused."""
        return bearer_of(token, self._keys.current(), self._rules, now_ms)


def bearer_of(token: bytes, keys: Keys, rules: TokenRules, now_ms: int) -> Bearer:
    """Raises TokenRefused."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"the token has {len(token)} bytes, and {TOKEN_BYTES_MAX} is the most")
    claims = _signed_claims(token, keys)
    _check_claims(claims, rules, now_ms)
    _check_scopes(claims.get(rules.scope_claim), rules)
    user = claims.get(rules.principal_claim)
    if not isinstance(user, str) or not user.isprintable() or not 0 < len(user) <= PRINCIPAL_CHARACTERS_MAX:
        raise TokenRefused(f"the token names nobody: its claim {rules.principal_claim} is no name")
    ends_s = min(claims["exp"], _LAST_SECOND) + rules.clock_skew_seconds
    return Bearer(user, int(ends_s * 1000))


def _signed_claims(token: bytes, keys: Keys) -> dict[str, Any]:
    def key_of(signed: GuestProtocol) -> RSAKey | ECKey:
        header = signed.headers()
        if "crit" in header:
            raise TokenRefused(_EXTENDED)
        kid, algorithm = header.get("kid"), header["alg"]
        if not isinstance(kid, str):
            raise TokenRefused("the token does not say by which key it is signed (kid)")
        found = keys.get(kid)
        if found is None:
            raise TokenRefused("the token is signed by a key that this broker does not know")
        if algorithm not in found.algorithms:
            raise TokenRefused(f"the token is signed by {algorithm}, which is not of its key")
        return found.key

    registry = _Registry(algorithms=ALGORITHMS, strict_check_header=False)
    try:
        return jwt.decode(token, key_of, registry=registry).claims
    except BadSignatureError:
        raise TokenRefused("the token's signature is wrong") from None
    except (MissingCritHeaderError, UnsupportedHeaderError):
        raise TokenRefused(_EXTENDED) from None
    except UnsupportedAlgorithmError:
        raise TokenRefused(f"the token is signed by none of {', '.join(ALGORITHMS)}") from None
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
        # What the library says may show parts of what was sent.
        raise TokenRefused("what was sent is no token") from None


def _check_claims(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> None:
    wanted: dict[str, ClaimsOption] = {
        "iss": {"essential": True, "value": rules.issuer},
        "exp": {"essential": True},
    }
    if rules.audiences:
        wanted["aud"] = {"essential": True, "values": list(rules.audiences)}
    try:
        jwt.JWTClaimsRegistry(now_ms // 1000, rules.clock_skew_seconds, **wanted).validate(claims)
    except MissingClaimError as error:
        raise TokenRefused(f"the token lacks the claim {error.claim}") from None
    except ClaimError as error:
        raise TokenRefused(_why(error, claims.get(error.claim), rules)) from None


def _why(error: ClaimError, value: Any, rules: TokenRules) -> str:
    if error.claim == "iss":
        return f"the token is of the issuer {_shown(value)}, and this broker takes those of {rules.issuer}"
    if error.claim == "aud":
        return f"the token is for {_shown(value)}, and this broker is {' or '.join(rules.audiences)}"
    if error.claim in ("exp", "nbf", "iat") and (time := _time(value)) is not None:
        is_over = isinstance(error, ExpiredTokenError)
        return f"the token is over since {time}" if is_over else f"the token does not hold before {time}"
    return f"the token's claim {error.claim} is not what it should be"


def _check_scopes(given: Any, rules: TokenRules) -> None:
    """One text with blanks (RFC 8693, section 4.2), or a list."""
    has = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    if lacking := [scope for scope in rules.scopes if scope not in has]:
        raise TokenRefused(f"the token lacks the scope {' '.join(lacking)}", INSUFFICIENT_SCOPE)


def _shown(value: Any) -> str:
    """Of a token whose signature is right, and not all of it where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _time(value: Any) -> str | None:
    """None: it is none."""
    if isinstance(value, bool):
        return None
    try:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (TypeError, ValueError, OverflowError, OSError):
        return None
