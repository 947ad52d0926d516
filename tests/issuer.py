"""Who gives out tokens, for tests: keys, the file with their public halves, and tokens signed by them."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from joserfc import jws
from joserfc.jwk import ECKey, Key, RSAKey

ISSUER: Final = "https://login.example"
AUDIENCE: Final = "kafka"


@cache
def rsa_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": kid})


@cache
def ec_key(kid: str, curve: Any = "P-256") -> ECKey:
    return ECKey.generate_key(curve, parameters={"kid": kid})


def write_keys(file: Path, *keys: Key) -> Path:
    """The public ones alone, never half of them."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}))
    return beside.replace(file)


def claims_of(user: str = "shop", now_s: float | None = None, **others: Any) -> dict[str, Any]:
    """For five minutes; a claim that is None is left out."""
    begins = int(time.time() if now_s is None else now_s)
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": begins, "exp": begins + 300, **others}
    return {name: value for name, value in given.items() if value is not None}


def signed(key: Key, algorithm: str, claims: object, **header: Any) -> str:
    """A header that is None is left out. `claims` may be anything, as JSON or as bytes."""
    given = {"typ": "JWT", "alg": algorithm, "kid": key.kid, **header}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jws.serialize_compact({k: v for k, v in given.items() if v is not None}, payload, key, registry=registry)


def a_token(user: str = "shop", **claims: Any) -> str:
    return signed(rsa_key("rsa-1"), "RS256", claims_of(user, **claims))


def unsigned(header: object, claims: object, signature: str = "") -> str:
    """Parts as they are, with a signature that somebody made up."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    return ".".join([*parts, signature])


def said(token: str) -> bytes:
    """As a client of OAUTHBEARER says it."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
