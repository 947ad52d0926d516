"""The root command: finding commands, the file's option, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli.lines import WIDTH
from deploy.cli.root import COMMANDS, CommandPlace, cli, config_option_first
from tests.deploy.cli.commands import command_of, leaves

FILE = """
[sites.east]
bootstrap_servers = "127.0.0.1:19092"
[sites.east.broker]
data_dir = "var/east"
[sites.west]
bootstrap_servers = "127.0.0.1:29092"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = [".*"]
"""


ROOT = Path(__file__).parents[3]
TIMES = ("timeout_ms", "duration_ms")
TIME_OPTIONS = ("--timeout", "--duration")
CLUSTER_LOOKS = ("brokers", "controller")
"""Parts of what `cluster describe` tells."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "farshore.toml"
    path.write_text(FILE)
    return path


def farshore(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "deploy.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_is_there(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    answer = CliRunner().invoke(cli, [name, "--help"])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("name", [name for name in COMMANDS if isinstance(command_of(name), click.Group)])
def test_the_short_help_of_a_group_names_what_is_in_it(name: str) -> None:
    group = command_of(name)
    assert isinstance(group, click.Group)
    if name != "cluster" and len(group.commands) == 1:
        return
    said = COMMANDS[name].help.lower()
    assert [verb for verb in group.commands if verb not in said and verb not in CLUSTER_LOOKS] == []


@pytest.mark.parametrize("words", sorted(leaves()))
def test_a_time_is_given_in_the_same_forms_everywhere(words: tuple[str, ...]) -> None:
    times = [option for option in leaves()[words].params if option.name in TIMES]
    assert {str(option.name).removesuffix("_ms") for option in times} == {
        str(option.opts[0]).strip("-") for option in leaves()[words].params if option.opts[0] in TIME_OPTIONS
    }
    for option in times:
        context = click.Context(leaves()[words])
        converted = [option.type.convert(text, option, context) for text in ("30", "30s", "2m")]
        assert converted == [30_000, 30_000, 120_000]
        assert option.make_metavar(context) == "SECONDS|30s|2m"


def test_an_interrupt_while_a_command_is_imported_is_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted_import.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "status", CommandPlace("interrupted_import", "status", ""))
    answer = CliRunner().invoke(cli, ["status"])
    assert (answer.exit_code, answer.output) == (130, "")


