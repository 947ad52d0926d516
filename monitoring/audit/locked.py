"""How Spark's Kafka connector is told to reach a locked site: the options of Kafka's own clients.

Certificates and keys travel in the options, not as files: Spark's executors may be other machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.client.errors import SecretUnreadable, SecurityInvalid
from broker.client.security.keystores import authorities_pem, own_pair
from broker.client.security.settings import (
    AwsIdentity,
    KerberosIdentity,
    Mechanism,
    Sasl,
    Secret,
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from monitoring.errors import AuditError

REDACTED: Final = {
    "spark.redaction.regex": "(?i:secret|password|token|access[.]?key|jaas|keystore)",
    "spark.sql.redaction.options.regex": "(?i:url|password|jaas|keystore)",
}
"""Settings of Spark by which neither its log nor its UI, its event log or a plan shows what these options hold."""
_MODULES: Final = {
    Mechanism.PLAIN: "plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule",
}
_GETS_TOKENS: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_PROTOCOLS: Final = {TlsVersion.TLS_1_2: "TLSv1.3,TLSv1.2", TlsVersion.TLS_1_3: "TLSv1.3"}


def redacting(chosen: Mapping[str, str]) -> dict[str, str]:
    """REDACTED, and beside it what the operator chose for the same: by that alone Spark would show passwords.

    His stands last: a flag or a quote in it holds up to its end, and so for nothing of ours.
    """
    return {name: f"{ours}|{chosen[name]}" if chosen.get(name) else ours for name, ours in REDACTED.items()}


def require_reachable(site: str, security: Security) -> None:
    """Raise AuditError where Spark's Kafka client cannot log in to a site as farshore does."""
    if security.sasl is not None and isinstance(security.sasl.secret, AwsIdentity):
        raise AuditError(
            f"the audit cannot log in to site {site} by IAM of AWS: Kafka's own client has no such login",
            "audit it by SCRAM, a token of an issuer, Kerberos or a certificate, in a configuration file of its own",
        )


def may_log_in_often(security: Security) -> bool:
    """Whether each task of Spark's may log in by itself: all that takes is what stands in files and variables.

    Else a program would be run for each, or an issuer of tokens or tickets asked; and where these are found, which is
    in the tasks, may be secret itself.
    """
    tls = security.tls
    secrets: list[object] = [] if tls is None else [tls.key_password, tls.ca_password]
    if security.sasl is not None:
        secrets.append(security.sasl.secret)
    return all(secret is None or (isinstance(secret, Secret) and not secret.command) for secret in secrets)


def kafka_options(security: Security) -> dict[str, str]:
    """By the names of Spark's source. Raises AuditError where a file or a secret cannot be read."""
    options = {"security.protocol": security.protocol}
    if security.tls is not None:
        options |= _tls_options(security.tls)
    if security.sasl is not None:
        options |= _login_options(security.sasl)
    return {f"kafka.{name}": value for name, value in options.items()}


def _tls_options(tls: Tls) -> dict[str, str]:
    """Without a `ca_file` Java's own authorities are trusted. Kafka's client checks hosts by itself."""
    options = {"ssl.enabled.protocols": _PROTOCOLS[tls.version_min]}
    try:
        if tls.ca_file is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities_pem(tls)}
        if tls.certificate_file is not None:
            pair = own_pair(tls)
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": pair.chain,
                "ssl.keystore.key": pair.key,
            }
    except SecurityInvalid as error:
        raise AuditError(str(error), error.hint) from error
    return options


def _login_options(sasl: Sasl) -> dict[str, str]:
    options = {"sasl.mechanism": sasl.mechanism.value, "sasl.jaas.config": _jaas(sasl)}
    if isinstance(sasl.secret, KerberosIdentity):
        return options | {"sasl.kerberos.service.name": sasl.secret.service_name}
    if sasl.mechanism is not Mechanism.OAUTHBEARER:
        return options
    return options | {
        "sasl.login.callback.handler.class": _GETS_TOKENS,
        "sasl.oauthbearer.token.endpoint.url": _token_url(sasl.secret),
        # As RFC 6749, 2.3.1, has it, and farshore's own client: a colon in the id would end it otherwise.
        "sasl.oauthbearer.header.urlencode": "true",
    }


def _jaas(sasl: Sasl) -> str:
    if isinstance(sasl.secret, KerberosIdentity):
        return _kerberos_jaas(sasl.secret)
    assert not isinstance(sasl.secret, AwsIdentity), "require_reachable"
    if isinstance(sasl.secret, TokenEndpoint):
        login = _client_credentials(sasl.secret)
    elif sasl.mechanism is Mechanism.OAUTHBEARER:
        login = ""
    else:
        login = f" username={_quoted(sasl.username)} password={_quoted(_secret(sasl.secret))}"
    return f"org.apache.kafka.common.security.{_MODULES[sasl.mechanism]} required{login};"


def _client_credentials(endpoint: TokenEndpoint) -> str:
    """Whom the endpoint's certificate is signed by stands there, too: what is said of the brokers is not for it."""
    words = {"clientId": endpoint.client_id, "clientSecret": _secret(endpoint.client_secret)}
    if endpoint.scope is not None:
        words["scope"] = endpoint.scope
    words |= _tls_options(Tls(endpoint.ca_file))
    return "".join(f" {name}={_quoted(value)}" for name, value in words.items())


def _token_url(secret: object) -> str:
    """Of a file, too, which each of Spark's executors reads: it has to be at the same path there."""
    if isinstance(secret, TokenEndpoint):
        return secret.url
    assert isinstance(secret, Secret)
    assert isinstance(secret.file, Path), "a token stands in a file"
    _secret(secret)
    url = secret.file.absolute().as_uri()
    if "%" in url:
        raise AuditError(
            f"Kafka's client for Java cannot read {secret}: its path has letters that an address has not",
            "name it by a path of letters and digits of ASCII, as by a symbolic link",
        )
    return url


def _kerberos_jaas(identity: KerberosIdentity) -> str:
    """A keytab is read by each of Spark's executors, where it has to be at the same path."""
    words = ["useTicketCache=true"]
    if identity.keytab_file is not None:
        try:
            identity.require_keytab()
        except SecretUnreadable as error:
            raise AuditError(str(error), error.hint) from error
        words = ["useKeyTab=true", "storeKey=true", f"keyTab={_quoted(str(identity.keytab_file.absolute()))}"]
    if identity.principal is not None:
        words.append(f"principal={_quoted(identity.principal)}")
    return f"com.sun.security.auth.module.Krb5LoginModule required doNotPrompt=true {' '.join(words)};"


def _quoted(text: str) -> str:
    """A line does not end within quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _secret(secret: Secret) -> str:
    try:
        return secret.read()
    except SecretUnreadable as error:
        raise AuditError(str(error), error.hint) from error
