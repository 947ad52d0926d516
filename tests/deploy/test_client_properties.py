"""`properties_file`: what Kafka's own tools are told, as farshore takes it, and what it refuses with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.security.places import Property
from broker.client.security.settings import (
    KerberosIdentity,
    Mechanism,
    Sasl,
    Secret,
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from deploy.config import parse
from deploy.effective import effective_configuration
from deploy.errors import ConfigError

SITE = (
    '[sites.east]\nbootstrap_servers = "kafka-1:9093"\n[sites.east.security]\nproperties_file = "client.properties"\n'
)
COMMON = "org.apache.kafka.common.security"
PLAIN = f'{COMMON}.plain.PlainLoginModule required username="farshore" password="hunter2";'
SCRAM = f'{COMMON}.scram.ScramLoginModule required username="farshore" password="hunter2";'
BEARER = f'{COMMON}.oauthbearer.OAuthBearerLoginModule required clientId="farshore" clientSecret="hunter2"'
LOGIN = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}\n"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url=https://login.example/token\n"
TOKEN = f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={BEARER}"
STORE = "security.protocol=SSL\nssl.keystore.location=/etc/me.p12\nssl.keystore.password=hunter2\n"


def security(folder: Path, properties: str) -> Security:
    (folder / "client.properties").write_text(properties)
    return parse(SITE, folder / "farshore.toml").site("east").security


def test_an_open_site(tmp_path: Path) -> None:
    assert security(tmp_path, "security.protocol=PLAINTEXT") == Security()
    assert security(tmp_path, "# as nobody\nsecurity.protocol : plaintext \n") == Security()


def test_files_of_pem_stand_beside_the_properties(tmp_path: Path) -> None:
    found = security(
        tmp_path,
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\nssl.keystore.type=pem\n"
        "ssl.keystore.location=/keys/me.pem\nssl.key.password=hunter2\nssl.enabled.protocols=TLSv1.3\n"
        "ssl.endpoint.identification.algorithm=HTTPS\nssl.protocol=TLSv1.3\n",
    )
    key_password = Secret(file=Property(tmp_path / "client.properties", "ssl.key.password"))
    own = (Path("/keys/me.pem"), None, key_password)
    assert found == Security(Tls(tmp_path / "ca.pem", *own, TlsVersion.TLS_1_3))


def test_pem_may_stand_in_the_properties(tmp_path: Path) -> None:
    found = security(
        tmp_path,
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=-----BEGIN \\\n  CERTIFICATE\n"
        "ssl.keystore.type=PEM\nssl.keystore.certificate.chain=A\nssl.keystore.key=hunter2\n"
        "ssl.enabled.protocols=TLSv1.2, TLSv1.3\n",
    )
    names = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    ca, chain, key = (Property(tmp_path / "client.properties", name) for name in names)
    assert found == Security(Tls(ca, chain, key))


@pytest.mark.parametrize("stored", ["", "ssl.truststore.type=PKCS12\nssl.keystore.type=pkcs12\n"])
def test_stores_of_pkcs12_also_where_java_would_find_out_itself(stored: str, tmp_path: Path) -> None:
    (tmp_path / "me.p12").write_bytes(b"\x30\x82")
    found = security(
        tmp_path,
        f"security.protocol=SSL\n{stored}ssl.truststore.location=ca.p12\nssl.truststore.password=a\n"
        "ssl.keystore.location=me.p12\nssl.keystore.password=hunter2\nssl.key.password=hunter2\n",
    )
    own, ca = (
        Secret(file=Property(tmp_path / "client.properties", f"ssl.{which}.password"))
        for which in ("keystore", "truststore")
    )
    assert found == Security(Tls(tmp_path / "ca.p12", tmp_path / "me.p12", None, own, ca_password=ca))


@pytest.mark.parametrize(("mechanism", "login"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
@pytest.mark.parametrize("is_safe", [True, False])
def test_a_login(mechanism: str, login: str, is_safe: bool, tmp_path: Path) -> None:
    protocol = "SASL_SSL" if is_safe else "SASL_PLAINTEXT"
    found = security(
        tmp_path, f"security.protocol={protocol}\nsasl.mechanism={mechanism}\nsasl.jaas.config = \\\n  {login}\n"
    )
    secret = Secret(file=Property(tmp_path / "client.properties", "sasl.jaas.config", "password"))
    assert found == Security(Tls() if is_safe else None, Sasl(Mechanism(mechanism), "farshore", secret))
    assert isinstance(secret, Secret)
    assert secret.read() == "hunter2"


def test_a_token_of_an_endpoint_and_of_a_file(tmp_path: Path) -> None:
    handler = f"sasl.login.callback.handler.class={COMMON}.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    options = ' scope="kafka" ssl.truststore.type=PEM ssl.truststore.location="login.pem";\n'
    found = security(tmp_path, TOKEN + options + ENDPOINT + handler)
    secret = Secret(file=Property(tmp_path / "client.properties", "sasl.jaas.config", "clientSecret"))
    endpoint = TokenEndpoint("https://login.example/token", "farshore", secret, "kafka", tmp_path / "login.pem")
    assert found == Security(Tls(), Sasl(Mechanism.OAUTHBEARER, "", endpoint))
    module = f"sasl.jaas.config={COMMON}.oauthbearer.OAuthBearerLoginModule required;\n"
    of_file = f"{module}sasl.oauthbearer.token.endpoint.url=file:///run/token\n"
    found = security(tmp_path, f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n{of_file}")
    assert found == Security(None, Sasl(Mechanism.OAUTHBEARER, "", Secret(file=Path("/run/token"))))


KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
OF_KEYTAB = 'useKeyTab=true storeKey=true keyTab="farshore.keytab" principal="farshore@EXAMPLE"'
KERBEROS = f"security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\nsasl.jaas.config={KRB5} required "


@pytest.mark.parametrize("mechanism", ["", "sasl.mechanism=GSSAPI\n"])
def test_a_ticket_also_where_kafkas_default_says_so(mechanism: str, tmp_path: Path) -> None:
    found = security(tmp_path, f"{mechanism}{KERBEROS}{OF_KEYTAB};")
    identity = KerberosIdentity("kafka", "farshore@EXAMPLE", tmp_path / "farshore.keytab")
    assert found == Security(None, Sasl(Mechanism.GSSAPI, "", identity))


def test_a_ticket_of_the_cache_and_a_service_that_the_login_names(tmp_path: Path) -> None:
    without = KERBEROS.replace("sasl.kerberos.service.name=kafka\n", "")
    found = security(tmp_path, f'{without}useTicketCache=true serviceName="kafka";')
    assert found == Security(None, Sasl(Mechanism.GSSAPI, "", KerberosIdentity("kafka")))


def told(folder: Path, properties: str) -> list[str]:
    """The problems, one a line."""
    with pytest.raises(ConfigError) as caught:
        security(folder, properties)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)
    _, *problems = str(caught.value).split(f"sites.east.security.properties_file: {folder}/client.properties: ")
    return problems


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ("", "security.protocol is missing, for which Kafka takes PLAINTEXT"),
        ("security.protocol=", "security.protocol is empty"),
        ("security.protocol=  \nssl.truststore.type=PEM", "security.protocol is empty"),
        ("security.protocol=TLS", "security.protocol is TLS: write one of PLAINTEXT, SSL"),
        (
            "security.protocol=PLAINTEXT\nssl.keystore.type=PEM",
            "ssl.keystore.type is of no use with security.protocol=",
        ),
        ("security.protocol=SSL\nsasl.mechanism=PLAIN", "sasl.mechanism is of no use with security.protocol=SSL"),
        (
            LOGIN + "ssl.truststore.location=/ca",
            "ssl.truststore.location is of no use with security.protocol=SASL_PLAIN",
        ),
        ("security.protocol=SSL\nrequest.timeout.ms=1", "request.timeout.ms cannot be mapped"),
        ("security.protocol=SSL\nretries=1", "retries cannot be mapped"),
        ("security.protocol=SSL\nbootstrap.servers=a:1", "bootstrap.servers cannot be mapped: the site's bootstrap"),
        ("security.protocol=SSL\nssl.cipher.suites=A", "ssl.cipher.suites cannot be mapped"),
        ("security.protocol=SSL\nssl.engine.factory.class=A", "ssl.engine.factory.class cannot be mapped"),
        ("security.protocol=SSL\nhunter2", "line 2 is no property of a client"),
        ("security.protocol=SSL\nMIIBhunter2/hunter2==", "line 2 is no property of a client"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=", "switches off the check of host names"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=x", "switches off the check of host names"),
        ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.2", "ssl.enabled.protocols is TLSv1.2"),
        ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1,TLSv1.2,TLSv1.3", "ssl.enabled.protocols is TLSv1.1"),
        ("security.protocol=SSL\nssl.protocol=TLSv1.2", "ssl.protocol is TLSv1.2"),
        (
            "security.protocol=SSL\nssl.truststore.type=BCFKS\nssl.truststore.location=a",
            "type is BCFKS: farshore reads PEM",
        ),
        ("security.protocol=SSL\nssl.truststore.certificates=hunter2", "ssl.truststore.type is missing: write PEM"),
        ("security.protocol=SSL\nssl.truststore.type=PEM", "type is of no use without ssl.truststore.location"),
        ("security.protocol=SSL\nssl.keystore.type=JKS", "type is of no use without ssl.keystore.location"),
        ("security.protocol=SSL\nssl.truststore.location=", "ssl.truststore.location is empty"),
        ("security.protocol=SSL\nssl.truststore.password=hunter2", "is of no use without ssl.truststore.location"),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=a\nssl.truststore.password=hunter2",
            "ssl.truststore.password is of no use with PEM",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=a\nssl.truststore.certificates=b",
            "ssl.truststore.certificates and ssl.truststore.location are both there",
        ),
        ("security.protocol=SSL\nssl.key.password=hunter2", "ssl.key.password is of no use without a keystore"),
        (
            STORE + "ssl.keystore.type=PKCS12\nssl.keystore.key=hunter2",
            "ssl.keystore.key is of no use with ssl.keystore.type=PKCS12",
        ),
        (STORE + "ssl.keystore.type=PEM", "ssl.keystore.password is of no use with PEM"),
        (STORE + "ssl.key.password=another", "ssl.key.password is another than ssl.keystore.password"),
        (STORE.replace("ssl.keystore.password=hunter2\n", ""), "ssl.keystore.password is missing"),
        (
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=hunter2",
            "ssl.keystore.certificate.chain is missing beside ssl.keystore.key",
        ),
        (LOGIN.replace("SCRAM-SHA-512", "GSSAPI"), "has ScramLoginModule, which is not of sasl.mechanism=GSSAPI"),
        (LOGIN.replace("SCRAM-SHA-512", "DIGEST-MD5"), "sasl.mechanism is DIGEST-MD5: farshore speaks PLAIN"),
        (KERBEROS.replace("kafka", "") + f"{OF_KEYTAB};", "sasl.kerberos.service.name is empty"),
        (KERBEROS + f'{OF_KEYTAB} serviceName="other";', "serviceName is another than sasl.kerberos.service.name"),
        (KERBEROS + f"{OF_KEYTAB} useTicketCache=true;", "write one of useKeyTab=true and useTicketCache=true"),
        (KERBEROS + 'principal="farshore";', "write one of useKeyTab=true and useTicketCache=true"),
        (KERBEROS + 'useKeyTab=true principal="farshore";', "sasl.jaas.config: keyTab is missing"),
        (KERBEROS + 'useKeyTab=true keyTab="k";', "sasl.jaas.config: principal is missing"),
        (KERBEROS + 'useTicketCache=true ticketCache="t";', "the one that KRB5CCNAME names in its environment"),
        (KERBEROS + "useTicketCache=true renewTGT=true;", "renewTGT cannot be mapped: farshore has nothing like it"),
        (LOGIN + "sasl.kerberos.service.name=kafka", "sasl.kerberos.service.name cannot be mapped"),
        (LOGIN.replace("SCRAM-SHA-512", "AWS_MSK_IAM"), "table with token_aws_region in place of this file"),
        (LOGIN.replace("sasl.mechanism=SCRAM-SHA-512\n", ""), "sasl.mechanism=GSSAPI, which Kafka takes where"),
        (LOGIN.replace("SCRAM-SHA-512", ""), "sasl.mechanism is empty"),
        (LOGIN.replace("SCRAM-SHA-512", "PLAIN"), "has ScramLoginModule, which is not of sasl.mechanism=PLAIN"),
        (LOGIN.replace(f"sasl.jaas.config={SCRAM}", ""), "sasl.jaas.config is missing"),
        (LOGIN.replace(SCRAM, ""), "sasl.jaas.config is empty"),
        (LOGIN.replace(";", ""), "sasl.jaas.config does not end with a semicolon"),
        (LOGIN.replace('"hunter2"', "hunter2 hunter2"), "sasl.jaas.config has an option that is not NAME"),
        (LOGIN.replace(' password="hunter2"', ""), "sasl.jaas.config: password is missing"),
        (LOGIN.replace('"farshore"', '""'), "sasl.jaas.config: username is empty"),
        (LOGIN.replace('"hunter2"', '"hunter2" tokenauth=true'), "sasl.jaas.config: tokenauth cannot be mapped"),
        (LOGIN + "sasl.client.callback.handler.class=a", "sasl.client.callback.handler.class cannot be mapped"),
        (
            LOGIN.replace(f"{COMMON}.scram.ScramLoginModule", "com.ibm.security.auth.module.Krb5LoginModule"),
            "sasl.jaas.config has com.ibm.security.auth.module.Krb5LoginModule, which farshore does not know",
        ),
        (f"{TOKEN};", "sasl.oauthbearer.token.endpoint.url is missing"),
        *(
            (f"{TOKEN};\nsasl.oauthbearer.token.endpoint.url={url}", "endpoint.url: write https://HOST/PATH")
            for url in (
                "http://login.example/token",
                "https://farshore:hunter2@login.example/token",
                "https://hunter2@login.example",
                "https://login.example#hunter2",
                "https://login.example/token#hunter2",
                "https://login.example?of=farshore#hunter2",
            )
        ),
        (f"{TOKEN};\n{ENDPOINT}sasl.login.callback.handler.class=a.B", "sasl.login.callback.handler.class is a.B"),
        (f"{TOKEN} extension_a=b;\n{ENDPOINT}", "sasl.jaas.config: extension_a cannot be mapped"),
        (f"{TOKEN.replace('clientId', 'clientID')};\n{ENDPOINT}", "sasl.jaas.config: clientId is missing"),
        (f'{TOKEN} ssl.truststore.location="a";\n{ENDPOINT}', "sasl.jaas.config: ssl.truststore.type has to be PEM"),
        ("security.protocol=SSL\nssl.key.password=hunter2\\u1", "line 2: there are no four hexadecimal digits"),
    ],
)
def test_what_cannot_be_mapped_is_named(properties: str, words: str, tmp_path: Path) -> None:
    problems = told(tmp_path, properties)
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("which", ["truststore", "keystore"])
@pytest.mark.parametrize("named", ["=JKS", "", "=jks"])
def test_a_store_of_javas_own_type_is_told_how_to_be_converted(which: str, named: str, tmp_path: Path) -> None:
    """Also where nothing but the file itself says that it is one."""
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    stored = f"ssl.{which}.type{named}\n" if named else ""
    given = f"security.protocol=SSL\nssl.{which}.location=store.jks\nssl.{which}.password=hunter2\n{stored}"
    (problem,) = told(tmp_path, given)
    assert f"a {which} of Java's own" in problem
    assert f"keytool -importkeystore -srckeystore {tmp_path}/store.jks" in problem
    assert f"ssl.{which}.type=PKCS12" in problem


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = LOGIN + "request.timeout.ms=1\nssl.truststore.type=PEM\nsasl.login.class=a"
    problems = told(tmp_path, text)
    for name in ("request.timeout.ms", "ssl.truststore.type", "sasl.login.class"):
        assert sum(name in problem for problem in problems) == 1


def test_of_an_unknown_protocol_nothing_else_is_told(tmp_path: Path) -> None:
    (problem,) = told(tmp_path, "security.protocol=\nssl.truststore.type=PEM\nsasl.mechanism=PLAIN")
    assert "security.protocol is empty" in problem


@pytest.mark.parametrize("other", ['protocol = "SSL"', 'password_file = "p"', 'tls_version_min = "TLSv1.3"'])
def test_it_stands_alone_in_its_table(other: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(LOGIN)
    with pytest.raises(ConfigError) as caught:
        parse(f"{SITE}{other}\n", tmp_path / "farshore.toml")
    assert f"properties_file stands alone, as it says all of it: take {other.split(' = ')[0]} out" in str(caught.value)


def test_one_that_is_not_there_is_named_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(SITE, tmp_path / "farshore.toml")
    where = f"sites.east.security.properties_file: {tmp_path}/client.properties cannot be read: No such file"
    assert where in str(caught.value)


def test_what_the_file_amounts_to_shows_who_logs_in_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(LOGIN)
    effective = effective_configuration(parse(SITE, tmp_path / "farshore.toml"))
    (site,) = effective.sites
    assert (site.protocol, site.mechanism, site.username) == ("SASL_PLAINTEXT", "SCRAM-SHA-512", "farshore")
    assert "hunter2" not in str(effective)
