"""A file of properties as Kafka's own tools take it (`--command-config`), as the security of a site.

What cannot be mapped is a problem, and never left out in silence. No problem shows a value that may be secret: secrets
are read where they are needed, so what is new in the file then holds for the next login.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from broker.client.security.jaas import JaasLogin, JaasMalformed, parse_jaas
from broker.client.security.java_properties import Entry, PropertiesMalformed
from broker.client.security.keystores import how_to_convert, is_java_store
from broker.client.security.places import Place, Property, read_properties
from broker.client.security.settings import (
    KerberosIdentity,
    Mechanism,
    Sasl,
    Secret,
    SecretSource,
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
    is_endpoint,
)
from deploy.login_options import JAAS, SERVICE_NAME, LoginOptions

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLER: Final = "sasl.login.callback.handler.class"
_SECURITY: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    f"{_SECURITY}.plain.PlainLoginModule": (Mechanism.PLAIN,),
    f"{_SECURITY}.scram.ScramLoginModule": (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": (Mechanism.OAUTHBEARER,),
    "com.sun.security.auth.module.Krb5LoginModule": (Mechanism.GSSAPI,),
}
_HANDLERS: Final = (
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
    f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_LOOKS_LIKE_A_NAME: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z0-9]+)*")
_NAME_MAX: Final = 80
_OTHER_REASONS: Final = {
    "bootstrap.servers": "the site's bootstrap_servers say it",
    "config.providers": "farshore reads each value as it stands",
    "ssl.cipher.suites": "farshore takes those of OpenSSL",
}


class PropertiesRefused(Exception):
    """`problems`: everything that keeps the file from being mapped."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def security_of_properties(file: Path) -> Security:
    """`file`: a path that holds in every folder. Raises PropertiesRefused."""
    try:
        given = read_properties(file)
    except OSError as error:
        raise PropertiesRefused([f"{file} cannot be read: {error.strerror}"]) from error
    except PropertiesMalformed as error:
        raise PropertiesRefused([f"{file}: {error}"]) from error
    reading = _Reading(file, given)
    security = reading.security()
    if problems := [*reading.problems, *reading.left_over()]:
        raise PropertiesRefused(f"{file}: {problem}" for problem in problems)
    return security


