"""The whole configuration: nothing of the file is lost, defaults stand there, and nothing that may be a secret does."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from click.testing import CliRunner, Result

from broker.base.documents import HIDDEN
from deploy.cli.root import cli
from deploy.config import parse
from deploy.tables import FileModel
from deploy.values import Table
from deploy.whole import toml_of, whole_configuration

FILE = Path("/etc/farshore/farshore.toml")
SMALL = """
[sites.east]
bootstrap_servers = "127.0.0.1:19092"
[sites.east.broker]
data_dir = "var/east"
[sites.west]
bootstrap_servers = "kafka-1:9093"
[sites.west.security]
protocol = "SASL_SSL"
mechanism = "SCRAM-SHA-512"
username = "farshore"
password_file = "west.password"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
pins = ["flights:3"]
"""
LARGE = r"""
state_dir = "~/state"
[sites.east]
bootstrap_servers = "one:9093,two:9093"
address_map = { "one:9093" = "10.0.0.1:9093" }
[sites.east.security]
properties_file = "client.properties"
[sites.east.cluster]
zookeeper = "zk-1:2281/north"
zookeeper_session_timeout_ms = 6000
security_inter_broker_protocol = "SSL"
ssl_client_ca_file = "ca.pem"
ssl_principal_mapping_rules = "RULE:^CN=([^,]*).*$/$1/L,DEFAULT"
sasl_enabled_mechanisms = ["SCRAM-SHA-512"]
sasl_users_file = "users.json"
authorizer_enable = true
super_users = ["User:farshore", "User:\"quoted\" \\ é"]
[sites.east.cluster.zookeeper_security]
ca_file = "zookeeper-ca.pem"
username = "farshore"
password_env = "ZOOKEEPER_PASSWORD"
[[sites.east.brokers]]
node_id = 1
listeners = ["INSIDE://127.0.0.1:9093"]
inter_broker_listen = "one:9094"
ssl_certificate_file = "one.pem"
data_dir = "var/east-1"
[sites.east.brokers.metrics]
listen = "127.0.0.1:9701"
token_file = "token"
[[sites.east.brokers]]
node_id = 2
listeners = ["INSIDE://127.0.0.1:9095"]
ssl_certificate_file = "two.pem"
data_dir = "var/east-2"
[sites.east.cluster.listener_security_protocol_map]
INSIDE = "SASL_SSL"
[sites.west]
bootstrap_servers = "kafka-1:9092"
freeze_principals = ["User:*"]
[fleet]
etcd = ["etcd-1:2379"]
user = "farshore"
password_file = "etcd.password"
[monitor]
listen = "127.0.0.1:9601"
[audit]
jars = ["connector.jar"]
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["orders-.*"]
sync_acls = true
acl_principals = { "User:shop" = "User:shop-west" }
"""
SECRET = "canary-secret-7Qw"
SECRETS = f"""
[sites.east]
bootstrap_servers = "127.0.0.1:19092"
[sites.east.security]
protocol = "SASL_SSL"
ca_file = "ca.p12"
ca_password_command = ["open", "{SECRET}"]
key_password_command = ["open", "{SECRET}"]
certificate_file = "own.pem"
mechanism = "OAUTHBEARER"
token_endpoint = "https://login.example/token?key={SECRET}"
client_id = "farshore"
password_command = ["vault", "--token", "{SECRET}"]
[sites.west]
bootstrap_servers = "one:9093"
[sites.west.cluster]
zookeeper = "zk-1:2281"
[sites.west.cluster.zookeeper_security]
ca_file = "ca.pem"
certificate_file = "own.pem"
key_password_command = ["open", "{SECRET}"]
username = "farshore"
password_command = ["vault", "{SECRET}"]
[[sites.west.brokers]]
node_id = 1
listen = "one:9093"
inter_broker_listen = "127.0.0.1:9094"
data_dir = "var/west"
[sites.west.brokers.metrics]
listen = "127.0.0.1:9701"
token_command = ["token", "{SECRET}"]
[fleet]
etcd = ["etcd-1:2379"]
user = "farshore"
password_command = ["vault", "{SECRET}"]
[failover]
freeze_hook = ["curl", "-H", "Authorization: Bearer {SECRET}"]
thaw_hook = ["curl", "{SECRET}"]
before_hook = ["tell", "{SECRET}"]
after_hook = ["tell", "{SECRET}"]
[monitor]
token_command = ["token", "{SECRET}"]
"""
HARMLESS = {
    "advertised_listeners",
    "etcd",
    "freeze_principals",
    "groups",
    "listeners",
    "sasl_oauthbearer_expected_audience",
    "sasl_oauthbearer_required_scope",
    "super_users",
    "topics",
}
"""Lists of words of which all are shown."""


def whole_of(text: str, file: Path = FILE) -> dict[str, Any]:
    return whole_configuration(parse(text, file))


@pytest.mark.parametrize("text", [SMALL, LARGE])
def test_as_a_file_of_its_own_it_says_the_same(text: str, tmp_path: Path) -> None:
    """In any folder."""
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    whole = whole_of(text, tmp_path / "farshore.toml")
    assert whole_of(toml_of(whole), Path("/elsewhere/other.toml")) == whole


@pytest.mark.parametrize("text", [SMALL, LARGE])
def test_all_that_the_file_says_stands_there(text: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    said = dict(leaves(tomllib.loads(text)))
    shown = dict(leaves(whole_of(text, tmp_path / "farshore.toml")))
    assert said.keys() <= shown.keys()
    paths = {key for key in said if key[-1] in ("state_dir", "data_dir") or str(key[-1]).endswith("_file")}
    assert all(str(shown[key]).endswith(str(said[key]).lstrip("~")) for key in paths)
    assert {key for key in said.keys() - paths if said[key] != shown[key]} <= {("audit", "jars", 0)}


def leaves(value: Any, at: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*at, key))
    else:
        yield at, value


def test_what_is_left_out_has_its_default() -> None:
    whole = whole_of(SMALL)
    assert whole["state_dir"] == "/etc/farshore/var"
    own = whole["sites"]["east"]["broker"]
    assert (own["listen"], own["num_partitions"], own["authorizer_enable"]) == ("127.0.0.1:19092", 1, False)
    assert whole["sites"]["west"]["security"]["tls_version_min"] == "TLSv1.2"
    assert "ca_file" not in whole["sites"]["west"]["security"], "it has no default"
    (link,) = whole["links"]
    assert (link["priority"], link["groups"], link["pins"]) == ("normal", [], ["flights:3"])
    assert (whole["monitor"]["listen"], whole["audit"]["master"]) == ("127.0.0.1:9600", "local[*]")
    large = whole_of(LARGE.replace('properties_file = "client.properties"', 'protocol = "SSL"'))
    assert large["sites"]["east"]["cluster"]["replica_lag_time_max_ms"] == 30_000


def told_of_secrets(folder: Path, command: str, form: str) -> Result:
    (folder / "farshore.toml").write_text(SECRETS)
    options = ["--config", str(folder / "farshore.toml")]
    done = CliRunner(env={"COLUMNS": "1000"}).invoke(cli, [*options, "config", command, "-o", form])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize("command", ["show", "validate"])
def test_what_may_hold_a_secret_is_not_shown(command: str, form: str, tmp_path: Path) -> None:
    done = told_of_secrets(tmp_path, command, form)
    assert f"login.example/token?{HIDDEN}" in done.output
    assert SECRET not in done.output


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_what_is_hidden_is_shown_to_be_there(form: str, tmp_path: Path) -> None:
    done = told_of_secrets(tmp_path, "show", form)
    told = tomllib.loads(done.stdout) if form == "table" else yaml.safe_load(done.stdout)
    security = told["sites"]["east" if form == "table" else 0]["security"]
    assert security["password_command"] == ["vault", HIDDEN, HIDDEN]
    assert security["key_password_command"] == ["open", HIDDEN]
    assert security["token_endpoint"] == f"https://login.example/token?{HIDDEN}"
    assert told["failover"]["freeze_hook"] == ["curl", HIDDEN, HIDDEN]
    assert told["monitor"]["token_command"] == ["token", HIDDEN]


def test_every_list_of_words_is_harmless_or_among_the_secrets() -> None:
    """What hides is the end of a key: whoever adds one that may hold a secret, and ends otherwise, has to hide it."""
    known = [(table, key) for table in tables(Table) if not table.__subclasses__() for key in table.model_fields]
    lists = {(table.__name__, key) for table, key in known if has_words(table.model_fields[key].annotation)}
    given = [(type(table).__name__, key, value) for table in below(parse(SECRETS, FILE).model) for key, value in table]
    secret = {(table, key) for table, key, value in given if is_list_with_secret(value)}
    assert {key for _, key in lists} >= HARMLESS
    assert {(table, key) for table, key in lists if key not in HARMLESS} == secret


def has_words(annotation: object) -> bool:
    """Whether it is, or may be, a list of texts."""
    inner = get_args(annotation)
    if get_origin(annotation) is tuple and inner[-1] is Ellipsis:
        return inner[0] is str or (get_origin(inner[0]) is Annotated and get_args(inner[0])[0] is str)
    return any(has_words(each) for each in inner)


def is_list_with_secret(value: object) -> bool:
    """Behind its first word, which is shown."""
    return isinstance(value, tuple) and any(isinstance(each, str) and SECRET in each for each in value[1:])


def below(table: Table) -> Iterator[Table]:
    yield table
    for _, value in table:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
        for each in inner:
            if isinstance(each, Table):
                yield from below(each)


def test_every_key_that_is_about_a_secret_says_where_that_is() -> None:
    """A key that holds one itself would be shown: whoever adds one has to hide it."""
    about = {key for table in tables(Table) for key in table.model_fields if is_about_a_secret(key)}
    assert len(about) >= 15
    known = ("_file", "_env", "_command", "token_endpoint", "token_scope", "token_aws_region", "token_aws_profile")
    assert [key for key in sorted(about) if not key.endswith(known)] == []
    assert FileModel in tables(Table)


def is_about_a_secret(key: str) -> bool:
    return any(word in key for word in ("password", "secret", "token", "credential", "key_"))


def tables(kind: type[Table]) -> set[type[Table]]:
    below = kind.__subclasses__()
    return {*below, *(deeper for each in below for deeper in tables(each))}
