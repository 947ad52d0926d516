"""Keys and certificates made into each other: PKCS #12, PKCS #8, PEM. Pure; who needs it loads `cryptography` by it."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12


@dataclass(frozen=True, slots=True)
class Store:
    """What a store of PKCS #12 holds, in PEM: the certificate of its key first, and the key not encrypted."""

    certificates: str
    key: str | None


def open_store(store: bytes, password: bytes | None) -> Store:
    """Raises ValueError."""
    try:
        found = load_pkcs12(store, password)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    certificates = [each for each in (found.cert, *found.additional_certs) if each is not None]
    pem = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates)
    return Store(pem.decode(), None if found.key is None else _written(found.key, NoEncryption()))


def plain_key(pem: bytes, password: bytes | None) -> str:
    """As PKCS #8. Raises ValueError, also for a password where there is none to be."""
    try:
        return _written(load_pem_private_key(pem, password), NoEncryption())
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from error


def sealed_key(plain: str, password: bytes) -> str:
    """A key of `plain_key` under a password."""
    return _written(load_pem_private_key(plain.encode(), None), BestAvailableEncryption(password))


def _written(key: PrivateKeyTypes, encryption: KeySerializationEncryption) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
