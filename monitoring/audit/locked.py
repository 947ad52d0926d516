"""How Spark's Kafka connector is told to reach a locked site: the options of Kafka's own clients.

Certificates and keys travel in the options, not as files: Spark's executors may be other machines.
"""

from __future__ import annotations

from typing import Final

from broker.client.errors import SecretUnreadable, SecurityInvalid
from broker.client.security.keystores import authorities_pem, own_pair
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl, Secret, Security, Tls, TlsVersion
from monitoring.errors import AuditError

REDACTED: Final = {
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    "spark.sql.redaction.options.regex": "(?i)url|password|jaas|keystore",
}
"""Settings of Spark by which neither its log nor its UI, its event log or a plan shows what these options hold."""
_MODULES: Final = {
    Mechanism.PLAIN: "plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "scram.ScramLoginModule",
}
_PROTOCOLS: Final = {TlsVersion.TLS_1_2: "TLSv1.3,TLSv1.2", TlsVersion.TLS_1_3: "TLSv1.3"}


def require_reachable(site: str, security: Security) -> None:
    """Raise AuditError where Spark's Kafka client cannot log in to a site as farshore does."""
    if security.sasl is not None and security.sasl.mechanism not in (*_MODULES, Mechanism.GSSAPI):
        raise AuditError(
            f"the audit cannot log in to site {site} by {security.sasl.mechanism} yet",
            "audit it by SCRAM, Kerberos or a certificate, in a configuration file of its own",
        )


def kafka_options(security: Security) -> dict[str, str]:
    """By the names of Spark's source. Raises AuditError where a file or a secret cannot be read."""
    options = {"security.protocol": security.protocol}
    if security.tls is not None:
        options |= _tls_options(security.tls)
    if security.sasl is not None:
        options |= {"sasl.mechanism": security.sasl.mechanism.value, "sasl.jaas.config": _jaas(security.sasl)}
        if isinstance(security.sasl.secret, KerberosIdentity):
            options["sasl.kerberos.service.name"] = security.sasl.secret.service_name
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


def _jaas(sasl: Sasl) -> str:
    if isinstance(sasl.secret, KerberosIdentity):
        return _kerberos_jaas(sasl.secret)
    assert isinstance(sasl.secret, Secret), "require_reachable"
    login = f"username={_quoted(sasl.username)} password={_quoted(_secret(sasl.secret))}"
    return f"org.apache.kafka.common.security.{_MODULES[sasl.mechanism]} required {login};"


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
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _secret(secret: Secret) -> str:
    try:
        return secret.read()
    except SecretUnreadable as error:
        raise AuditError(str(error), error.hint) from error
