"""Who may log in, in a file that holds no password: salted credentials of SCRAM (RFC 5802, section 3)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.base.reloaded import AccessInvalid
from broker.client.security.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN
from broker.client.security.settings import Mechanism

ITERATIONS: Final = 8192
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    """Of one user for one hash. Who has it may not log in by it, and may try passwords: it is not shown."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(cls, mechanism: Mechanism, password: str, salt: bytes, iterations: int = ITERATIONS) -> Credential:
        """Takes milliseconds: that is its purpose."""
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    @classmethod
    def of_salted(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
        """Of a password that was salted already: who has it may log in by it."""
        name = HASHES[mechanism]
        stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)

    def is_of(self, mechanism: Mechanism, password: str) -> bool:
        """As long as `of`, whatever the answer."""
        made = Credential.of(mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


Users = Mapping[str, Mapping[Mechanism, Credential]]
Work = Mapping[Mechanism, int]
"""Iterations, by hash."""


def of_plain(of_user: Mapping[Mechanism, Credential]) -> tuple[Mechanism, Credential]:
    """The one by which a login by PLAIN is checked."""
    return next(iter(of_user.items()))


def is_password(password: str, mechanism: Mechanism, one: Credential, work: Work) -> bool:
    """Takes `work`, which is at least what `one` takes: for how long tells nothing of whose that is."""
    found = one.is_of(mechanism, password)
    for each, iterations in work.items():
        if each != mechanism:
            hashlib.pbkdf2_hmac(HASHES[each], password.encode(), one.salt, iterations)
        elif iterations > one.iterations:
            # Without the password, which was hashed once: a long one takes time by itself.
            hashlib.pbkdf2_hmac(HASHES[each], b"", one.salt, iterations - one.iterations)
    return found


def new_credentials(password: str) -> dict[Mechanism, Credential]:
    """For every hash, each with a salt of its own."""
    return {mechanism: Credential.of(mechanism, password, os.urandom(SALT_BYTES)) for mechanism in HASHES}


def read_users(file: Path) -> Users:
    """Raises AccessInvalid, which shows nothing that stands in the file but names."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AccessInvalid(f"the users in {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise AccessInvalid(f"the users in {file} cannot be read: it is no JSON") from None
    if not isinstance(document, dict):
        raise AccessInvalid(f"the users in {file} cannot be read: it is no object of users")
    return {user: _credentials(file, user, of_user) for user, of_user in document.items()}


def _credentials(file: Path, user: str, document: Any) -> dict[Mechanism, Credential]:
    try:
        found = {
            Mechanism(name): Credential(
                base64.b64decode(given["salt"], validate=True),
                base64.b64decode(given["stored_key"], validate=True),
                base64.b64decode(given["server_key"], validate=True),
                given["iterations"],
            )
            for name, given in document.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error):
        raise AccessInvalid(f"user {user!r} in {file} has no credentials that can be read") from None
    for mechanism, one in found.items():
        if not _is_whole(mechanism, one):
            raise AccessInvalid(f"user {user!r} in {file} has credentials for {mechanism} that are none")
    if not found or not user:
        raise AccessInvalid(f"user {user!r} in {file} has no credentials")
    return found


def _is_whole(mechanism: Mechanism, one: Credential) -> bool:
    size = hashlib.new(HASHES[mechanism]).digest_size if mechanism in HASHES else -1
    if not isinstance(one.iterations, int) or not ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
        return False
    return bool(one.salt) and {len(one.stored_key), len(one.server_key)} == {size}


def text_of(one: Credential) -> str:
    """As Kafka keeps it on a user, by the mechanism's name."""
    salt, stored_key, server_key = (
        base64.b64encode(each).decode() for each in (one.salt, one.stored_key, one.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={one.iterations}"


def credential_of(mechanism: Mechanism, text: str) -> Credential:
    """Of `text_of`. Raises AccessInvalid, which shows nothing of it."""
    try:
        given = dict(part.split("=", 1) for part in text.split(","))
        one = Credential(
            base64.b64decode(given["salt"], validate=True),
            base64.b64decode(given["stored_key"], validate=True),
            base64.b64decode(given["server_key"], validate=True),
            int(given["iterations"]),
        )
    except (KeyError, ValueError):
        one = None
    if one is None or not _is_whole(mechanism, one):
        raise AccessInvalid("what stands there is no credential", hint="set the password anew: kafka-configs --alter")
    return one


def write_users(file: Path, users: Users) -> None:
    """Readable by its owner alone, and never half of it. Raises OSError."""
    document = {
        user: {
            str(mechanism): {
                "salt": base64.b64encode(one.salt).decode(),
                "stored_key": base64.b64encode(one.stored_key).decode(),
                "server_key": base64.b64encode(one.server_key).decode(),
                "iterations": one.iterations,
            }
            for mechanism, one in sorted(of_user.items())
        }
        for user, of_user in sorted(users.items())
    }
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(file)
