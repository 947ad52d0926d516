"""Tickets of Kerberos, by the library that is made for it, and what it means where there are none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from broker.client.errors import SecretUnreadable
from broker.client.security.gss import GssapiClient
from broker.client.security.settings import KerberosIdentity

EXTRA: Final = (
    "pip install 'farshore[kerberos]', which takes a C compiler and the headers of Kerberos (on Debian: apt-get "
    "install gcc python3-dev libkrb5-dev)"
)
_FIRST_CODE: Final = -1765328384
_CODES: Final = 2**32
_EXPIRED: Final = (11 << 16, 12 << 16)
"""GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED (RFC 2744)."""
_WRONG_KEYTAB: Final = "have a new keytab made of it: making one changes the key, and older ones are then worth nothing"


class _Code(IntEnum):
    """Of MIT's krb5_err.et, which counts them from `_FIRST_CODE`."""

    NAME_EXPIRED = 1
    CLIENT_UNKNOWN = 6
    SERVICE_UNKNOWN = 7
    CLIENT_REVOKED = 18
    KEY_EXPIRED = 23
    PREAUTHENTICATION_FAILED = 24
    NOT_DECRYPTED = 31
    TICKET_EXPIRED = 32
    CLOCK_SKEW = 37
    NO_CACHE = 141
    REALM_UNKNOWN = 154
    NO_KDC = 156
    NO_KEY = 181
    NO_CACHE_FILE = 195
    REALM_UNRESOLVED = 220
    NO_REALM = 224


_LOCKED: Final = ("the KDC lets it in no more", "have whoever runs the KDC see whether it is expired or locked")
_REALM: Final = (
    "its realm is not known here",
    "name it and its KDC in /etc/krb5.conf, or where KRB5_CONFIG points",
)
_CACHE: Final = ("there is no ticket in the ticket cache", "get one by `{kinit}`, or name principal and keytab_file")
_NO_KEY: Final = ("the keytab {keytab} has no key of it", "see by `klist -k {keytab}` whose it has")
_OLD_KEY: Final = ("the keytab {keytab} has a key that is no more its key", _WRONG_KEYTAB)
_MEANINGS: Final = {
    _Code.NAME_EXPIRED: _LOCKED,
    _Code.CLIENT_REVOKED: _LOCKED,
    _Code.KEY_EXPIRED: _LOCKED,
    _Code.CLIENT_UNKNOWN: ("the KDC does not know it", "compare principal, and the realm in it, with the KDC's"),
    _Code.SERVICE_UNKNOWN: (
        "the KDC knows no service {service}",
        "compare kerberos_service_name with the brokers' sasl.kerberos.service.name, and the host with their "
        "principals: it is the one that they advertise",
    ),
    _Code.TICKET_EXPIRED: ("the ticket has expired", "get a new one by `{kinit}`, or name principal and keytab_file"),
    _Code.CLOCK_SKEW: (
        "the clocks of this machine and of the KDC or the broker differ by too much",
        "set them by NTP: Kerberos bears five minutes",
    ),
    _Code.NO_CACHE: _CACHE,
    _Code.NO_CACHE_FILE: _CACHE,
    _Code.REALM_UNKNOWN: _REALM,
    _Code.REALM_UNRESOLVED: _REALM,
    _Code.NO_REALM: _REALM,
    _Code.NO_KDC: ("the KDC does not answer", "see whether it runs, and which one /etc/krb5.conf or KRB5_CONFIG names"),
}
_OF_KEYTAB: Final = {
    _Code.NO_KEY: _NO_KEY,
    _Code.NO_CACHE: _NO_KEY,
    _Code.NO_CACHE_FILE: _NO_KEY,
    _Code.PREAUTHENTICATION_FAILED: _OLD_KEY,
    _Code.NOT_DECRYPTED: _OLD_KEY,
}
"""With one there is no cache of the environment's, and the library tries its own when the keytab is of no use."""
_ELSE: Final = ("no ticket can be had", "see what `{kinit}` and `kvno {service}` say for the same user")


