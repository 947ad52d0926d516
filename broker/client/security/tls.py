"""TLS contexts, and what a failed handshake means."""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path
from typing import Final

from broker.base.address import Address
from broker.client.errors import AccessRefused, CertificateRefused, SecretUnreadable, SecurityInvalid, TlsRefused
from broker.client.security.keystores import authorities, load_own_pair
from broker.client.security.places import path_of
from broker.client.security.settings import Access, Security, Tls, TlsVersion

_VERSIONS: Final = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}

# OpenSSL's X509_V_ERR_..., as `SSLCertVerificationError.verify_code` has them.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = (62, 64)

Stamp = tuple[int, int, int]


def context_of(tls: Tls) -> ssl.SSLContext:
    """The context of these files as they are now; the same one until one of them changes. Raises SecurityInvalid."""
    return _context(tls, tuple(_stamp(file) for file in tls.files()))


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError as error:
        raise SecurityInvalid(f"{file} cannot be read: {error.strerror}") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=32)
def _context(tls: Tls, _stamps: tuple[Stamp, ...]) -> ssl.SSLContext:
    found = authorities(tls)
    file = tls.ca_file if found is None and isinstance(tls.ca_file, Path) else None
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=file, cadata=found)
    except (OSError, ValueError) as error:
        raise SecurityInvalid(f"{tls.ca_file} holds no certificates in PEM: {error}") from error
    context.minimum_version = _VERSIONS[tls.version_min]
    if tls.certificate_file is not None and not load_own_pair(context, tls):
        # Without a password of its own OpenSSL would ask for one at the terminal.
        try:
            password = tls.key_password.read() if tls.key_password is not None else ""
        except SecretUnreadable as missing:
            raise SecurityInvalid(f"the password of the key: {missing}", missing.hint) from missing
        try:
            context.load_cert_chain(
                path_of(tls.certificate_file), path_of(tls.key_file) if tls.key_file else None, lambda: password
            )
        except (OSError, ValueError) as error:
            files = f"{tls.certificate_file} and {tls.key_file or 'the key in it'}"
            # OpenSSL names no reason for a key in its own form (PKCS #1, SEC 1) that the password does not open.
            why = getattr(error, "reason", None) or "a wrong password of the key, or no PEM"
            raise SecurityInvalid(f"{files} are no certificate and its key: {why}") from error
    return context


def tls_refusal(error: ssl.SSLError, address: Address, access: Access) -> AccessRefused:
    """What a failed handshake means for an operator."""
    where = f"site {access.site} at {address}"
    if isinstance(error, ssl.SSLCertVerificationError):
        what, hint = _not_believed(error, access)
        return CertificateRefused(f"{where} shows a certificate that {what}; {_who_comes(access.security)}", hint)
    reason = error.reason or str(error)
    if "ALERT" in reason and any(word in reason for word in ("CERT", "UNKNOWN_CA", "ACCESS_DENIED")):
        # Whom the certificate itself would have named is told by its file.
        who = f"; {_who_comes(access.security)}" if access.security.sasl is not None else ""
        return CertificateRefused(
            f"{where} does not take {_own_certificate(access)}: {reason}{who}",
            "name certificate_file and key_file of the site's security, signed by a CA that the brokers trust",
        )
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return TlsRefused(f"{where} does not speak TLS", "name the address of a listener for SSL, or another protocol")
    return TlsRefused(f"{where} and farshore agree on no TLS: {reason}")


def _not_believed(error: ssl.SSLCertVerificationError, access: Access) -> tuple[str, str]:
    """What is wrong with a broker's certificate, and the next step."""
    if error.verify_code in _OTHER_NAME:
        return (
            f"is not for {access.server_name}",
            "write the name that the certificate has into bootstrap_servers (and the broker's advertised "
            "listeners), or have a certificate made for this one",
        )
    if error.verify_code == _EXPIRED:
        return "has expired", "have it renewed there; farshore then goes on by itself"
    if error.verify_code == _NOT_YET_VALID:
        return "is not valid yet", "compare both clocks"
    return (
        f"no authority of {_authorities(access)} has signed: {error.verify_message}",
        "name the CA's certificate as ca_file of the site's security",
    )


def _who_comes(security: Security) -> str:
    """TLS fails before anybody is named."""
    if not security.principal:
        return "farshore comes as nobody by name"
    return f"farshore comes as {security.principal}, which it had not told yet"


def _authorities(access: Access) -> str:
    tls = access.security.tls
    return "the system" if tls is None or tls.ca_file is None else str(tls.ca_file)


def _own_certificate(access: Access) -> str:
    tls = access.security.tls
    if tls is None or tls.certificate_file is None:
        return "a client without a certificate"
    return f"the certificate in {tls.certificate_file}"
