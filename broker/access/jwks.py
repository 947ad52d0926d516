"""The keys that tokens are signed by, as an issuer gives them out: a JSON Web Key Set in a file (RFC 7517)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.util import base64_to_int

from broker.base.reloaded import AccessInvalid

log = logging.getLogger(__name__)

RSA_BITS_MIN: Final = 2048
_OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS: Final = (*_OF_RSA, *_OF_CURVES.values())
"""Those of public keys. None of shared keys: whoever had the public one could sign by them."""
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth")


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """`algorithms` are those that it may have been used with."""

    key: RSAKey | ECKey
    algorithms: tuple[str, ...]


Keys = Mapping[str, VerifyingKey]
"""By their `kid`; at least one."""


def read_keys(file: Path) -> Keys:
    """What verifies signatures of that file; keys of other kinds and for other uses are passed over, as the RFC has it,
    and, with a line in the log, those without a `kid`, which no token could name. Raises AccessInvalid.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccessInvalid(f"the keys in {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise AccessInvalid(f"the keys in {file} cannot be read: it is no JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise AccessInvalid(
            f"the keys in {file} cannot be read: it is no JSON Web Key Set, an object with a list of keys"
        )
    found: dict[str, VerifyingKey] = {}
    nameless: list[str] = []
    for number, given in enumerate(listed, 1):
        where = f"key {number} in {file}"
        if any(part in given for part in _PRIVATE):
            raise AccessInvalid(
                f"{where} is a private one: who reads it makes tokens",
                hint="give the broker the public keys alone, as the issuer's jwks_uri does",
            )
        if not (algorithms := _algorithms(given)):
            continue
        kid = given.get("kid")
        if not isinstance(kid, str) or not kid:
            log.warning("%s is passed over: it has no kid, and no token could name it", where)
            nameless.append(where)
            continue
        if kid in found:
            raise AccessInvalid(f"{where} has kid {kid!r}, which another one has, too")
        found[kid] = VerifyingKey(_imported(where, given), algorithms)
    if nameless and not found:
        raise AccessInvalid(f"{nameless[0]} has no kid: no token could name it, and no other key verifies signatures")
    if not found:
        raise AccessInvalid(f"{file} has no key that verifies signatures: of RSA, or EC on {', '.join(_OF_CURVES)}")
    return found


def _algorithms(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Empty where it is not to be used for signatures, or of no kind that is taken."""
    operations = given.get("key_ops")
    if given.get("use", "sig") != "sig" or (operations is not None and operations != ["verify"]):
        return ()
    of_kind: tuple[str, ...] = ()
    if given.get("kty") == "RSA":
        of_kind = _OF_RSA
    elif given.get("kty") == "EC" and isinstance(curve := given.get("crv"), str) and curve in _OF_CURVES:
        of_kind = (_OF_CURVES[curve],)
    return tuple(name for name in of_kind if given.get("alg", name) == name)


def _imported(where: str, given: dict[str, Any]) -> RSAKey | ECKey:
    try:
        if given["kty"] == "EC":
            return ECKey.import_key(given)
        # Asked before the library would only warn.
        if (bits := base64_to_int(given["n"]).bit_length()) < RSA_BITS_MIN:
            raise AccessInvalid(f"{where} has {bits} bits: RSA needs {RSA_BITS_MIN}, as shorter ones are broken")
        return RSAKey.import_key(given)
    except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AccessInvalid(f"{where} is no key of {given['kty']}: {error}") from None