@dataclass(frozen=True, slots=True)
class Attempt:
    """`where`: the site and the broker that is asked. `host`: the broker's, by which its service goes."""

    identity: KerberosIdentity
    where: str
    host: str

    @property
    def service(self) -> str:
        return f"{self.identity.service_name}/{self.host}"

    def failed(self, code: int, words: str) -> SecretUnreadable:
        """By the minor status of the library, and what it says of it."""
        number = code % _CODES - _FIRST_CODE % _CODES
        is_known = number in set(_Code)
        meanings = _MEANINGS | (_OF_KEYTAB if self.identity.keytab_file is not None else {})
        what, hint = meanings.get(_Code(number), _ELSE) if is_known else _ELSE
        kinit = " ".join(["kinit", *filter(None, [self.identity.principal])])
        named = {"keytab": self.identity.keytab_file, "service": self.service, "kinit": kinit}
        return self.refused(f"{what.format(**named)}{f' ({words})' if words else ''}", hint.format(**named))

    def refused(self, why: str, hint: str) -> SecretUnreadable:
        return SecretUnreadable(f"{self.where} and {self.identity}, by GSSAPI: {why}", hint)


def kerberos_client(identity: KerberosIdentity, where: str, host: str) -> GssapiClient:
    """With tickets as they are now. A KDC may be asked: it blocks, as what it returns does. Raises SecretUnreadable."""
    attempt = Attempt(identity, where, host)
    gssapi = _library(attempt)
    try:
        identity.require_keytab()  # of one that is not there the library says that there is no cache
    except SecretUnreadable as error:
        raise attempt.refused(str(error), error.hint) from None
    try:
        return GssapiClient(_Context(attempt, gssapi))
    except gssapi.exceptions.GSSError as error:
        raise _failed(attempt, error) from None


def require_library(identity: KerberosIdentity, where: str) -> None:
    """Raises SecretUnreadable where the extra is not installed."""
    _library(Attempt(identity, where, ""))


def kdc_silent(identity: KerberosIdentity, where: str, host: str, limit_s: float) -> SecretUnreadable:
    return Attempt(identity, where, host).failed(_FIRST_CODE + _Code.NO_KDC, f"not within {limit_s:g} s")


def _library(attempt: Attempt) -> Any:
    try:
        import gssapi
    except ImportError:
        raise attempt.refused("Kerberos needs packages that are not installed", EXTRA) from None
    return gssapi


def _store(identity: KerberosIdentity) -> dict[str, str] | None:
    """Where tickets are kept: those of a keytab in this process alone, for all its logins.

    So a KDC is asked once for all connections, and again when half of the ticket's time is over; one that does not
    answer then is missed when it has ended.
    """
    if identity.keytab_file is None:
        return None
    whose = hashlib.sha256(f"{identity.principal}\0{identity.keytab_file}".encode()).hexdigest()
    return {"client_keytab": f"FILE:{identity.keytab_file}", "ccache": f"MEMORY:farshore-{whose}"}


def _failed(attempt: Attempt, error: Any) -> SecretUnreadable:
    if error.maj_code in _EXPIRED:  # of which there is no minor status
        return attempt.failed(_FIRST_CODE + _Code.TICKET_EXPIRED, "")
    return attempt.failed(error.min_code, "; ".join(error.get_all_statuses(error.min_code, False)))


class _Context:
    """The library's, with what its errors mean."""

    def __init__(self, attempt: Attempt, gssapi: Any) -> None:
        self._attempt, self._error = attempt, gssapi.exceptions.GSSError
        identity, kerberos = attempt.identity, gssapi.MechType.kerberos
        name = None
        if identity.principal is not None:
            name = gssapi.Name(identity.principal, gssapi.NameType.kerberos_principal)
        flags = gssapi.RequirementFlag
        self._context = gssapi.SecurityContext(
            name=gssapi.Name(f"{identity.service_name}@{attempt.host}", gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(usage="initiate", name=name, mechs=[kerberos], store=_store(identity)),
            mech=kerberos,
            flags=flags.mutual_authentication | flags.integrity,
            usage="initiate",
        )

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        with self._told():
            made: bytes | None = self._context.step(token)
        return made

    def unwrap(self, message: bytes) -> bytes:
        with self._told():
            return bytes(self._context.unwrap(message).message)

    def wrap(self, message: bytes) -> bytes:
        with self._told():
            return bytes(self._context.wrap(message, encrypt=False).message)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise _failed(self._attempt, error) from None
