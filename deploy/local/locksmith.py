"""Makes what locks a site of this machine, anew for each run: an authority, a certificate that it signs, a user."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from broker.access.users import new_credentials, write_users
from deploy.local.locks import CA_FILE, CERTIFICATE_FILE, KEY_FILE, PASSWORD_FILE, USER, USERS_FILE, Locks
from deploy.tools.zookeeper import HOST

PASSWORD_BYTES: Final = 24
LIFETIME: Final = timedelta(days=2)
SKEW: Final = timedelta(hours=1)
"""Since so long before: a machine's clock may be set back while it runs."""


def make_locks(folder: Path) -> Locks:
    """Makes the folder, too, for its owner alone; called by its name. Raises OSError."""
    locks = Locks(folder.absolute())
    locks.folder.mkdir(mode=0o700, parents=True)
    authority, signed, key = _certificates(folder.name)
    (locks.folder / CA_FILE).write_bytes(authority)
    (locks.folder / CERTIFICATE_FILE).write_bytes(signed)
    (locks.folder / KEY_FILE).write_bytes(key)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    (locks.folder / PASSWORD_FILE).write_text(password, encoding="utf-8")
    write_users(locks.folder / USERS_FILE, {USER: new_credentials(password)})
    return locks


def _certificates(name: str) -> tuple[bytes, bytes, bytes]:
    """An authority's certificate, one that it signed for this machine's loopback interface, and the key of that one.

    The authority's own key is kept nowhere: it signs once.
    """
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = _named(f"farshore {name} CA")
    identity = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    authority = (
        _unsigned(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identity, critical=False)
        .sign(ca_key, SHA256())
    )
    signed = (
        _unsigned(_named(f"farshore {name}"), ca_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), critical=False)
        .sign(ca_key, SHA256())
    )
    in_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return authority.public_bytes(Encoding.PEM), signed.public_bytes(Encoding.PEM), in_pem


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFETIME)
    )
