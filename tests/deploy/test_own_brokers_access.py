"""Who gets in at brokers of farshore's own, and what he may do: as farshore.toml says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.config import parse
from deploy.errors import ConfigError
from tests.chaos_runs.warm_commands import Said, warm_commands

FILE = Path("/etc/farshore/farshore.toml")
ALONE = """
[sites.east]
bootstrap_servers = "east.example:9093"
[sites.east.broker]
data_dir = "var/east"
listeners = ["SASL_SSL://0.0.0.0:9093"]
advertised_listeners = ["SASL_SSL://east.example:9093"]
ssl_certificate_file = "east.pem"
sasl_enabled_mechanisms = ["SCRAM-SHA-512"]
sasl_users_file = "users.json"
authorizer_enable = true
super_users = ["User:farshore"]
"""
CLUSTER = """
[sites.north]
bootstrap_servers = "one.example:9093,two.example:9093"
[sites.north.security]
protocol = "SASL_SSL"
mechanism = "SCRAM-SHA-512"
username = "farshore"
password_file = "north.password"
[sites.north.cluster]
zookeeper = "127.0.0.1:2181"
security_inter_broker_protocol = "SSL"
ssl_client_ca_file = "ca.pem"
sasl_enabled_mechanisms = ["SCRAM-SHA-512"]
sasl_users_file = "users.json"
authorizer_enable = true
super_users = ["User:farshore", "User:CN=one", "User:CN=two"]
[[sites.north.brokers]]
node_id = 1
listeners = ["SASL_SSL://0.0.0.0:9093"]
advertised_listeners = ["SASL_SSL://one.example:9093"]
inter_broker_listen = "one.example:9094"
ssl_certificate_file = "one.pem"
ssl_key_file = "one.key"
data_dir = "var/north-1"
[[sites.north.brokers]]
node_id = 2
listeners = ["SASL_SSL://0.0.0.0:9093"]
advertised_listeners = ["SASL_SSL://two.example:9093"]
ssl_certificate_file = "two.pem"
data_dir = "var/north-2"
"""


def test_a_broker_that_is_alone_asks_for_rights() -> None:
    config = parse(ALONE, FILE).broker_config("east")
    assert (config.authorizer_enable, config.super_users) == (True, ("User:farshore",))
    assert not config.allow_everyone_if_no_acl_found
    assert config.sasl_users_file == FILE.parent / "users.json"


def test_brokers_of_a_cluster_share_who_may_come_and_each_has_its_certificate() -> None:
    file = parse(CLUSTER, FILE)
    one, two = (file.broker_config("north", node_id) for node_id in (1, 2))
    assert [str(each) for each in one.client_listeners()] == ["SASL_SSL://0.0.0.0:9093"]
    assert one.super_users == two.super_users == ("User:farshore", "User:CN=one", "User:CN=two")
    assert (one.ssl_certificate_file, one.ssl_key_file) == (FILE.parent / "one.pem", FILE.parent / "one.key")
    assert (two.ssl_certificate_file, two.ssl_key_file) == (FILE.parent / "two.pem", None)
    assert str(one.inter_broker_address) == "one.example:9094"
    tls = one.inter_broker_tls()
    assert tls is not None
    assert (tls.client_ca_file, tls.client_auth) == (FILE.parent / "ca.pem", "required")


OF_TOKENS = """\
sasl_enabled_mechanisms = ["OAUTHBEARER"]
sasl_oauthbearer_jwks_file = "jwks.json"
sasl_oauthbearer_expected_issuer = "https://login.example"
sasl_oauthbearer_expected_audience = ["kafka"]
sasl_oauthbearer_required_scope = ["write"]
sasl_oauthbearer_sub_claim_name = "azp"
sasl_oauthbearer_scope_claim_name = "scp"
sasl_oauthbearer_clock_skew_seconds = 5
"""
OF_PASSWORDS = 'sasl_enabled_mechanisms = ["SCRAM-SHA-512"]\nsasl_users_file = "users.json"\n'


@pytest.mark.parametrize(("text", "site"), [(ALONE, "east"), (CLUSTER, "north")])
def test_tokens_are_taken_by_a_broker_that_is_alone_and_by_all_of_a_cluster(text: str, site: str) -> None:
    file = parse(text.replace(OF_PASSWORDS, OF_TOKENS), FILE)
    for node_id in (1, 2) if site == "north" else (None,):
        config = file.broker_config(site, node_id)
        assert (config.sasl_enabled_mechanisms, config.sasl_users_file) == (("OAUTHBEARER",), None)
        assert config.sasl_oauthbearer_jwks_file == FILE.parent / "jwks.json"
        assert config.sasl_oauthbearer_expected_issuer == "https://login.example"
        assert (config.sasl_oauthbearer_expected_audience, config.sasl_oauthbearer_required_scope) == (
            ("kafka",),
            ("write",),
        )
        assert (config.sasl_oauthbearer_sub_claim_name, config.sasl_oauthbearer_scope_claim_name) == ("azp", "scp")
        assert config.sasl_oauthbearer_clock_skew_seconds == 5


@pytest.mark.parametrize(
    ("text", "change", "told"),
    [
        (ALONE, ('sasl_users_file = "users.json"\n', ""), "sasl_users_file is missing"),
        (
            ALONE,
            (OF_PASSWORDS, OF_TOKENS.replace('issuer = "https://login.example"', 'issuer = ""')),
            "expected_issuer",
        ),
        (ALONE, (OF_PASSWORDS, OF_TOKENS.replace("seconds = 5", "seconds = 3601")), "clock_skew_seconds"),
        (ALONE, (OF_PASSWORDS, OF_TOKENS.replace("_issuer", "_isuer")), "expected_isuer: there is no such key"),
        (ALONE, ('super_users = ["User:farshore"]', ""), "sites.east.broker: super_users is missing"),
        (ALONE, ("authorizer_enable = true", ""), "super_users is there without authorizer_enable"),
        (ALONE, ('"User:farshore"', '"farshore"'), "super_users has 'farshore': write principals as User:NAME"),
        (ALONE, ("super_users", 'security_inter_broker_protocol = "SSL"\nsuper_users'), "there is no such key"),
        (
            CLUSTER,
            ('security_inter_broker_protocol = "SSL"\nssl_client_ca_file = "ca.pem"\n', ""),
            'needs security_inter_broker_protocol = "SSL"',
        ),
        (CLUSTER, ('ssl_client_ca_file = "ca.pem"\n', ""), "ssl_client_ca_file is missing"),
        (CLUSTER, ("SASL_SSL://two.example:9093", "OTHER://two.example:9093"), "advertised_listeners names OTHER"),
        (CLUSTER, ('"SSL"\nssl', '"SASL"\nssl'), "security_inter_broker_protocol"),
    ],
)
def test_what_would_lock_nothing_or_everybody_out_is_refused(text: str, change: tuple[str, str], told: str) -> None:
    assert change[0] in text
    with pytest.raises(ConfigError) as caught:
        parse(text.replace(*change), FILE)
    assert told in str(caught.value)


OPEN = CLUSTER.replace('security_inter_broker_protocol = "SSL"\nssl_client_ca_file = "ca.pem"\n', "")
OPEN = OPEN.replace("authorizer_enable = true\n", "").replace("super_users", "# super_users")
LINKED = """
[sites.west]
bootstrap_servers = "west.example:9092"
[[links]]
name = "north-west"
source = "north"
target = "west"
topics = ["flights"]
"""


def test_brokers_that_would_believe_strangers_do_not_start_and_all_else_goes_on(tmp_path: Path) -> None:
    """A machine that was upgraded could not fail over before tables of brokers elsewhere were edited."""
    file = tmp_path / "farshore.toml"
    file.write_text(OPEN + LINKED)

    def said(*words: str) -> Said:
        return warm_commands().run(["--config", str(file), *words])

    assert [said(*words).code for words in (("link", "list"), ("config", "show"))] == [0, 0]
    started, validated = said("broker", "run", "--site", "north", "--node-id", "1"), said("config", "validate")
    assert (started.code, validated.code) == (2, 2)
    told = "between the brokers would ask nobody who he is"
    assert f"one.example:9094 {told}" in " ".join(started.err.split())
    assert not (tmp_path / "var").exists()
    assert f"sites.north.brokers[0] (node_id 1): one.example:9094 {told}" in validated.err
    assert f"sites.north.brokers[1] (node_id 2): 0.0.0.0:0 {told}" in validated.err

    file.write_text((OPEN + LINKED).replace("[[sites", "inter_broker_plaintext_beside_logins = true\n[[sites", 1))
    assert said("config", "validate").code == 0


def test_between_brokers_every_interface_is_told_by_the_first_listeners_name() -> None:
    text = CLUSTER.replace('"one.example:9094"', '"0.0.0.0:9094"')
    assert str(parse(text, FILE).broker_config("north", 1).inter_broker_address) == "0.0.0.0:9094"


def test_an_authorizer_needs_a_listener_that_tells_who_comes() -> None:
    text = '[sites.east]\nbootstrap_servers = "h:1"\n[sites.east.broker]\ndata_dir = "d"\nauthorizer_enable = true\n'
    with pytest.raises(ConfigError, match="authorizer_enable: no listener tells who comes"):
        parse(text + 'super_users = ["User:a"]\n', FILE)


def test_a_broker_of_a_cluster_listens_somewhere() -> None:
    listeners = 'listeners = ["SASL_SSL://0.0.0.0:9093"]\nadvertised_listeners = ["SASL_SSL://two.example:9093"]\n'
    with pytest.raises(ConfigError, match=r"brokers\[1\] \(node_id 2\)\.listen: is missing; or give listeners"):
        parse(CLUSTER.replace(listeners, ""), FILE)
