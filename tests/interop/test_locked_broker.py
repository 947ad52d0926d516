"""farshore's own broker behind TLS and logins: the clients that people use, unmodified, each by each way in."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from broker.access.users import new_credentials, write_users
from tests.certificates import Authority, KeyPair
from tests.interop.servers import FarshoreBroker, run_java
from tests.interop.test_clients_aiokafka import is_refused, started
from tests.interop.test_clients_aiokafka import read as read_by_aiokafka
from tests.interop.test_clients_confluent import TIMEOUT_S, consumer, read
from tests.interop.test_clients_kcat import kcat
from tests.interop.test_java_tools import TOOLS, Tools
from tests.ports import free_port

USER, PASSWORD = "shop", "canary-secret-7Qw"
SESSION_MS = 2_000
RECORDS = [f"record {n}" for n in range(200)]
LISTENERS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")


class LockedBroker(FarshoreBroker):
    """It asks for a certificate, or for a login, at listeners that are called by their protocols."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports = {name: free_port() for name in LISTENERS}
        self.port = self.ports["SASL_PLAINTEXT"]
        self.authority = Authority(folder / "ca")
        self.client: KeyPair = self.authority.sign("client")
        server = self.authority.sign("server")
        write_users(folder / "users.json", {USER: new_credentials(PASSWORD)})
        self.file = folder / "farshore.toml"
        listeners = ", ".join(f'"{name}://127.0.0.1:{port}"' for name, port in self.ports.items())
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.at("SASL_SSL")}"\n[sites.east.broker]\ndata_dir = "data"\n'
            f'listeners = [{listeners}]\nssl_certificate_file = "{server.certificate}"\nssl_key_file = "{server.key}"\n'
            f'ssl_client_ca_file = "{self.authority.certificate}"\nssl_client_auth = "requested"\n'
            'sasl_enabled_mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]\nsasl_users_file = "users.json"\n'
            f"connections_max_reauth_ms = {SESSION_MS}\n"
        )

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", "east"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with LockedBroker(tmp_path_factory.mktemp("locked")) as server:
        yield server


