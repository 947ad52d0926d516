"""farshore.toml: what it means, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode, exit_code_of
from deploy.config import FileContext, load, parse
from deploy.effective import effective_configuration
from deploy.errors import ConfigError

FILE = Path("/etc/farshore/farshore.toml")
SITES = """
[sites.east]
bootstrap_servers = "127.0.0.1:19092"
[sites.east.broker]
data_dir = "var/east"
num_partitions = 3
[sites.west]
bootstrap_servers = "127.0.0.1:29092,127.0.0.1:29093"
address_map = { "kafka-1:9092" = "10.0.0.7:9092" }
"""
LINK = """
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights", "orders-.*"]
topic_names = "same"
groups = [".*"]
"""


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    assert str(FILE) in str(caught.value)
    assert caught.value.hint
    assert exit_code_of(caught.value) == 2
    return str(caught.value)


def test_the_file_of_the_readme() -> None:
    configuration = parse(SITES + LINK, FILE)
    link = configuration.link(None)
    assert (link.source.name, link.target.name, link.shared_targets) == ("east", "west", False)
    assert link.selects_topic("orders-2013")
    assert configuration.site("west").address_map == {"kafka-1:9092": "10.0.0.7:9092"}
    assert configuration.state_dir == FILE.parent / "var"


def test_a_broker_listens_where_its_site_is_reached() -> None:
    broker = parse(SITES, FILE).broker_config("east")
    assert (broker.listen_host, broker.listen_port) == ("127.0.0.1", 19092)
    assert broker.data_dir == FILE.parent / "var/east"
    assert broker.num_partitions == 3
    text = SITES.replace('data_dir = "var/east"', 'data_dir = "/d"\nlisten = "0.0.0.0:9092"\nadvertised = "east:9092"')
    broker = parse(text, FILE).broker_config("east")
    assert (broker.listen_host, broker.advertised_host, broker.advertised_port) == ("0.0.0.0", "east", 9092)
    assert broker.data_dir == Path("/d")


def test_a_broker_may_have_several_listeners_and_then_has_no_listen() -> None:
    table = 'data_dir = "/d"\nlisteners = ["IN://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9093"]\n'
    named = f'{table}listener_security_protocol_map = {{ IN = "PLAINTEXT" }}'
    broker = parse(SITES.replace('data_dir = "var/east"', named), FILE).broker_config("east")
    assert [str(each) for each in broker.client_listeners()] == ["IN://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9093"]
    for lines, told in (
        (table, "sites.east.broker: listener_security_protocol_map lacks IN"),
        (f'{named}\nlisten = "127.0.0.1:1"', "sites.east.broker: listen and listeners are both there"),
    ):
        assert told in refused(SITES.replace('data_dir = "var/east"', lines))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('listen = "0.0.0.0:9092"', "sites.east.broker.advertised: is missing; listen 0.0.0.0 is every interface"),
        ('listen = "[::]:9092"', "sites.east.broker.advertised: is missing; listen :: is every interface"),
        ('listen = "10.0.0.1:9092"\nadvertised = "0.0.0.0:9092"', "advertised 0.0.0.0 is no address"),
    ],
)
def test_an_address_that_no_client_can_dial_is_not_advertised(lines: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(SITES.replace('data_dir = "var/east"', f'data_dir = "/d"\n{lines}'), FILE)


def test_names_are_asked_for_with_the_known_ones() -> None:
    configuration = parse(SITES + LINK, FILE)
    with pytest.raises(click.UsageError, match="its sites: east, west"):
        configuration.site("north")
    with pytest.raises(click.UsageError, match="its links: east-west"):
        configuration.link("west-east")
    with pytest.raises(click.UsageError, match=r"no \[sites.west.broker\] table"):
        configuration.broker_config("west")
    with pytest.raises(click.UsageError, match=r"links in .*: none"):
        parse(SITES, FILE).link(None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('source = "east"', 'source = "eest"'), "links[0] (east-west).source: no site is called 'eest'"),
        (('target = "west"', 'target = "east"'), "links[0] (east-west).target: a link joins two sites"),
        (('"orders-.*"', '"orders-("'), "links[0].topics[1]: 'orders-(' is no regular expression"),
        (("groups =", "gruops ="), "links[0].gruops: there is no such key"),
        (('name = "east-west"', 'name = "a b"'), "links[0].name: use 1 to 64 letters"),
        (('"127.0.0.1:19092"', '"127.0.0.1"'), "sites.east.bootstrap_servers: '127.0.0.1' is no address"),
        (('topic_names = "same"', 'topic_names = "renamed"'), "links[0].topic_names: "),
        (('data_dir = "var/east"', ""), "sites.east.broker.data_dir: is missing; add it"),
        (("[sites.east]", "[sites.'a.b']"), "sites.a.b: use 1 to 64 letters"),
        (("[sites.west]", "[sites.west"), "is not TOML"),
        (("[[links]]", "[links]"), "links: write [[links]], with two brackets"),
        (('["flights", "orders-.*"]', '"flights"'), 'links[0].topics: write a list, for example ["a", "b"]'),
        (("[[links]]", "[monitor]\nlisten = 9600\n[[links]]"), "monitor.listen: "),
        (('"127.0.0.1:19092"', '"127.0.0.1:29093"'), "sites.west.bootstrap_servers: 127.0.0.1:29093 is site east's"),
        (("num_partitions = 3", "node_id = 99999999999"), "sites.east.broker.node_id: "),
    ],
)
def test_what_is_wrong_is_named(change: tuple[str, str], words: str) -> None:
    text = SITES + LINK
    assert change[0] in text
    assert words in refused(text.replace(*change))


def test_a_wrong_element_is_one_problem() -> None:
    told = refused((SITES + LINK).replace('["flights", "orders-.*"]', '["orders-("]'))
    assert "\n" not in told
    assert "links[0].topics[0]: " in told


def test_every_problem_is_named_at_once() -> None:
    told = refused(SITES + LINK.replace('"east"', '"eest"') + LINK)
    assert "no site is called 'eest'" in told
    assert "another link has this name" in told


def test_a_broker_of_a_site_with_several_addresses_says_where_it_listens() -> None:
    text = SITES + '[sites.west.broker]\ndata_dir = "var/west"\n'
    assert "sites.west.broker.listen: is missing" in refused(text)


def test_two_brokers_do_not_share_a_folder() -> None:
    text = SITES + '[sites.west.broker]\ndata_dir = "var/../var/east"\nlisten = "127.0.0.1:29092"\n'
    assert "site east has the same folder" in refused(text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load(tmp_path / "farshore.toml")


def test_the_file_is_read_when_something_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "farshore.toml"
    context = FileContext(file)
    file.write_text(SITES + LINK)
    assert [link.name for link in context.links()] == ["east-west"]
    assert context.state_dir == tmp_path / "var"


def test_defaults_of_commands() -> None:
    text = SITES + '[audit]\njars = ["jars/connector.jar"]\n[monitor]\nlisten = "127.0.0.1:9700"\n'
    defaults = parse(text, FILE).option_defaults()
    assert defaults["monitor"] == {"run": {"listen": "127.0.0.1:9700"}}
    jars = {"jars": [str(FILE.parent / "jars/connector.jar")]}
    assert defaults["audit"] == {"run": jars, "watch": jars, "digest": jars, "compare": jars}


@pytest.mark.parametrize("command", ["monitor", "audit"])
def test_defaults_name_options_that_exist(command: str) -> None:
    text = SITES + '[audit]\nmaster = "m"\njars = ["a.jar"]\n[monitor]\nlisten = "127.0.0.1:9700"\n'
    group = cli.get_command(click.Context(cli), command)
    assert isinstance(group, click.Group)
    for name, defaults in parse(text, FILE).option_defaults()[command].items():
        run = group.get_command(click.Context(group), name)
        assert run is not None
        assert set(defaults) <= {option.name for option in run.params}


CLUSTER = """
[sites.north]
bootstrap_servers = "127.0.0.1:39092,127.0.0.1:39093"
address_map = { "127.0.0.1:39093" = "10.0.0.7:39093" }
[sites.north.cluster]
zookeeper = "127.0.0.1:2181,[::1]:2182/farshore/north"
zookeeper_session_timeout_ms = 6000
[[sites.north.brokers]]
node_id = 1
listen = "127.0.0.1:39092"
inter_broker_listen = "127.0.0.2:39094"
data_dir = "var/north-1"
rack = "a"
[[sites.north.brokers]]
node_id = 2
listen = "0.0.0.0:39093"
advertised = "127.0.0.1:39093"
data_dir = "var/north-2"
"""


def test_a_cluster_has_a_configuration_for_each_broker() -> None:
    configuration = parse(SITES + CLUSTER, FILE)
    one, two = (configuration.broker_config("north", node_id) for node_id in (1, 2))
    assert (one.node_id, one.rack, one.listen_port, one.data_dir) == (1, "a", 39092, FILE.parent / "var/north-1")
    assert (two.node_id, two.rack, two.advertised_host) == (2, None, "127.0.0.1")
    assert one.zookeeper == two.zookeeper == "127.0.0.1:2181,[::1]:2182/farshore/north"
    assert one.zookeeper_session_timeout_ms == 6000
    assert (one.inter_broker_listen_host, one.inter_broker_listen_port) == ("127.0.0.2", 39094)
    assert (two.inter_broker_listen_host, two.inter_broker_listen_port) == (None, 0)
    with pytest.raises(click.UsageError, match="--node-id: 1, 2"):
        configuration.broker_config("north")
    with pytest.raises(click.UsageError, match="no broker 3; its brokers: 1, 2"):
        configuration.broker_config("north", 3)
    assert (one.offsets_topic_num_partitions, one.transaction_state_log_replication_factor) == (50, 2), "of 2 brokers"
    assert dict(one.address_map) == {"127.0.0.1:39093": "10.0.0.7:39093"}, "brokers dial each other by it, too"
    alone = configuration.broker_config("east", 1)
    assert (alone.zookeeper, alone.offsets_topic_num_partitions) == (None, 1)
    with pytest.raises(click.UsageError, match="leave out --node-id"):
        configuration.broker_config("east", 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[sites.north.cluster]", "[sites.north.broker]\ndata_dir = 'd'\n[sites.north.cluster]"), "has brokers too"),
        (('zookeeper = "127.0.0.1:2181,[::1]:2182/farshore/north"', ""), "sites.north.cluster.zookeeper: is missing"),
        (("2182/farshore/north", "2182/"), "write a chroot as /NAME"),
        (("2182/farshore/north", "2182/../north"), "write a chroot as /NAME"),
        (("127.0.0.1:2181,", "127.0.0.1:2181/farshore/north,"), "stands once, behind the last"),
        (("127.0.0.1:2181,", "127.0.0.1,"), "sites.north.cluster.zookeeper: "),
        (("node_id = 2", "node_id = 1"), "sites.north.brokers[1] (node_id 1).node_id: another broker has this node id"),
        (
            ('"0.0.0.0:39093"', '"127.0.0.1:39092"'),
            "sites.north.brokers[1] (node_id 2).listen: another listener has this address",
        ),
        (('"127.0.0.2:39094"', '"127.0.0.1:39092"'), "inter_broker_listen: another listener has this address"),
        (('"127.0.0.2:39094"', '"0.0.0.0:39094"'), "inter_broker_listen 0.0.0.0 cannot be told to brokers"),
        (
            ('"var/north-2"', '"var/north-1"'),
            "sites.north.brokers[1] (node_id 2).data_dir: site north has the same folder",
        ),
        (('"var/north-2"', '"var/north-1/b"'), "var/north-1, of site north, is in it or around it"),
        (('"var/north-1"', '"var/north-2/b"'), "var/north-2/b, of site north, is in it or around it"),
        (('"var/north-2"', '""'), "sites.north.brokers[1] (node_id 2).data_dir: a path cannot be empty"),
        (("node_id = 2", "node_id = 2\nracks = 'a'"), "sites.north.brokers[1] (node_id 2).racks: there is no such key"),
        (("node_id = 2", ""), "sites.north.brokers[1].node_id: is missing"),
        (("node_id = 2", "node_id = 'b'"), "sites.north.brokers[1].node_id: "),
    ],
)
def test_what_a_cluster_cannot_be(change: tuple[str, str], told: str) -> None:
    assert change[0] in CLUSTER
    assert told in refused(SITES + CLUSTER.replace(*change))


def test_every_interface_is_no_address_and_the_line_to_add_is_said() -> None:
    without = CLUSTER.replace('advertised = "127.0.0.1:39093"\n', "")
    where = "sites.north.brokers[1] (node_id 2).advertised: is missing; listen 0.0.0.0 is every interface"
    told = refused(SITES + without)
    assert where in told
    assert 'add advertised = "127.0.0.1:39093", as bootstrap_servers has it' in told
    told = refused(SITES + without.replace('"0.0.0.0:39093"', '"[::]:9999"'))
    assert 'add advertised = "HOST:9999", with a HOST that they know' in told


def test_brokers_and_their_cluster_want_each_other() -> None:
    alone = CLUSTER[: CLUSTER.index("[[sites")]
    assert "sites.north.brokers: is missing" in refused(SITES + alone)
    without = CLUSTER.replace("[sites.north.cluster]\n", "").replace("zookeeper", "# zookeeper")
    assert "sites.north.cluster: is missing" in refused(SITES + without)


def test_whom_a_freeze_by_acls_denies_is_named_as_kafka_names_principals() -> None:
    text = SITES.replace("[sites.west]\n", '[sites.west]\nfreeze_principals = ["User:*", "User:CN=a,OU=b"]\n')
    assert parse(text, FILE).site("west").freeze_principals == ("User:*", "User:CN=a,OU=b")
    assert parse(SITES, FILE).site("west").freeze_principals == ()
    assert "sites.west.freeze_principals" in refused(text.replace("User:*", "shop"))
    own = SITES.replace("[sites.east]\n", '[sites.east]\nfreeze_principals = ["User:*"]\n')
    assert "sites.east.freeze_principals: farshore's own brokers freeze by their role; take it out" in refused(own)


def test_acls_are_carried_where_the_file_says_so() -> None:
    link = parse(SITES + LINK, FILE).link(None)
    assert (link.sync_acls, link.acl_principals) == (False, ())
    more = 'sync_acls = true\nacl_principals = { "User:b" = "User:b2", "User:a" = "User:a2" }\n'
    link = parse(SITES + LINK + more, FILE).link(None)
    assert (link.sync_acls, link.acl_principals) == (True, (("User:a", "User:a2"), ("User:b", "User:b2")))


@pytest.mark.parametrize("pair", ['"User:a" = "User:*"', '"User:*" = "User:a"', '"a" = "User:a"'])
def test_principals_of_acls_are_somebodys_names(pair: str) -> None:
    assert "acl_principals" in refused(f"{SITES}{LINK}acl_principals = {{ {pair} }}\n")


def test_a_file_whose_freeze_nothing_undoes_is_read_and_that_is_a_finding_of_it() -> None:
    """No mirror, monitor or broker was started with it any more, and nothing failed over; none of these freezes."""
    frozen = parse(SITES + LINK + '[failover]\nfreeze_hook = ["stop"]\n', FILE)
    (found,) = effective_configuration(frozen).findings
    assert found.startswith("failover: freeze_hook has no thaw_hook")
    undone = parse(SITES + LINK + '[failover]\nfreeze_hook = ["stop"]\nthaw_hook = ["true"]\n', FILE)
    assert effective_configuration(undone).findings == ()


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("switchover --link east-west --yes", True),
        ("switchover --link east-west --no-freeze --dry-run", True),
        ("failback --link east-west --yes", True),
        ("failback --from east --to west --dry-run", True),
        ("config validate", False),
        ("link list", False),
    ],
)
def test_only_who_would_freeze_is_refused_for_that_before_a_site_is_called(
    tmp_path: Path, line: str, *, is_refused: bool
) -> None:
    file = tmp_path / "farshore.toml"
    file.write_text(SITES + LINK + '[failover]\nfreeze_hook = ["stop"]\n')
    done = CliRunner().invoke(cli, ["--config", str(file), *line.split()])
    said = " ".join(done.output.split())
    if is_refused:
        assert (done.exit_code, "none is begun" in said) == (ExitCode.USAGE, True), said
        assert 'thaw_hook = ["true"]' in said
    else:
        assert done.exit_code == ExitCode.DONE, said
        assert ("none is begun" in said) == (line == "config validate")
