"""Certificates and keys that OpenSSL cannot read from where they stand: stores of PKCS #12, and properties."""

from __future__ import annotations

import secrets
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.client.errors import SecretUnreadable, SecurityInvalid
from broker.client.security.places import Place, Property, PropertyUnreadable, pem_of, text_of
from broker.client.security.settings import Secret, Tls

if TYPE_CHECKING:
    from broker.client.security.pkcs import Store

_JAVA_STARTS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_ONE_OFF_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class OwnPair:
    """A certificate with those that lead to its authority, and its key (PKCS #8, not encrypted), in PEM."""

    chain: str
    key: str


def is_java_store(start: bytes) -> bool:
    """Whether a file that begins so is of Java's own types, JKS and JCEKS, which nobody else reads."""
    return start.startswith(_JAVA_STARTS)


def how_to_convert(file: Path) -> str:
    new = file.with_suffix(".p12")
    return (
        f"make PKCS #12 of it: keytool -importkeystore -srckeystore {file} -destkeystore {new} -deststoretype PKCS12, "
        f"and name {new}"
    )


def authorities(tls: Tls) -> str | None:
    """Whom to trust, in PEM, where OpenSSL cannot read that from the file itself. Raises SecurityInvalid."""
    is_pem = isinstance(tls.ca_file, Path) and not _is_store(tls.ca_file)
    return None if tls.ca_file is None or is_pem else authorities_pem(tls)


def authorities_pem(tls: Tls) -> str:
    """Whom to trust, in PEM. Raises SecurityInvalid."""
    assert tls.ca_file is not None, "who asks knows that there is one"
    if isinstance(tls.ca_file, Path) and _is_store(tls.ca_file):
        found = _open(tls.ca_file, tls.ca_password).certificates
    else:
        found = pem_of(_text(tls.ca_file), "CERTIFICATE")
    if not found:
        raise SecurityInvalid(f"{tls.ca_file} holds no certificates")
    return found


def load_own_pair(context: ssl.SSLContext, tls: Tls) -> bool:
    """Have a context show this client's certificate; False: OpenSSL can read it from its files itself.

    Raises SecurityInvalid.
    """
    file = tls.certificate_file
    if isinstance(file, Path) and not isinstance(tls.key_file, Property) and not _is_store(file):
        return False
    from broker.client.security.pkcs import sealed_key

    pair = own_pair(tls)
    # OpenSSL reads pairs from files alone. What lies in this one for a moment is of no use without a password that
    # nobody else ever has.
    password = secrets.token_urlsafe(_ONE_OFF_BYTES).encode()
    try:
        with tempfile.NamedTemporaryFile(prefix="farshore-") as both:
            both.write(f"{pair.chain}{sealed_key(pair.key, password)}".encode())
            both.flush()
            context.load_cert_chain(both.name, None, lambda: password)
    except ssl.SSLError as error:
        raise SecurityInvalid(f"{file} has no certificate and its key: {error.reason}") from error
    except OSError as error:
        raise SecurityInvalid(f"the key of {file} cannot be handed to OpenSSL: {error.strerror}") from error
    return True


def own_pair(tls: Tls) -> OwnPair:
    """This client's. Raises SecurityInvalid."""
    assert tls.certificate_file is not None, "who asks knows that there is one"
    if isinstance(tls.certificate_file, Path) and _is_store(tls.certificate_file):
        if tls.key_file is not None:
            raise SecurityInvalid(
                f"{tls.certificate_file} is of PKCS #12 and has its key in it", "take key_file out of farshore.toml"
            )
        store = _open(tls.certificate_file, tls.key_password)
        if store.key is None:
            raise SecurityInvalid(f"{tls.certificate_file} holds no key", "name a store with certificate and key")
        return OwnPair(store.certificates, store.key)
    chain = pem_of(_text(tls.certificate_file), "CERTIFICATE")
    return OwnPair(chain, _key_of(tls.key_file or tls.certificate_file, tls.key_password))


def _key_of(place: Place, password: Secret | None) -> str:
    from broker.client.security.pkcs import plain_key

    pem, opened_with = pem_of(_text(place), "PRIVATE KEY"), _password(password, place)
    try:
        return plain_key(pem.encode(), opened_with)
    except ValueError as error:
        raise SecurityInvalid(f"{place} is no key, or not with this password of it") from error


def _is_store(file: Path) -> bool:
    """Whether it is of PKCS #12, which is DER; else it is PEM. Raises SecurityInvalid, also of a type of Java's own."""
    try:
        with file.open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise SecurityInvalid(f"{file} cannot be read: {error.strerror}") from error
    if is_java_store(start):
        raise SecurityInvalid(f"{file} is a keystore of Java's own type (JKS)", how_to_convert(file))
    return start.startswith(_DER_SEQUENCE)


def _open(file: Path, password: Secret | None) -> Store:
    from broker.client.security.pkcs import open_store

    opened_with = _password(password, file)
    try:
        return open_store(file.read_bytes(), opened_with)
    except ValueError as error:
        why = "a wrong password, or not of PKCS #12" if password is not None else "it has a password, or is damaged"
        raise SecurityInvalid(f"{file} cannot be opened: {why}") from error
    except OSError as error:
        raise SecurityInvalid(f"{file} cannot be read: {error.strerror}") from error


def _password(secret: Secret | None, of: Place) -> bytes | None:
    if secret is None:
        return None
    try:
        return secret.read().encode()
    except SecretUnreadable as missing:
        raise SecurityInvalid(f"the password of {of}: {missing}", missing.hint) from missing


def _text(place: Place) -> str:
    try:
        return text_of(place)
    except OSError as error:
        raise SecurityInvalid(f"{place} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, PropertyUnreadable) as error:
        why = str(error) if isinstance(error, PropertyUnreadable) else "it is not PEM"
        raise SecurityInvalid(f"{place} cannot be read: {why}") from error