class _Reading:
    """Of one file, from `given`; what was looked at is in `taken`, and what is wrong with it in `problems`."""

    def __init__(self, file: Path, given: dict[str, Entry]) -> None:
        self._file, self._given = file, given
        self._taken: set[str] = set()
        self.problems: list[str] = []

    def security(self) -> Security:
        protocol = (self._take("security.protocol") or "").upper()
        if "security.protocol" not in self._given:
            self.problems.append(
                "security.protocol is missing, for which Kafka takes PLAINTEXT: write it, or one of the others"
            )
        elif protocol and protocol not in PROTOCOLS:
            self.problems.append(f"security.protocol is {protocol}: write one of {', '.join(PROTOCOLS)}")
        if protocol not in PROTOCOLS:
            # All that follows would be told of a protocol that nobody knows.
            self._taken.update(name for name in self._given if name.startswith(("ssl.", "sasl.")))
            return Security()
        tls = self._tls() if protocol.endswith("SSL") else None
        sasl = self._sasl() if protocol.startswith("SASL_") else None
        return Security(tls, sasl)

    def left_over(self) -> Iterator[str]:
        """What nobody asked for."""
        protocol = self._given["security.protocol"].value.upper() if "security.protocol" in self._given else ""
        for name, entry in self._given.items():
            if name in self._taken:
                continue
            if not _is_shown(entry):
                hint = "does the line before end with a \\, to go on in it?"
                yield f"line {entry.line} is no property of a client ({hint})"
            elif name.startswith(("ssl.", "sasl.")) and name.split(".")[0].upper() not in protocol:
                yield f"{name} is of no use with security.protocol={protocol}: take it out"
            else:
                why = _OTHER_REASONS.get(name, "farshore has nothing like it")
                yield f"{name} cannot be mapped: {why}; take it out, or give farshore a file of its own"

    def _take(self, name: str) -> str | None:
        """None: it is not there, or empty, which is a problem."""
        self._taken.add(name)
        entry = self._given.get(name)
        if entry is None:
            return None
        if not entry.value and name != "ssl.endpoint.identification.algorithm":
            self.problems.append(f"{name} is empty: write its value, or take it out")
        return entry.value or None

    def _path(self, text: str) -> Path:
        return self._file.parent / Path(text).expanduser()

    def _tls(self) -> Tls:
        self._check_host_names()
        ca_file, ca_password = self._truststore()
        certificate, key, key_password = self._keystore()
        return Tls(ca_file, certificate, key, key_password, self._version_min(), ca_password)

    def _check_host_names(self) -> None:
        algorithm = self._take("ssl.endpoint.identification.algorithm")
        if "ssl.endpoint.identification.algorithm" in self._given and (algorithm or "").lower() != "https":
            self.problems.append(
                "ssl.endpoint.identification.algorithm switches off the check of host names, which farshore always "
                "does: take it out, and have certificates made for the brokers' names"
            )

    def _version_min(self) -> TlsVersion:
        offered = self._take("ssl.enabled.protocols")
        if (newest := self._take("ssl.protocol")) not in (None, "TLS", TlsVersion.TLS_1_3):
            self.problems.append(
                f"ssl.protocol is {newest}: farshore speaks TLSv1.3 where the broker does; take it out"
            )
        if offered is None:
            return TlsVersion.TLS_1_2
        versions = {version.strip() for version in offered.split(",")}
        if versions == {TlsVersion.TLS_1_3}:
            return TlsVersion.TLS_1_3
        if versions != set(TlsVersion):
            self.problems.append(
                f"ssl.enabled.protocols is {offered}: farshore can do TLSv1.2,TLSv1.3 or TLSv1.3 alone"
            )
        return TlsVersion.TLS_1_2

    def _store_type(self, which: str, location: str | None, *, is_inline: bool) -> str:
        """PEM or PKCS12; "" where it is neither, which is a problem."""
        name = f"ssl.{which}.type"
        given = self._take(name)
        stored = (given or "JKS").upper()
        if stored in ("PEM", "PKCS12"):
            return stored
        if given is not None and stored != "JKS":
            self.problems.append(f"{name} is {given}: farshore reads PEM and PKCS12")
        elif given is None and is_inline:
            self.problems.append(f"{name} is missing: write PEM, as what stands in the file itself is of no other type")
        elif location is not None and (given is not None or _begins_as_java_store(self._path(location))):
            why = "is JKS" if given is not None else "is missing, and the file is of Kafka's default, JKS"
            how = how_to_convert(self._path(location))
            self.problems.append(f"{name} {why}, a {which} of Java's own: {how} with {name}=PKCS12")
        elif location is not None:  # Java itself takes PKCS #12 for its default, too
            return "PKCS12"
        elif given is not None:
            self.problems.append(f"{name} is of no use without ssl.{which}.location: take it out")
        return ""

    def _truststore(self) -> tuple[Place | None, Secret | None]:
        location, inline = self._take("ssl.truststore.location"), self._take("ssl.truststore.certificates")
        password = self._secret("ssl.truststore.password")
        if location is None and inline is None and "ssl.truststore.type" not in self._given:
            if password is not None:
                self.problems.append("ssl.truststore.password is of no use without ssl.truststore.location")
            return None, None
        stored = self._store_type("truststore", location, is_inline=inline is not None)
        place = self._only_place("truststore", stored, location, {"ssl.truststore.certificates": inline})
        if stored == "PEM" and password is not None:
            self.problems.append("ssl.truststore.password is of no use with PEM, as for Kafka: take it out")
        return place, password

    def _keystore(self) -> tuple[Place | None, Place | None, Secret | None]:
        """Certificate, key, and what opens it."""
        location = self._take("ssl.keystore.location")
        inline = {name: self._take(name) for name in ("ssl.keystore.certificate.chain", "ssl.keystore.key")}
        password, key_password = self._secret("ssl.keystore.password"), self._secret("ssl.key.password")
        if location is None and not _any(inline.values()) and "ssl.keystore.type" not in self._given:
            for name, secret in (("ssl.keystore.password", password), ("ssl.key.password", key_password)):
                if secret is not None:
                    self.problems.append(f"{name} is of no use without a keystore: take it out")
            return None, None, None
        stored = self._store_type("keystore", location, is_inline=_any(inline.values()))
        place = self._only_place("keystore", stored, location, inline)
        if stored == "PEM":
            if password is not None:
                self.problems.append("ssl.keystore.password is of no use with PEM, as for Kafka: take it out")
            key = Property(self._file, "ssl.keystore.key") if isinstance(place, Property) else None
            return place, key, key_password
        if stored == "PKCS12" and password is None:
            self.problems.append("ssl.keystore.password is missing: it opens ssl.keystore.location")
        if key_password is not None and password is not None and self._differ(password, key_password):
            self.problems.append("ssl.key.password is another than ssl.keystore.password: PKCS12 has one for both")
        return place, None, password

    def _only_place(self, which: str, stored: str, location: str | None, inline: dict[str, str | None]) -> Place | None:
        """Where it is of the two that Kafka knows: in a file, or in properties, the first of which is named."""
        given = [name for name, value in inline.items() if value is not None]
        if stored == "PKCS12" and given:
            self.problems.append(f"{given[0]} is of no use with ssl.{which}.type=PKCS12: take one of them out")
        elif given and location is not None:
            self.problems.append(f"{given[0]} and ssl.{which}.location are both there: take one of them out")
        elif given and len(given) < len(inline):
            missing = next(name for name in inline if name not in given)
            self.problems.append(f"{missing} is missing beside {given[0]}")
        elif not given and location is None and stored:
            self.problems.append(f"ssl.{which}.type is of no use without ssl.{which}.location: take it out")
        if location is not None:
            return self._path(location)
        return Property(self._file, next(iter(inline)))

    def _secret(self, name: str) -> Secret | None:
        return Secret(file=Property(self._file, name)) if self._take(name) is not None else None

    def _differ(self, one: Secret, other: Secret) -> bool:
        values = [self._given[secret.file.name].value for secret in (one, other) if isinstance(secret.file, Property)]
        return len(set(values)) > 1

    def _sasl(self) -> Sasl | None:
        mechanism = self._mechanism()
        login = self._login()
        if mechanism is None or login is None:
            # What they are of is not known: there is nothing to tell about them.
            self._taken.update(name for name in self._given if name.startswith("sasl."))
            return None
        if mechanism not in _MODULES[login.module]:
            short = login.module.rsplit(".", 1)[1]
            default = "" if "sasl.mechanism" in self._given else ", which Kafka takes where it is missing"
            self.problems.append(f"{JAAS} has {short}, which is not of sasl.mechanism={mechanism}{default}")
            return None
        options = LoginOptions(self._file, login.options)
        is_named = mechanism not in (Mechanism.OAUTHBEARER, Mechanism.GSSAPI)
        secret, username = self._secret_of(mechanism, options), options.text("username") if is_named else ""
        self.problems += [*options.problems, *options.left_over()]
        return Sasl(mechanism, username or "", secret) if secret is not None else None

    def _secret_of(self, mechanism: Mechanism, options: LoginOptions) -> SecretSource | KerberosIdentity | None:
        if mechanism is Mechanism.GSSAPI:
            return options.kerberos(self._take(SERVICE_NAME))
        return self._token(options) if mechanism is Mechanism.OAUTHBEARER else options.secret("password")

    def _mechanism(self) -> Mechanism | None:
        name = self._take("sasl.mechanism")
        if name in list(Mechanism):
            return Mechanism(name or "")
        if "sasl.mechanism" not in self._given:
            return Mechanism.GSSAPI  # Kafka's default
        if name == "AWS_MSK_IAM":
            self.problems.append(
                "sasl.mechanism is AWS_MSK_IAM, which is of AWS's library for Java: give farshore the site's table "
                "with token_aws_region in place of this file"
            )
        elif name is not None:
            self.problems.append(f"sasl.mechanism is {name}: farshore speaks {', '.join(Mechanism)}")
        return None

    def _login(self) -> JaasLogin | None:
        text = self._take(JAAS)
        if text is None:
            if JAAS not in self._given:
                self.problems.append(f"{JAAS} is missing: farshore reads no file of java.security.auth.login.config")
            return None
        try:
            login = parse_jaas(text)
        except JaasMalformed as error:
            self.problems.append(f"{JAAS} {error}")
            return None
        if login.module not in _MODULES:
            known = ", ".join(module.rsplit(".", 1)[1] for module in _MODULES)
            named = f"{login.module}, which farshore does not know" if _is_class(login.module) else "no class's name"
            self.problems.append(f"{JAAS} has {named}: it logs in as {known} do")
            return None
        return login

    def _token(self, options: LoginOptions) -> Secret | TokenEndpoint | None:
        url, handler = self._take(_ENDPOINT), self._take(_HANDLER)
        if handler is not None and handler not in _HANDLERS:
            self.problems.append(f"{_HANDLER} is {handler}: farshore does as {_HANDLERS[0]} does")
        if url is None:
            self.problems.append(f"{_ENDPOINT} is missing: farshore makes no tokens itself, as Kafka does for trials")
            return None
        if url.startswith("file:"):
            return Secret(file=Path("/" + url.removeprefix("file:").lstrip("/")))
        if not is_endpoint(url):
            self.problems.append(f"{_ENDPOINT}: write https://HOST/PATH without a user and a #, or file:///PATH")
        client_id, secret = options.text("clientId"), options.secret("clientSecret")
        ca_file = options.ca_file()
        scope = options.text("scope") if "scope" in options.given else None
        return TokenEndpoint(url, client_id, secret, scope, ca_file) if client_id and secret else None


def _is_shown(entry: Entry) -> bool:
    """Whether it looks like a property: a line of a key that does not go on is one to Java, too."""
    has_form = len(entry.name) <= _NAME_MAX and _LOOKS_LIKE_A_NAME.fullmatch(entry.name) is not None
    return has_form and ("." in entry.name or bool(entry.value))


def _any(values: Iterable[str | None]) -> bool:
    return any(value is not None for value in values)


def _is_class(name: str) -> bool:
    return re.fullmatch(r"\w+(\.\w+)+", name) is not None


def _begins_as_java_store(file: Path) -> bool:
    """False of what is not there (yet): who opens it says so."""
    try:
        with file.open("rb") as opened:
            return is_java_store(opened.read(4))
    except OSError:
        return False
