"""The security of a site in farshore.toml: what it means, and what is refused with which words."""

from __future__ import annotations

import json
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
    Security,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from deploy.config import parse
from deploy.effective import effective_configuration
from deploy.errors import ConfigError

FOLDER = Path("/etc/farshore")
SITE = '[sites.east]\nbootstrap_servers = "kafka-1:9093"\n'
SCRAM = 'protocol = "SASL_SSL"\nmechanism = "SCRAM-SHA-512"\nusername = "farshore"\n'


def security(table: str) -> Security:
    return parse(f"{SITE}[sites.east.security]\n{table}", FOLDER / "farshore.toml").site("east").security


def test_a_site_without_one_is_open() -> None:
    assert (
        parse(SITE, FOLDER / "farshore.toml").site("east").security == PLAINTEXT == security('protocol = "PLAINTEXT"')
    )


def test_files_stand_beside_the_configuration() -> None:
    found = security(
        'protocol = "SSL"\nca_file = "ca.pem"\ncertificate_file = "me.pem"\nkey_file = "/keys/me.key"\n'
        'key_password_file = "me.password"\ntls_version_min = "TLSv1.3"\n'
    )
    own = (FOLDER / "me.pem", Path("/keys/me.key"), Secret(file=FOLDER / "me.password"))
    assert found == Security(Tls(FOLDER / "ca.pem", *own, TlsVersion.TLS_1_3))
    assert security('protocol = "SSL"') == Security(Tls())


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ('password_file = "p"', Secret(file=FOLDER / "p")),
        ('password_env = "P"', Secret(environment="P")),
        ('password_command = ["vault", "read"]', Secret(command=("vault", "read"))),
    ],
)
def test_a_password_stands_in_one_of_three_places(key: str, secret: Secret) -> None:
    assert security(SCRAM + key) == Security(Tls(), Sasl(Mechanism.SCRAM_SHA_512, "farshore", secret))


def test_stores_of_pkcs12_have_passwords_of_their_own() -> None:
    found = security(
        'protocol = "SSL"\nca_file = "ca.p12"\nca_password_env = "P"\ncertificate_file = "me.p12"\n'
        'key_password_command = ["vault", "read"]\n'
    )
    own, ca = Secret(command=("vault", "read")), Secret(environment="P")
    assert found == Security(Tls(FOLDER / "ca.p12", FOLDER / "me.p12", key_password=own, ca_password=ca))


def test_a_bearer_has_a_token_and_no_name() -> None:
    found = security('protocol = "SASL_PLAINTEXT"\nmechanism = "OAUTHBEARER"\ntoken_file = "t"')
    assert found == Security(None, Sasl(Mechanism.OAUTHBEARER, "", Secret(file=FOLDER / "t")))


def test_a_token_may_be_asked_for() -> None:
    found = security(
        'protocol = "SASL_SSL"\nmechanism = "OAUTHBEARER"\ntoken_endpoint = "https://login.example/token"\n'
        'client_id = "farshore"\npassword_env = "P"\ntoken_scope = "kafka"\ntoken_ca_file = "login.pem"'
    )
    asked = ("https://login.example/token", "farshore", Secret(environment="P"), "kafka", FOLDER / "login.pem")
    assert found == Security(Tls(), Sasl(Mechanism.OAUTHBEARER, "", TokenEndpoint(*asked)))


def test_a_token_may_be_signed_for_aws() -> None:
    table = 'protocol = "SASL_SSL"\nmechanism = "OAUTHBEARER"\ntoken_aws_region = "eu-west-1"\n'
    assert security(table).sasl == Sasl(Mechanism.OAUTHBEARER, "", AwsIdentity("eu-west-1"))
    named = security(f'{table}token_aws_profile = "mirror"')
    assert named.sasl == Sasl(Mechanism.OAUTHBEARER, "", AwsIdentity("eu-west-1", "mirror"))


KERBEROS = 'protocol = "SASL_SSL"\nmechanism = "GSSAPI"\n'


def test_a_ticket_is_of_a_keytab_or_in_the_cache_that_the_environment_names() -> None:
    table = f'{KERBEROS}kerberos_service_name = "kafka"\n'
    assert security(table) == Security(Tls(), Sasl(Mechanism.GSSAPI, "", KerberosIdentity("kafka")))
    of_file = security(f'{table}principal = "farshore@EXAMPLE"\nkeytab_file = "farshore.keytab"')
    identity = KerberosIdentity("kafka", "farshore@EXAMPLE", FOLDER / "farshore.keytab")
    assert of_file.sasl == Sasl(Mechanism.GSSAPI, "", identity)


