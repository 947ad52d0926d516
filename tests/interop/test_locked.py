"""Apache Kafka behind TLS and logins: every mechanism, and a link between two clusters that let nobody else in."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import AccessRefused, AuthenticationFailed, CertificateRefused, ClusterUnreachable, TlsRefused
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls, TokenEndpoint
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.client_properties import security_of_properties
from monitoring.audit.locked import kafka_options
from tests.chaos_runs.warm_commands import Said, warm_commands
from tests.classes import CACHE
from tests.forking import FARSHORE, start_farshore
from tests.interop.brokers import KEEPS_ALL
from tests.interop.locked import BETWEEN_RECORDS_S, PASSWORD, REAUTHENTICATE_MS, SCRAM, USER, LockedKafkaServer
from tests.interop.servers import ROOT, run_java, wait_until
from tests.interop.starting import start_process
from tests.interop.test_switchover import RECORDS, Cli, carried_over, fill
from tests.issuer import a_token as a_signed_token
from tests.ports import free_port
from tests.secrets_shown import CRASHES, LOGS_ALL, Places, files_in, own_records, python_path, shown
from tests.token_endpoint import SECRET as CLIENT_SECRET
from tests.token_endpoint import Endpoint, endpoint, given_out

QUICK = ClientLimits(bootstrap_timeout_ms=500)


@pytest.fixture(params=["kafka_39", "kafka_43"])
def locked(request: pytest.FixtureRequest) -> LockedKafkaServer:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, LockedKafkaServer)
    return server


def a_token() -> str:
    """An unsecured one (RFC 7519, section 6), as Kafka's validator takes it that is made for trials."""
    claims = {"sub": USER, "iat": time.time() - 5, "exp": time.time() + 600}
    parts = [{"alg": "none"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def login(folder: Path, mechanism: Mechanism, secret: str = PASSWORD) -> Sasl:
    (folder / "secret").write_text(f"{secret}\n")
    is_token = mechanism is Mechanism.OAUTHBEARER
    return Sasl(mechanism, "" if is_token else USER, Secret(file=folder / "secret"))


async def written_and_read(site: Site, topic: str, over_ms: int) -> tuple[int, list[bytes]]:
    """Records one after the other for so long -> how many, and what is read of them."""
    where = TopicPartition(topic, 0)
    read: list[bytes] = []
    count, ends_s = 0, time.monotonic() + over_ms / 1000
    async with Cluster(site) as cluster:
        assert not await create_topics(cluster, [NewTopic(topic, 1, configs=KEEPS_ALL)])
        while count == 0 or time.monotonic() < ends_s:
            await append(cluster, where, encode_batch([Record(0, 1_000, None, b"%d" % count)]))
            count += 1
            await asyncio.sleep(BETWEEN_RECORDS_S)
        end = (await log_end_offsets(cluster, [where]))[where]
        await scan_records(cluster, where, OffsetSpan(0, end), lambda record: read.append(bytes(record.value or b"")))
    return count, read


@pytest.mark.parametrize("mechanism", [each for each in Mechanism if each is not Mechanism.GSSAPI])
async def test_each_mechanism_logs_in_and_goes_on_when_its_session_ends(
    locked: LockedKafkaServer, mechanism: Mechanism, topic: str, tmp_path: Path
) -> None:
    secret = a_token() if mechanism is Mechanism.OAUTHBEARER else PASSWORD
    security = Security(Tls(locked.authority.certificate), login(tmp_path, mechanism, secret))
    site = Site("east", locked.at("LOCKED"), security=security)
    count, read = await written_and_read(site, topic[-40:], REAUTHENTICATE_MS * 5 // 4)
    # Where the machine is too slow to log in again in time, Kafka hangs up, and what `append` repeats comes twice.
    assert list(dict.fromkeys(read)) == [b"%d" % n for n in range(count)]


async def refused(site: Site) -> AccessRefused:
    """It is told at once: nobody is locked out by a client that tries again and again."""
    with pytest.raises(AccessRefused) as caught:
        async with Cluster(site):
            pass
    assert caught.value.hint
    assert not caught.value.retriable
    assert f"site {site.name} at " in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return caught.value


async def test_who_is_not_let_in_is_told_why(locked: LockedKafkaServer, tmp_path: Path) -> None:
    tls = Tls(locked.authority.certificate)
    wrong = Security(tls, login(tmp_path, Mechanism.SCRAM_SHA_256, "wrong"))
    failed = await refused(Site("east", locked.at("LOCKED"), security=wrong))
    assert isinstance(failed, AuthenticationFailed)
    assert f"user {USER}, by SCRAM-SHA-256" in str(failed)
    trusted_by_nobody = Security(Tls(), wrong.sasl)
    assert isinstance(await refused(Site("east", locked.at("LOCKED"), security=trusted_by_nobody)), CertificateRefused)
    other_name = await refused(Site("east", f"localhost:{locked.ports['LOCKED']}", security=Security(tls)))
    assert isinstance(other_name, CertificateRefused)
    assert "localhost" in str(other_name)
    assert isinstance(await refused(Site("east", locked.at("TLS"), security=Security(tls))), CertificateRefused)
    assert isinstance(await refused(Site("east", locked.at("TLS"))), TlsRefused)
    with pytest.raises(ClusterUnreachable, match="is it a listener for SSL"):
        async with Cluster(Site("east", locked.bootstrap, security=Security(tls)), limits=QUICK):
            pass


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
async def test_each_mechanism_logs_in_without_tls(
    locked: LockedKafkaServer, mechanism: str, topic: str, tmp_path: Path
) -> None:
    """By OAUTHBEARER: below, with Java. By GSSAPI: test_kerberos.py."""
    site = Site("east", locked.at("WORDS"), security=Security(None, login(tmp_path, Mechanism(mechanism))))
    assert await written_and_read(site, topic[-40:], 0) == (1, [b"0"])


async def test_a_clients_certificate(locked: LockedKafkaServer, topic: str) -> None:
    own = Tls(locked.authority.certificate, locked.client.certificate, locked.client.key)
    count, read = await written_and_read(Site("east", locked.at("TLS"), security=Security(own)), topic[-40:], 0)
    assert (count, read) == (1, [b"0"])


def keytool_truststore(folder: Path, certificate: Path) -> Path:
    """As Java's own tool makes one: Java trusts only what is marked so."""
    made = folder / "trusted.p12"
    words = f"-importcert -noprompt -alias ca -file {certificate} -keystore {made} -storepass {STORE_PASSWORD}"
    subprocess.run(["keytool", *words.split()], check=True, capture_output=True)
    return made


def one_line(pem: Path) -> str:
    return " ".join(pem.read_text().split())


def properties_of(server: LockedKafkaServer, which: str, folder: Path) -> tuple[str, dict[str, str]]:
    """A listener, and what a client of Kafka's is told to reach it."""
    ca, own = server.authority.certificate, server.client
    if which == "login, and PEM in the file":
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return "LOCKED", {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f"{module} required username=\"{USER}\" \\\n  password='{PASSWORD}';",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": one_line(ca),
        }
    if which == "PKCS #12":
        return "TLS", {
            "security.protocol": "ssl",
            "ssl.truststore.location": str(keytool_truststore(folder, ca)),
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(own.pkcs12(STORE_PASSWORD)),
            "ssl.keystore.password": STORE_PASSWORD,
        }
    return "TLS", {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": one_line(own.certificate),
        "ssl.keystore.key": own.key.read_text().replace("\n", "\\n\\\n"),
    }


@pytest.mark.parametrize("which", ["login, and PEM in the file", "PKCS #12", "own PEM in the file"])
async def test_what_kafkas_tools_are_told_farshore_is_told_too(
    locked: LockedKafkaServer, which: str, topic: str, tmp_path: Path
) -> None:
    """The same file, taken by both."""
    listener, given = properties_of(locked, which, tmp_path)
    file = tmp_path / "client.properties"
    file.write_text("# as whom\n" + "".join(f"{name} = {value}\n" for name, value in given.items()))
    site = Site("east", locked.at(listener), security=security_of_properties(file))
    assert await written_and_read(site, topic[-40:], 0) == (1, [b"0"])
    tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", locked.at(listener), "--list")
    listed = await asyncio.to_thread(run_java, locked.version, *tool, "--command-config", str(file))
    assert topic[-40:] in listed.split()


async def test_java_takes_the_token_of_a_file_as_the_audit_tells_it(
    locked: LockedKafkaServer, topic: str, tmp_path: Path
) -> None:
    site = Site("east", locked.at("WORDS"), security=Security(None, login(tmp_path, Mechanism.OAUTHBEARER, TOKEN)))
    assert await written_and_read(site, topic[-40:], 0) == (1, [b"0"])
    options = kafka_options(site.security)
    made = tmp_path / "audit.properties"
    made.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in options.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={options['kafka.sasl.oauthbearer.token.endpoint.url']}"
    tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", locked.at("WORDS"), "--list")
    words = (*tool, "--command-config", str(made))
    listed = await asyncio.to_thread(run_java, locked.version, *words, options=[allowed])
    assert topic[-40:] in listed.split()


STORE_PASSWORD = "canary-secret-9Rz"
QUERY = "canary-query-7Kd"
EAST_PROPERTIES = """\
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={ca}
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{user}" password="{password}";
"""
SITES = """\
[sites.east]
bootstrap_servers = "{east}"
[sites.east.security]
properties_file = "secret-east.properties"
[sites.west]
bootstrap_servers = "{west}"
[sites.west.security]
protocol = "SASL_SSL"
ca_file = "{ca}"
ca_password_file = "secret-store"
certificate_file = "{certificate}"
key_password_command = ["cat", "{folder}/secret-store"]
mechanism = "OAUTHBEARER"
token_endpoint = "{endpoint.url}?key={query}"
token_ca_file = "{endpoint.ca_file}"
token_scope = "{endpoint.scope}"
client_id = "{endpoint.client_id}"
password_file = "secret"
"""


AS_JAVA_ASKS = base64.b64encode(b"far%3Ashore:hunter2+%26%25").decode()
TOKEN = a_signed_token(exp=int(time.time()) + 3600)


@pytest.fixture
def issuer(kafka_43: LockedKafkaServer, tmp_path: Path) -> Iterator[tuple[TokenEndpoint, type[Endpoint]]]:
    with endpoint(kafka_43.authority, tmp_path, 200, given_out(TOKEN)) as access:
        yield access


@pytest.fixture
def cli(
    kafka_39: LockedKafkaServer,
    kafka_43: LockedKafkaServer,
    issuer: tuple[TokenEndpoint, type[Endpoint]],
    topic: str,
    tmp_path: Path,
) -> Iterator[Cli]:
    """A link from a locked Kafka 3.9, by a file of properties, to a locked Kafka 4.3, by stores of PKCS #12 and a
    token of an endpoint, with a mirror that runs as long as the test.
    """
    name, group = topic.lower()[-40:], f"group-{topic.lower()[-6:]}"
    asyncio.run(fill(kafka_39.bootstrap, name, group))
    login = EAST_PROPERTIES.format(ca=kafka_39.authority.certificate, user=USER, password=PASSWORD)
    (tmp_path / "secret-east.properties").write_text(login)
    (tmp_path / "secret-store").write_text(STORE_PASSWORD)
    stores = (kafka_43.authority.pkcs12(STORE_PASSWORD), kafka_43.client.pkcs12(STORE_PASSWORD))
    file = SITES.format(
        east=kafka_39.at("LOCKED"),
        west=kafka_43.at("BOTH"),
        ca=stores[0],
        certificate=stores[1],
        folder=tmp_path,
        endpoint=issuer[0],
        query=QUERY,
    )
    link = f'[[links]]\nname = "{name}"\nsource = "east"\ntarget = "west"\ntopics = ["{name}"]\ngroups = ["{group}"]\n'
    (tmp_path / "farshore.toml").write_text(file + link)
    cli = Cli(tmp_path)
    environment = {**os.environ, "PYTHONPATH": python_path(tmp_path / "logging", LOGS_ALL)}
    with (tmp_path / "mirror.log").open("wb") as log:
        mirror = start_process(cli.argv("mirror run"), cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: carried_over(cli, group), 180, "the group to be carried over")
        yield cli
    finally:
        mirror.terminate()
        mirror.wait(60)


def ended_by_a_bug(cli: Cli, function: str, file: str) -> subprocess.CompletedProcess[str]:
    """A mirror that meets it at both sites."""
    crashing = python_path(cli.folder / f"crash in {function}", CRASHES.format(function=function, file=file))
    environment = {**os.environ, "PYTHONPATH": crashing}
    done = subprocess.run(
        cli.argv("mirror run"), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert f"in {function}" in done.stderr
    assert "a crash that was asked for" in done.stderr
    return done


def shown_by_the_monitor(cli: Cli) -> str:
    """Its page, when it has looked at the link."""
    port, pages = free_port(), [""]
    line = f"monitor run --listen 127.0.0.1:{port}"
    monitor = start_farshore(cli.argv(line)[len(FARSHORE) :], ROOT, cli.folder / "monitor.log")

    def has_looked() -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            pages.append(page.read().decode())
        return "farshore_link_observed_timestamp_seconds{" in pages[-1]

    try:
        wait_until(has_looked, 60, "the monitor to have looked at the link")
        return pages[-1]
    finally:
        monitor.terminate()
        monitor.wait(60)


def test_a_link_between_locked_clusters_is_switched_over(
    cli: Cli,
    kafka_39: LockedKafkaServer,
    kafka_43: LockedKafkaServer,
    issuer: tuple[TokenEndpoint, type[Endpoint]],
) -> None:
    """Over sessions that end every three seconds; and no face of it shows a secret."""
    secret = cli.folder / "secret-east.properties"
    as_it_was = secret.read_text()
    assert PASSWORD in as_it_was
    secret.write_text(as_it_was.replace(PASSWORD, "changed"))
    # A password that was changed at one end must never pass for a datacenter that is gone.
    refusal = cli.run("failover --yes", 3)
    assert "east is partly there" in refusal.stderr
    assert "refuses the login" in refusal.stderr
    secret.write_text(as_it_was)
    seen = cli.json("canary run --duration 3s")
    assert seen["lost_records"] == 0
    assert seen["received_records"] == seen["sent_records"] >= 3
    jars = "".join(f" --jars {jar}" for jar in sorted((CACHE / "spark" / version("pyspark")).glob("*.jar")))
    events = cli.folder / "events"
    events.mkdir()
    logged = f" --conf spark.eventLog.enabled=true --conf spark.eventLog.dir=file://{events}"
    line = f"audit run --output-dir {cli.folder / 'audit'}{jars}{logged} --conf spark.eventLog.compress=false -o json"
    environment = {**os.environ, "PYTHONPATH": f"{cli.folder / 'logging'}:{ROOT}"}
    told = warm_commands().run(cli.argv(line)[len(FARSHORE) :], environment=environment)
    assert told.code == 0, told.err
    audited = json.loads(told.out)
    assert audited["source"]["protocol"] == "SASL_SSL"
    assert (f"Basic {AS_JAVA_ASKS}", {"grant_type": ["client_credentials"], "scope": ["kafka"]}) in issuer[1].asked
    assert audited["source_records"] >= RECORDS
    issuer[1].by_login[f"Basic {AS_JAVA_ASKS}"] = (200, b"")  # Java names the whole address of who answers so
    failed = warm_commands().run(cli.argv(f"{line} --full")[len(FARSHORE) :], environment=environment)
    assert failed.code == 1, failed.err
    result = cli.json("switchover --yes")
    assert result["verified"] is True
    places = {**looked_through(cli, refusal, told), "failed audit run": failed.err, "switchover": json.dumps(result)}
    assert not shown(secrets_of(kafka_43), places)
    assert shown({"query": QUERY}, places) == ["query in farshore.toml"]
    records = asyncio.run(own_records([kafka_39.locked_site(), west := kafka_43.locked_site()]))
    assert {f"__farshore-{kept} at {west.name}" for kept in ("operations", "producers")} <= records.keys()
    assert not shown(secrets_of(kafka_43), records)


def secrets_of(west: LockedKafkaServer) -> Mapping[str, str]:
    key = max(west.client.key.read_text().splitlines(), key=len)
    made = {"Java's header": AS_JAVA_ASKS, "token": TOKEN, "client's secret": CLIENT_SECRET.split()[0]}
    return {"password": PASSWORD, "password of stores": STORE_PASSWORD, "key": key, **made}


def looked_through(cli: Cli, refusal: subprocess.CompletedProcess[str], audit: Said) -> Places:
    """What is to show no secret: what commands said, the monitor's page, all files, with logs at their fullest."""
    lines = ("status", "config validate -o json", "config show", "config show -o json", "link list -o json")
    said = [refusal, *(cli.run(line) for line in lines)]
    said += [ended_by_a_bug(cli, *where) for where in (("exchange_of", "login.py"), ("read", "settings.py"))]
    files = files_in(cli.folder, lambda file: file.name.startswith("secret"))
    assert "farshore.toml" in files
    assert b"all is logged" in files["mirror.log"]
    assert any(b"all is logged" in text for name, text in files.items() if name.startswith("audit/"))
    assert any(b"KafkaRelation(" in text for name, text in files.items() if name.startswith("events/"))
    streams = {f"{done.args} {which}": getattr(done, which) for done in said for which in ("stdout", "stderr")}
    return {**streams, "audit run": audit.out + audit.err, "the monitor's page": shown_by_the_monitor(cli), **files}
