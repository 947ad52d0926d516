"""Who is let in where metrics are shown, as farshore.toml says it, and what a broker shows that runs by it."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.base.address import Address
from broker.base.server_tls import ClientAuth
from deploy.cli.root import cli
from deploy.config import parse
from deploy.errors import ConfigError
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
SITE = '[sites.east]\nbootstrap_servers = "127.0.0.1:9092"\n[sites.east.broker]\ndata_dir = "east"\n'
METRICS = '[sites.east.broker.metrics]\nlisten = "0.0.0.0:9701"\n'
CLUSTER = """
[sites.north]
bootstrap_servers = "127.0.0.1:9092"
[sites.north.cluster]
zookeeper = "127.0.0.1:2181"
[[sites.north.brokers]]
node_id = 1
listen = "127.0.0.1:9092"
data_dir = "one"
[sites.north.brokers.metrics]
listen = "0.0.0.0:9701"
token_env = "TOKEN"
[[sites.north.brokers]]
node_id = 2
listen = "127.0.0.1:9093"
data_dir = "two"
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SITE + METRICS, "sites.east.broker.metrics.listen: 0.0.0.0:9701 is no address of this machine alone"),
        (SITE + '[monitor]\nlisten = "10.0.0.7:9600"\n', "monitor.listen: 10.0.0.7:9600 is no address of this machine"),
        (SITE + METRICS + 'certificate_file = "a.pem"\n', "would show metrics to everybody"),
        (CLUSTER.replace('token_env = "TOKEN"\n', ""), "sites.north.brokers[0] (node_id 1).metrics.listen: "),
        (SITE + METRICS + 'client_ca_file = "a.pem"\n', "certificate_file is missing: client_ca_file is of no use"),
        (SITE + METRICS + 'token_file = "a"\ntoken_env = "A"\n', "token_file and token_env are both there"),
        (SITE + METRICS + 'token = "secret"\n', "metrics.token: there is no such key"),
    ],
)
def test_what_would_be_shown_to_everybody_or_to_nobody_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, tmp_path / "farshore.toml")
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_refusal_says_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"listen on 127\.0\.0\.1, or give a token"):
        parse(SITE + METRICS, tmp_path / "farshore.toml")


def test_paths_are_from_the_folder_of_the_file(tmp_path: Path) -> None:
    files = 'certificate_file = "a.pem"\nkey_file = "a.key"\nclient_ca_file = "ca.pem"\ntoken_file = "token"\n'
    text = SITE + METRICS + files + "[monitor]\n" + files
    configuration = parse(text, tmp_path / "farshore.toml")
    for face in (configuration.broker_metrics("east"), configuration.monitor_face(Address("0.0.0.0", 9600))):
        assert face is not None
        assert face.tls is not None
        assert face.tls.files() == (tmp_path / "a.pem", tmp_path / "a.key", tmp_path / "ca.pem")
        assert face.tls.client_auth is ClientAuth.REQUIRED
        assert face.token is not None
        assert face.token.file == tmp_path / "token"


def test_each_broker_of_a_cluster_has_its_own() -> None:
    configuration = parse(CLUSTER, Path("farshore.toml"))
    one = configuration.broker_metrics("north", 1)
    assert one is not None
    assert (one.listen, one.token and one.token.environment) == (Address("0.0.0.0", 9701), "TOKEN")
    assert configuration.broker_metrics("north", 2) is None
    assert configuration.broker_config("north", 1).node_id == 1


def test_the_monitor_is_refused_where_its_option_would_show_all_to_everybody(tmp_path: Path) -> None:
    file = tmp_path / "farshore.toml"
    file.write_text(SITE)
    done = CliRunner().invoke(cli, ["--config", str(file), "monitor", "run", "--listen", "0.0.0.0:9600"])
    assert done.exit_code == 1, done.output
    assert "0.0.0.0:9600 is no address of this machine alone" in " ".join(done.output.split())
    assert "docs/security.md" in done.output


async def test_a_broker_shows_what_it_counts_to_who_has_the_token(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    file = tmp_path / "farshore.toml"
    (tmp_path / "token").write_text("secret")
    shown = f'[sites.east.broker.metrics]\nlisten = "127.0.0.1:{metrics}"\ntoken_file = "token"\n'
    file.write_text(SITE.replace("9092", str(port)) + shown)
    words = ["-m", "deploy.cli", "--config", str(file), "broker", "run", "--site", "east"]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert (await process.stderr.readline()).startswith(b"broker 1 of cluster ")
            said = (await process.stderr.readline()).decode()
        url = f"http://127.0.0.1:{metrics}/metrics"
        assert said == f"metrics on {url}\n"

        def read(token: str) -> str:
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request) as answer:
                return str(answer.read().decode())

        assert "farshore_broker_connections 0.0" in await asyncio.to_thread(read, "secret")
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            await asyncio.to_thread(read, "other")
        refused.value.close()
    finally:
        process.terminate()
        await process.wait()
        await process.stderr.read()
    assert process.returncode == 0