def test_help_lists_all_and_imports_nothing_heavy() -> None:
    program = (
        "import sys, deploy.cli.root as c\n"
        "try:\n    c.cli(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pydantic', 'rich', 'asyncio', 'uvloop', 'aiokafka', 'pyspark', 'yaml', 'broker', 'mirror'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, place in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert place.help in done.stdout


def test_validate_prints_the_effective_configuration(file: Path) -> None:
    answer = CliRunner().invoke(cli, ["--config", str(file), "config", "validate", "-o", "json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["schema_version"] == 1
    assert [site["site"] for site in told["sites"]] == ["east", "west"]
    assert told["sites"][0]["broker_listen"] == "127.0.0.1:19092"
    assert told["links"][0]["shared_targets"] is False
    assert told["findings"] == ["link east-west carries no group: it has no groups"]


@pytest.mark.parametrize("output", ["table", "yaml"])
def test_validate_for_people(file: Path, output: str) -> None:
    answer = CliRunner().invoke(cli, ["config", "validate", "--config", str(file), "-o", output])
    assert answer.exit_code == 0, answer.output
    assert "east-west" in answer.stdout


def test_validate_shows_who_logs_in_and_which_acls_follow(tmp_path: Path) -> None:
    path = tmp_path / "farshore.toml"
    path.write_text("""
state_dir = "state"
[sites.east]
bootstrap_servers = "127.0.0.1:9092"
[sites.east.security]
protocol = "SASL_PLAINTEXT"
mechanism = "GSSAPI"
kerberos_service_name = "kafka"
principal = "mirror@EXAMPLE.COM"
keytab_file = "mirror.keytab"
[sites.west]
bootstrap_servers = "127.0.0.1:9093"
[[links]]
name = "east-west"
source = "east"
target = "west"
topics = ["flights"]
sync_acls = true
acl_principals = { "User:shop" = "User:west-shop" }
""")
    said = ["--config", str(path), "config", "validate"]
    told = json.loads(CliRunner().invoke(cli, [*said, "-o", "json"]).stdout)
    assert [site["logs_in_as"] for site in told["sites"]] == ["principal mirror@EXAMPLE.COM", None]
    (link,) = told["links"]
    assert (link["sync_acls"], link["acl_principals"]) == (True, {"User:shop": "User:west-shop"})
    assert "principal mirror@EXAMPLE.COM" in CliRunner().invoke(cli, said).stdout


CLUSTER = """
[sites.east]
bootstrap_servers = "127.0.0.1:9092"
[sites.east.cluster]
zookeeper = "127.0.0.1:2181/east"
[[sites.east.brokers]]
node_id = 1
listen = "127.0.0.1:9092"
inter_broker_listen = "127.0.0.1:9192"
data_dir = "one"
rack = "a"
[[sites.east.brokers]]
node_id = 2
listen = "127.0.0.1:9093"
data_dir = "two"
"""


def test_validate_shows_each_broker_of_a_cluster(file: Path) -> None:
    file.write_text(CLUSTER)
    answer = CliRunner().invoke(cli, ["--config", str(file), "config", "validate", "-o", "json"])
    assert answer.exit_code == 0, answer.output
    (site,) = json.loads(answer.stdout)["sites"]
    assert site["zookeeper"] == "127.0.0.1:2181/east"
    assert site["broker_listen"] is None
    first, second = site["brokers"]
    assert (first["node_id"], first["listen"], first["rack"]) == (1, "127.0.0.1:9092", "a")
    assert (first["inter_broker_listen"], second["inter_broker_listen"]) == ("127.0.0.1:9192", None)
    assert [Path(each["data_dir"]).name for each in (first, second)] == ["one", "two"]
    shown = CliRunner().invoke(cli, ["--config", str(file), "config", "validate"])
    assert all(word in shown.stdout for word in ("2181/east", "9192", "9093", "two"))


def test_a_bad_file_is_one_line_and_a_hint(file: Path) -> None:
    file.write_text(FILE.replace('target = "west"', 'target = "wset"'))
    done = farshore("config", "validate", folder=file.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    told = done.stderr.splitlines()
    assert (
        told[0] == "error: farshore.toml: links[0] (east-west).target: no site is called 'wset'; the sites: east, west"
    )
    assert told[1].startswith("hint: ")
    assert len(told) == 2


def test_no_file_is_told_by_commands_that_need_one(tmp_path: Path) -> None:
    done = farshore("status", folder=tmp_path)
    assert done.returncode == 2
    assert "error: there is no configuration file farshore.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_command_is_usage() -> None:
    answer = CliRunner().invoke(cli, ["failovr"])
    assert answer.exit_code == 2
    assert "Did you mean 'failover'?" in answer.stderr


def test_no_process_leaves_its_memory_in_a_core_dump() -> None:
    program = """
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
sys.argv = ["farshore", "--version"]
from deploy.cli.root import main
try:
    main()
finally:
    print(resource.getrlimit(resource.RLIMIT_CORE) == (0, hard))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_version() -> None:
    answer = CliRunner().invoke(cli, ["--version"])
    assert answer.stdout.startswith("farshore 0.")


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["status", "--config", "a.toml"], ["--config", "a.toml", "status"]),
        (["status", "--config=a.toml"], ["--config=a.toml", "status"]),
        (["topic", "create", "--config", "retention.ms=-1"], ["topic", "create", "--config", "retention.ms=-1"]),
        (
            ["topic", "create", "--config", "retention.ms=-1", "--config", "f.toml"],
            ["--config", "f.toml", "topic", "create", "--config", "retention.ms=-1"],
        ),
        (["topic", "create", "--config", "retention.ms"], ["topic", "create", "--config", "retention.ms"]),
        (["demo", "--", "--config", "a.toml"], ["demo", "--", "--config", "a.toml"]),
        (["status", "--config"], ["status", "--config"]),
    ],
)
def test_the_file_may_be_named_anywhere(given: list[str], ordered: list[str]) -> None:
    assert config_option_first(given) == ordered


WRONG_USES = (
    ("drill", "--to", "nowhere"),
    ("status", "--link", "west-east"),
    ("topic", "list", "--site", "nowhere"),
    ("failover", "--to-datetime", "a day of which nobody knows when it was", "--allow-data-loss"),
    ("nothing-that-farshore-knows-of-and-that-is-as-wide-as-a-terminal-by-itself", "--all"),
    ("--an-option-that-farshore-does-not-have-and-that-is-wide", "status"),
    ("status", "--until", "neither healthy nor a lag of some seconds that can be read as one"),
)


@pytest.mark.parametrize("arguments", WRONG_USES, ids=lambda arguments: arguments[0])
def test_what_is_said_of_a_wrong_use_fits_a_terminal_and_is_one_line_for_programs(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(file.parent)
    said = []
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments), prog_name="farshore")
        assert ended.value.code == 2
        said.append(capsys.readouterr().err)
    for_programs, for_people = said
    assert len(for_programs.split("Error: ")[1].splitlines()) == 1
    assert for_people.split() == for_programs.split()
    assert max(map(len, for_people.splitlines())) <= WIDTH


def test_a_site_that_is_not_in_the_file_is_a_wrong_use_that_names_those_that_are(file: Path) -> None:
    for option in ("--to", "--from"):
        said = CliRunner().invoke(cli, ["--config", str(file), "drill", option, "nowhere"])
        assert said.exit_code == 2
        assert "has no site 'nowhere'; its sites: east, west" in said.stderr
