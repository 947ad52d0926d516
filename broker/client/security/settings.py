"""How a site is reached safely: what its configuration says. Files and secrets are read when a connection is opened,
so that what changes on disk holds for the next one.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from broker.base.documents import HIDDEN
from broker.client.errors import SecretUnreadable
from broker.client.security.places import Place, Property, PropertyUnreadable, path_of, text_of

SECRET_COMMAND_TIMEOUT_S: Final = 10.0
NOBODY: Final = "whoever comes without a name (User:ANONYMOUS)"
_ENDPOINT: Final = re.compile(r"https://[^/?#@]+([/?][^#]*)?")


class Mechanism(StrEnum):
    """Kafka's names of those that farshore speaks."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    GSSAPI = "GSSAPI"


class TlsVersion(StrEnum):
    """The lowest that a connection may have."""

    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands: in a file or a property of one, an environment variable, or on the standard output of a
    command; one of them.

    It is not kept, so nothing that shows this object shows it.
    """

    file: Place | None = None
    environment: str | None = None
    command: tuple[str, ...] = ()

    def read(self) -> str:
        """The secret without the line break behind it; may take SECRET_COMMAND_TIMEOUT_S. Raises SecretUnreadable."""
        if self.file is not None:
            secret = self._of_file(self.file)
        elif self.environment is not None:
            secret = os.environ.get(self.environment, "")
        else:
            secret = self._of_command()
        secret = secret.rstrip("\r\n")
        if not secret:
            raise SecretUnreadable(f"{self} holds no secret")
        return secret

    def _of_file(self, place: Place) -> str:
        try:
            return text_of(place)
        except (OSError, UnicodeDecodeError, PropertyUnreadable) as error:
            what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            if isinstance(error, PropertyUnreadable):
                what = str(error)
            raise SecretUnreadable(f"{self} cannot be read: {what}") from None

    def _of_command(self) -> str:
        try:
            done = subprocess.run(
                self.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECRET_COMMAND_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise SecretUnreadable(f"{self} did not end within {SECRET_COMMAND_TIMEOUT_S:g} s") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SecretUnreadable(f"{self} cannot be run: {type(error).__name__}") from None
        if done.returncode:  # what it said may hold the secret
            raise SecretUnreadable(f"{self} ended with {done.returncode}")
        return done.stdout

    def __str__(self) -> str:
        """Where it stands; of a command its program alone, as its arguments may be secret."""
        if isinstance(self.file, Property):
            return str(self.file)
        if self.file is not None:
            return f"the file {self.file}"
        return f"the variable {self.environment}" if self.environment is not None else f"the command {self.command[0]}"

    def __repr__(self) -> str:
        return f"Secret({self})"


def is_endpoint(url: str) -> bool:
    """Whether tokens may be asked for there: by https, with no user in it, and no fragment (RFC 6749, section 3.2)."""
    return _ENDPOINT.fullmatch(url) is not None


def shown_address(url: str) -> str:
    """As it may be shown: without a user, and of a query that there is one."""
    bare, query, _ = url.partition("#")[0].partition("?")
    scheme, slashes, behind = bare.partition("://")
    authority, slash, path = behind.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}{query}{HIDDEN if query else ''}"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens are given out for client credentials (RFC 6749, section 4.4). `url`: as `is_endpoint` has it."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    ca_file: Path | None = None

    def __str__(self) -> str:
        return f"the token endpoint {shown_address(self.url)}"

    def __repr__(self) -> str:
        """As dataclasses have it, but for the address."""
        others = ("client_id", "client_secret", "scope", "ca_file")
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in others)
        return f"TokenEndpoint({shown_address(self.url)!r}, {told})"


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """Tokens for AWS MSK, signed by the credentials that AWS's own tools find; `profile` None: the default ones."""

    region: str
    profile: str | None = None

    def __str__(self) -> str:
        whose = "" if self.profile is None else f" of profile {self.profile}"
        return f"the token for AWS MSK in {self.region}{whose}"


SecretSource = Secret | TokenEndpoint | AwsIdentity


@dataclass(frozen=True, slots=True)
class KerberosIdentity:
    """Tickets of Kerberos for brokers whose principals are `service_name`/HOST. Without a `keytab_file` they are taken
    from the cache that the environment names, and `principal` None is whose that is.
    """

    service_name: str
    principal: str | None = None
    keytab_file: Path | None = None

    def __str__(self) -> str:
        return f"principal {self.principal}" if self.principal is not None else "the principal of the ticket cache"

    def require_keytab(self) -> None:
        """Raises SecretUnreadable where the keytab, if it has one, cannot be read. Libraries say less of that."""
        if self.keytab_file is not None:
            try:
                self.keytab_file.open("rb").close()
            except OSError as error:
                raise SecretUnreadable(f"the keytab {self.keytab_file} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Tls:
    """`ca_file` None: the system's authorities. Certificate and key are this client's, for brokers that ask.

    Files are of PEM, or of PKCS #12; a property has the PEM itself. Of a `certificate_file` of PKCS #12 `key_password`
    opens all of it, and the key is in it; `ca_password` opens such a `ca_file`.
    """

    ca_file: Place | None = None
    certificate_file: Place | None = None
    key_file: Place | None = None
    key_password: Secret | None = None
    version_min: TlsVersion = TlsVersion.TLS_1_2
    ca_password: Secret | None = None

    def files(self) -> tuple[Path, ...]:
        """Those that it is made of: what changes in them holds for the next connection."""
        places = (self.ca_file, self.certificate_file, self.key_file)
        return tuple(path_of(place) for place in places if place is not None)


@dataclass(frozen=True, slots=True)
class Sasl:
    """As whom to log in. Of OAUTHBEARER the secret is the token, and there is no user name, as with GSSAPI."""

    mechanism: Mechanism
    username: str
    secret: SecretSource | KerberosIdentity

    @property
    def principal(self) -> str:
        if isinstance(self.secret, KerberosIdentity):
            return str(self.secret)
        if isinstance(self.secret, AwsIdentity):
            return f"the bearer of {self.secret}"
        return f"user {self.username}" if self.username else f"the bearer of the token of {self.secret}"


@dataclass(frozen=True, slots=True)
class Security:
    """What a site's listeners ask for."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of it."""
        inner = "SSL" if self.tls is not None else "PLAINTEXT"
        return f"SASL_{inner}" if self.sasl is not None else inner

    @property
    def principal(self) -> str:
        """As whom farshore comes, in words; "" where the broker is told nobody's name."""
        if self.sasl is not None:
            return self.sasl.principal
        if self.tls is not None and self.tls.certificate_file is not None:
            return f"the subject of {self.tls.certificate_file}"
        return ""

    @property
    def comes_as(self) -> str:
        """The principal, or who that is to a broker which is told nobody's name."""
        return self.principal or NOBODY


PLAINTEXT: Final = Security()


@dataclass(frozen=True, slots=True)
class Access:
    """How one broker is reached: `server_name` is the host that its certificate must be for."""

    site: str = ""
    server_name: str | None = None
    security: Security = PLAINTEXT
