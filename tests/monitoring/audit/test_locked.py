"""What Spark's Kafka connector is told of a locked site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.base.documents import to_document
from broker.client.security.settings import (
    PLAINTEXT,
    AwsIdentity,
    KerberosIdentity,
    Mechanism,
    Sasl,
    Secret,
    SecretSource,
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from monitoring.audit.locked import REDACTED, kafka_options, may_log_in_often, require_reachable
from monitoring.audit.model import FrozenLink, FrozenSite
from monitoring.audit.protocol import REQUEST, ChildRequest
from monitoring.errors import AuditError
from tests.certificates import Authority


def file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def a_login(folder: Path, password: str = "pencil") -> Sasl:
    return Sasl(Mechanism.SCRAM_SHA_512, "farshore", Secret(file=file(folder, "password", password)))


def test_an_open_site() -> None:
    assert kafka_options(PLAINTEXT) == {"kafka.security.protocol": "PLAINTEXT"}


def test_certificates_travel_with_the_options(tmp_path: Path) -> None:
    """As PEM, whatever they stand in: executors are other machines, and Java reads no key but PKCS #8."""
    authority = Authority(tmp_path)
    own = authority.sign("own")
    expected = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.enabled.protocols": "TLSv1.3",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.certificate.read_text(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": own.certificate.read_text(),
        "kafka.ssl.keystore.key": own.key.read_text(),
    }
    password = Secret(file=file(tmp_path, "password", "pencil"))
    stores = (authority.pkcs12("pencil"), own.pkcs12("pencil"))
    for tls in (
        Tls(authority.certificate, own.certificate, own.key, version_min=TlsVersion.TLS_1_3),
        Tls(*stores, key_password=password, ca_password=password, version_min=TlsVersion.TLS_1_3),
    ):
        assert kafka_options(Security(tls)) == expected


def test_what_holds_a_secret_is_named_so_that_spark_does_not_show_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("own")
    options = kafka_options(Security(Tls(None, own.certificate, own.key), a_login(tmp_path, "pencil-7Q")))
    secret = [name for name, value in options.items() if "pencil-7Q" in value or "PRIVATE KEY" in value]
    assert len(secret) == 2
    for expression in REDACTED.values():
        assert all(re.search(expression, name) for name in secret)


def test_a_password_cannot_leave_its_quotes(tmp_path: Path) -> None:
    options = kafka_options(Security(None, a_login(tmp_path, 'a"; b\\')))
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="farshore" password="a\\"; b\\\\";'
    )


def test_what_cannot_be_read_is_an_error_of_the_audit(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for security in (Security(Tls(nowhere)), Security(None, Sasl(Mechanism.PLAIN, "farshore", Secret(file=nowhere)))):
        with pytest.raises(AuditError, match="nowhere") as caught:
            kafka_options(security)
        assert caught.value.hint


HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def by_token(secret: SecretSource) -> Security:
    return Security(None, Sasl(Mechanism.OAUTHBEARER, "", secret))


def test_java_reads_a_token_where_farshore_does(tmp_path: Path) -> None:
    token = Secret(file=file(tmp_path, "token", "a.b.c"))
    assert kafka_options(by_token(token)) == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"),
        "kafka.sasl.login.callback.handler.class": HANDLER,
        "kafka.sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
        "kafka.sasl.oauthbearer.header.urlencode": "true",
    }
    odd = Secret(file=file(tmp_path, "of east", "a.b.c"))
    for unreadable, why in ((Secret(file=tmp_path / "nowhere"), "nowhere cannot be read"), (odd, "of east")):
        with pytest.raises(AuditError, match=why) as caught:
            kafka_options(by_token(unreadable))
        assert caught.value.hint


def test_java_asks_a_token_endpoint_by_itself(tmp_path: Path) -> None:
    """And trusts there whom farshore does, whatever is trusted at the brokers."""
    secret, ca = Secret(file=file(tmp_path, "secret", 'hunter2"')), Authority(tmp_path).certificate
    options = kafka_options(by_token(TokenEndpoint("https://login.example/token", "far:shore", secret, "kafka", ca)))
    certificates = ca.read_text().replace("\n", "\\n")
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="far:shore"'
        ' clientSecret="hunter2\\"" scope="kafka" ssl.enabled.protocols="TLSv1.3,TLSv1.2" ssl.truststore.type="PEM"'
        f' ssl.truststore.certificates="{certificates}";'
    )
    assert [name for name, value in options.items() if "hunter2" in value] == ["kafka.sasl.jaas.config"]
    without = kafka_options(by_token(TokenEndpoint("https://login.example/token", "farshore", secret)))
    assert "truststore" not in without["kafka.sasl.jaas.config"]
    assert "scope" not in without["kafka.sasl.jaas.config"]