def librdkafka(locked: LockedBroker, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    settings = {"security.protocol": listener, "bootstrap.servers": locked.at(listener)}
    if listener.endswith("SSL"):
        settings |= {"ssl.ca.location": str(locked.authority.certificate)}
    if listener.startswith("SASL"):
        return settings | {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
    return settings | {
        "ssl.certificate.location": str(locked.client.certificate),
        "ssl.key.location": str(locked.client.key),
    }


WAYS = [
    ("SSL", ""),
    *((listener, mechanism) for listener in LISTENERS[1:] for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")),
]
"""All of them but tokens, which are in test_token_broker.py. In the open clients come in their own files."""
RENEWED = {("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")}
"""On these a producer goes on behind the end of its session: of that listeners and hashes know nothing."""


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_aiokafka(locked: LockedBroker, topic: str, listener: str, mechanism: str) -> None:
    context = create_ssl_context(
        cafile=locked.authority.certificate, certfile=locked.client.certificate, keyfile=locked.client.key
    )
    given = {"security_protocol": listener, "bootstrap_servers": locked.at(listener)}
    if listener.endswith("SSL"):
        given |= {"ssl_context": context}
    if mechanism:
        given |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    async with started(AIOKafkaProducer(**given)) as producer:
        for record in RECORDS:
            await producer.send_and_wait(topic, record.encode())
    whole = AIOKafkaConsumer(topic, **given, group_id=topic, auto_offset_reset="earliest")
    async with started(whole) as consumer_:
        assert [record.value.decode() for record in await read_by_aiokafka(consumer_, len(RECORDS))] == RECORDS
    if mechanism:
        await is_refused(AIOKafkaProducer(**{**given, "sasl_plain_password": "wrong"}))


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_confluent_kafka(locked: LockedBroker, topic: str, listener: str, mechanism: str) -> None:
    """By those of RENEWED it goes on behind the end of its session."""
    settings = librdkafka(locked, listener, mechanism)
    producer = Producer({**settings, "enable.idempotence": True})
    for record in RECORDS:
        producer.produce(topic, record.encode())
        producer.poll(2 * SESSION_MS / 1000 / len(RECORDS) if (listener, mechanism) in RENEWED else 0)
    assert producer.flush(TIMEOUT_S) == 0
    source: Consumer = consumer(settings["bootstrap.servers"], topic, **settings)
    source.subscribe([topic])
    assert [message.value().decode() for message in read(source, len(RECORDS))] == RECORDS
    source.close()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS[1:])
def test_confluent_kafka_is_told_that_a_password_is_wrong(locked: LockedBroker, listener: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka(locked, listener, mechanism, "wrong"), "error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not errors:
        assert time.monotonic() < deadline, "it was told nothing"
        producer.poll(0.5)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


def kcat_options(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_kcat(locked: LockedBroker, topic: str, listener: str, mechanism: str) -> None:
    settings = librdkafka(locked, listener, mechanism)
    options = kcat_options(settings)
    kcat(settings["bootstrap.servers"], *options, "-P", "-t", topic, "-p", "0", stdin="\n".join(RECORDS) + "\n")
    printed = kcat(settings["bootstrap.servers"], *options, "-C", "-t", topic, "-o", "beginning", "-e", "-q")
    assert printed.splitlines() == RECORDS


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("sockets_left_to_the_collector")
@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_kafka_python(locked: LockedBroker, topic: str, listener: str, mechanism: str) -> None:
    given: dict[str, Any] = {"bootstrap_servers": locked.at(listener), "security_protocol": listener}
    if listener.endswith("SSL"):
        pair = {"ssl_certfile": str(locked.client.certificate), "ssl_keyfile": str(locked.client.key)}
        given |= {"ssl_cafile": str(locked.authority.certificate), **pair}
    if mechanism:
        given |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**given)
    for future in [producer.send(topic, record.encode()) for record in RECORDS]:
        future.get(TIMEOUT_S)
    producer.close()
    source = KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=int(TIMEOUT_S * 1000))
    assert [next(source).value.decode() for _ in RECORDS] == RECORDS
    source.close()
    if mechanism:
        with pytest.raises(PythonKafkaError):
            KafkaConsumer(**{**given, "sasl_plain_password": "wrong"}, bootstrap_timeout_ms=1000)


def java_settings(
    locked: LockedBroker, listener: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-512"
) -> Mapping[str, str]:
    settings = {"security.protocol": listener}
    if listener.endswith("SSL"):
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(locked.authority.certificate),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(locked.client.both),
        }
    if listener.startswith("SASL"):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        module = f"org.apache.kafka.common.security.{module}"
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        }
    return settings


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.slow), "4.3.0"])
@pytest.mark.parametrize(
    ("listener", "mechanism"), [*WAYS[:2], *(pytest.param(*way, marks=pytest.mark.slow) for way in WAYS[2:])]
)
def test_kafkas_console_tools(
    locked: LockedBroker, topic: str, listener: str, mechanism: str, version: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    settings = java_settings(locked, listener, mechanism=mechanism)
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    tools = Tools(version, locked.at(listener))
    tools.topics("--create", "--topic", topic, "--command-config", str(file))
    old = version.startswith("3.")
    tools.produce(topic, RECORDS, "--producer.config" if old else "--command-config", str(file))
    option = "--consumer.config" if old else "--command-config"
    assert tools.consume(topic, len(RECORDS), option, str(file), "--from-beginning") == RECORDS


def test_kafkas_tools_are_told_that_a_password_is_wrong(locked: LockedBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in java_settings(locked, "SASL_SSL", "wrong").items()))
    arguments = ["--bootstrap-server", locked.at("SASL_SSL"), "--command-config", str(file), "--list"]
    with pytest.raises(AssertionError, match="SaslAuthenticationException"):
        run_java("4.3.0", f"{TOOLS}.TopicCommand", *arguments)


def test_no_login_plain_bytes_and_an_old_tls_do_not_get_in(locked: LockedBroker) -> None:
    for listener, protocol in (("SASL_PLAINTEXT", "plaintext"), ("SASL_SSL", "plaintext"), ("SSL", "plaintext")):
        with pytest.raises(AssertionError, match=r"ended with 1"):
            kcat(locked.at(listener), "-L", "-X", f"security.protocol={protocol}", "-m", "5")
    old = ["openssl", "s_client", "-connect", locked.at("SSL"), "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
    done = subprocess.run(old, input="", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Cipher is (NONE)" in done.stdout


def test_nothing_of_a_password_stands_in_its_log_or_its_files(locked: LockedBroker) -> None:
    kcat(locked.at("SASL_SSL"), "-L", *kcat_options(librdkafka(locked, "SASL_SSL", "PLAIN")))
    assert PASSWORD not in locked.log.read_text()
    assert PASSWORD not in (locked.folder / "users.json").read_text()