BEARER = 'protocol = "SASL_SSL"\nmechanism = "OAUTHBEARER"\n'
ENDPOINT = BEARER + 'token_endpoint = "https://login.example/token"\n'


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "protocol"),
        ('protocol = "TLS"', "protocol"),
        ('protocol = "PLAINTEXT"\nca_file = "ca.pem"', "ca_file is of no use with protocol PLAINTEXT"),
        ('protocol = "SSL"\nusername = "farshore"', "username is of no use with protocol SSL"),
        ('protocol = "SSL"\nkey_file = "k"', "certificate_file is missing"),
        ('protocol = "SSL"\nca_file = ""', "ca_file"),
        ('protocol = "SSL"\nkey_password_env = "P"', "certificate_file is missing: key_password_env is of its key"),
        ('protocol = "SSL"\nca_password_file = "p"', "ca_file is missing: ca_password_file is of it"),
        (
            'protocol = "SSL"\nca_file = "c"\nca_password_file = "p"\nca_password_command = ["a"]',
            "ca_password_file and ca_password_command are both there",
        ),
        (SCRAM.replace("SASL_SSL", "SASL_PLAINTEXT") + 'ca_password_env = "P"', "ca_password_env is of no use"),
        ('protocol = "SASL_SSL"', "mechanism is missing"),
        (KERBEROS, "kerberos_service_name is missing"),
        (KERBEROS + 'kerberos_service_name = "kafka"\nkeytab_file = "k"', "principal is missing"),
        (KERBEROS + 'kerberos_service_name = "kafka/host"', "kerberos_service_name"),
        (KERBEROS + 'kerberos_service_name = "kafka"\nusername = "u"', "username is of no use with GSSAPI"),
        (KERBEROS + 'kerberos_service_name = "kafka"\npassword_env = "P"', "password_env is of no use with GSSAPI"),
        (SCRAM + 'password_env = "P"\nkeytab_file = "k"', "keytab_file is for GSSAPI"),
        ('protocol = "SSL"\nprincipal = "p"', "principal is of no use with protocol SSL"),
        ('protocol = "SASL_SSL"\nmechanism = "PLAIN"\npassword_env = "P"', "username is missing"),
        (SCRAM, "write one of password_file, password_env, password_command"),
        (SCRAM + 'password_env = "P"\npassword_file = "p"', "write one of"),
        (SCRAM + 'token_file = "t"', "token_file is for OAUTHBEARER"),
        (SCRAM + "password_command = []", "password_command"),
        (BEARER, "token_file"),
        (BEARER + 'token_file = "t"\nusername = "u"', "the token says who comes"),
        (BEARER + 'token_file = "t"\npassword_env = "P"', "password_env is of no use with token_file"),
        (ENDPOINT + 'token_file = "t"', "token_file, or token_endpoint"),
        (ENDPOINT + 'token_aws_region = "eu-west-1"', "token_file, or token_endpoint"),
        (BEARER + 'token_aws_region = "eu-west-1"\nclient_id = "c"', "client_id is of no use with token_aws_region"),
        (BEARER + 'token_aws_region = "eu-west-1.evil.example/"', "token_aws_region"),
        (BEARER + 'token_file = "t"\ntoken_aws_profile = "p"', "token_aws_profile is of no use with token_file"),
        (
            BEARER.replace("SASL_SSL", "SASL_PLAINTEXT") + 'token_aws_region = "eu-west-1"',
            "takes its tokens over SASL_SSL alone",
        ),
        (SCRAM + 'password_env = "P"\ntoken_aws_region = "eu-west-1"', "token_aws_region is for OAUTHBEARER"),
        (ENDPOINT, "client_id is missing"),
        (ENDPOINT + 'client_id = "c"', "which is the client's secret"),
        *(
            (f'{BEARER}token_endpoint = "{url}"\nclient_id = "c"\npassword_env = "P"', "token_endpoint: write https://")
            for url in (
                "http://login.example/",
                "https://farshore:hunter2@login.example/token",
                "https://hunter2@login.example",
                "https://login.example#hunter2",
                "https://login.example/token#hunter2",
                "https://login.example?of=farshore#hunter2",
            )
        ),
        (SCRAM + 'password = "hunter2"', "password"),
        (SCRAM + 'password_file = "p"\nverify = false', "verify"),
    ],
)
def test_what_does_not_fit_together_is_refused(table: str, words: str) -> None:
    with pytest.raises(ConfigError, match="security") as caught:
        security(table)
    assert words in str(caught.value)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value), "a password that was written into the file is not shown"


def test_brokers_without_named_listeners_have_none() -> None:
    with pytest.raises(ConfigError, match=r"sites\.east\.security: farshore's brokers here"):
        parse(f'{SITE}[sites.east.broker]\ndata_dir = "d"\n[sites.east.security]\nprotocol = "SSL"', FOLDER / "f.toml")


def test_what_the_file_amounts_to_shows_who_logs_in_and_no_secret() -> None:
    text = f'{SITE}[sites.east.security]\n{SCRAM}password_command = ["vault", "hunter2"]'
    effective = effective_configuration(parse(text, FOLDER / "farshore.toml"))
    (site,) = effective.sites
    assert (site.protocol, site.mechanism, site.username) == ("SASL_SSL", "SCRAM-SHA-512", "farshore")
    assert "hunter2" not in json.dumps(to_document(effective))