def test_a_login_that_sparks_client_has_not_is_refused_before_it_starts() -> None:
    with pytest.raises(AuditError, match="site east by IAM of AWS") as caught:
        require_reachable("east", by_token(AwsIdentity("eu-west-1")))
    assert caught.value.hint
    require_reachable("east", by_token(TokenEndpoint("https://login.example", "farshore", Secret(environment="P"))))


def by_ticket(identity: KerberosIdentity) -> Security:
    return Security(None, Sasl(Mechanism.GSSAPI, "", identity))


def test_java_logs_in_by_a_ticket_as_farshore_does(tmp_path: Path) -> None:
    of_cache = kafka_options(by_ticket(KerberosIdentity("kafka")))
    module = "com.sun.security.auth.module.Krb5LoginModule"
    assert of_cache == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": f"{module} required doNotPrompt=true useTicketCache=true;",
    }
    keytab = file(tmp_path, "farshore.keytab", "")
    identity = KerberosIdentity("kafka", "farshore@EXAMPLE", keytab)
    assert kafka_options(by_ticket(identity))["kafka.sasl.jaas.config"] == (
        f'{module} required doNotPrompt=true useKeyTab=true storeKey=true keyTab="{keytab}"'
        ' principal="farshore@EXAMPLE";'
    )
    keytab.unlink()
    with pytest.raises(AuditError, match="keytab cannot be read: No such file") as caught:
        kafka_options(by_ticket(identity))
    assert caught.value.hint
    require_reachable("east", by_ticket(identity))


@pytest.mark.parametrize(
    "security",
    [
        by_ticket(KerberosIdentity("kafka")),
        by_ticket(KerberosIdentity("kafka", "me", Path("/etc/keytab"))),
        by_token(Secret(file=Path("/etc/token"))),
        by_token(TokenEndpoint("https://login.example", "farshore", Secret(environment="P"))),
        by_token(TokenEndpoint("https://login.example", "me", Secret(command=("p",)), "kafka", Path("/etc/ca"))),
    ],
)
def test_the_child_is_told_of_tickets_and_tokens_as_what_they_are(security: Security, tmp_path: Path) -> None:
    site = FrozenSite("east", "kafka-1:9093", None, {}, security)
    link = FrozenLink("east-west", site, site, 0, ())
    asked = ChildRequest("run", link, "local", (), tmp_path, tmp_path / "log", "farshore audit run")
    assert REQUEST.validate_json(REQUEST.dump_json(asked)) == asked


@pytest.mark.parametrize(
    ("security", "may"),
    [
        (PLAINTEXT, True),
        (Security(Tls(Path("ca"))), True),
        (Security(Tls(Path("ca"), Path("own"), Path("key"), Secret(file=Path("password")))), True),
        (Security(Tls(Path("ca"), Path("own"), Path("key"), Secret(command=("vault", "key")))), False),
        (Security(Tls(Path("ca"), ca_password=Secret(command=("vault", "ca")))), False),
        (Security(None, Sasl(Mechanism.PLAIN, "me", Secret(environment="PASSWORD"))), True),
        (Security(None, Sasl(Mechanism.PLAIN, "me", Secret(command=("vault", "password")))), False),
        (by_token(Secret(file=Path("/etc/token"))), True),
        (by_token(TokenEndpoint("https://login.example?key=1", "me", Secret(environment="P"))), False),
        (by_ticket(KerberosIdentity("kafka", "me", Path("/etc/keytab"))), False),
    ],
)
def test_tasks_log_in_by_themselves_where_that_asks_no_program_and_no_issuer(security: Security, may: bool) -> None:
    assert may_log_in_often(security) is may


def test_the_child_is_told_where_secrets_stand_and_no_secret(tmp_path: Path) -> None:
    security = Security(Tls(tmp_path / "ca"), a_login(tmp_path, "pencil-7Q"))
    site = FrozenSite("east", "kafka-1:9093", None, {}, security)
    link = FrozenLink("east-west", site, site, 0, ())
    asked = ChildRequest("run", link, "local", (), tmp_path, tmp_path / "log", "farshore audit run")
    text = REQUEST.dump_json(asked)
    assert b"pencil-7Q" not in text
    assert REQUEST.validate_json(text) == asked
    assert "pencil-7Q" not in str(to_document(asked))
