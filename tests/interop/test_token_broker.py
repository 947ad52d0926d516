"""farshore's own broker that takes tokens: the clients that people use, unmodified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.security.settings import Mechanism, Sasl, Secret, Security, Tls
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.certificates import Authority
from tests.interop.brokers import KEEPS_ALL
from tests.interop.locked import BETWEEN_RECORDS_S
from tests.interop.servers import FarshoreBroker, run_java
from tests.interop.test_clients_aiokafka import is_refused, started
from tests.interop.test_clients_aiokafka import read as read_by_aiokafka
from tests.interop.test_clients_confluent import TIMEOUT_S, consumer, read
from tests.interop.test_clients_kcat import kcat
from tests.interop.test_java_tools import TOOLS
from tests.issuer import AUDIENCE, ISSUER, a_token, claims_of, ec_key, rsa_key, signed, write_keys
from tests.ports import free_port

LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT")
both_ways = pytest.mark.parametrize("listener", LISTENERS)
SESSION_S = 2.0
RECORDS = [f"record {n}" for n in range(100)]
OTHERS = {"aud": "shop"}


class TokenBroker(FarshoreBroker):
    """Over TLS, and at its second listener without."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tls_port = free_port()
        self.authority = Authority(folder / "ca")
        server = self.authority.sign("server")
        write_keys(folder / "jwks.json", rsa_key("rsa-1"), ec_key("ec-1"))
        self.file = folder / "farshore.toml"
        self.file.write_text(
            f'[sites.east]\nbootstrap_servers = "{self.over_tls}"\n[sites.east.broker]\ndata_dir = "data"\n'
            f'listeners = ["SASL_SSL://{self.over_tls}", "SASL_PLAINTEXT://{self.bootstrap}"]\n'
            f'ssl_certificate_file = "{server.certificate}"\nssl_key_file = "{server.key}"\n'
            'sasl_enabled_mechanisms = ["OAUTHBEARER"]\nsasl_oauthbearer_jwks_file = "jwks.json"\n'
            f'sasl_oauthbearer_expected_issuer = "{ISSUER}"\nsasl_oauthbearer_expected_audience = ["{AUDIENCE}"]\n'
            "sasl_oauthbearer_clock_skew_seconds = 0\n"
        )

    @property
    def over_tls(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

    def at(self, listener: str) -> str:
        return self.over_tls if listener == "SASL_SSL" else self.bootstrap

    def command(self) -> Sequence[str]:
        return [*super().command()[:3], "--config", str(self.file), "broker", "run", "--site", "east"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with TokenBroker(tmp_path_factory.mktemp("tokens")) as server:
        yield server


class _ForAio(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, **claims: Any) -> None:
        self._claims = claims

    async def token(self) -> str:
        return a_token(**self._claims)


class _ForPython(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, **claims: Any) -> None:
        self._claims = claims

    def token(self) -> str:
        return a_token(**self._claims)


@both_ways
async def test_aiokafka(locked: TokenBroker, topic: str, listener: str) -> None:
    given = {
        "bootstrap_servers": locked.at(listener),
        "security_protocol": listener,
        "ssl_context": create_ssl_context(cafile=locked.authority.certificate),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _ForAio(),
    }
    async with started(AIOKafkaProducer(**given)) as producer:
        for record in RECORDS:
            await producer.send_and_wait(topic, record.encode())
    whole = AIOKafkaConsumer(topic, **given, group_id=topic, auto_offset_reset="earliest")
    async with started(whole) as consumer_:
        assert [record.value.decode() for record in await read_by_aiokafka(consumer_, len(RECORDS))] == RECORDS
    # It takes the refusal for a yes, of Kafka's brokers as of ours, and finds its connection closed.
    await is_refused(AIOKafkaProducer(**{**given, "sasl_oauth_token_provider": _ForAio(**OTHERS)}))


def librdkafka(locked: TokenBroker, session_s: float, listener: str = "SASL_SSL", **claims: Any) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        ends_s = time.time() + session_s
        return signed(ec_key("ec-1"), "ES256", claims_of(exp=ends_s, **claims)), ends_s

    return {
        "bootstrap.servers": locked.at(listener),
        "security.protocol": listener,
        "ssl.ca.location": str(locked.authority.certificate),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
    }


@both_ways
def test_confluent_kafka_goes_on_behind_the_end_of_its_token(locked: TokenBroker, topic: str, listener: str) -> None:
    settings = librdkafka(locked, SESSION_S, listener)
    errors: list[KafkaError] = []
    producer = Producer({**settings, "enable.idempotence": True, "error_cb": errors.append})
    for record in RECORDS:
        producer.produce(topic, record.encode())
        producer.poll(2 * SESSION_S / len(RECORDS))
    assert producer.flush(TIMEOUT_S) == 0
    # On a busy machine it logs in again too late: the broker closes the connection, and it goes on with another one.
    lost = [
        error for error in errors if "transport failure" in error.str() or error.code() == KafkaError._ALL_BROKERS_DOWN
    ]
    assert errors == lost
    source: Consumer = consumer(settings["bootstrap.servers"], topic, **settings)
    source.subscribe([topic])
    assert [message.value().decode() for message in read(source, len(RECORDS))] == RECORDS
    source.close()


def test_confluent_kafka_is_told_why_its_token_is_refused(locked: TokenBroker) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka(locked, 300, **OTHERS), "error_cb": errors.append})
    deadline = time.monotonic() + TIMEOUT_S
    while not any("the token is for 'shop', and this broker is kafka" in error.str() for error in errors):
        assert time.monotonic() < deadline, f"it was told {errors}"
        producer.poll(0.5)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("sockets_left_to_the_collector")
@both_ways
def test_kafka_python(locked: TokenBroker, topic: str, listener: str) -> None:
    given = {
        "bootstrap_servers": locked.at(listener),
        "security_protocol": listener,
        "ssl_cafile": str(locked.authority.certificate),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _ForPython(),
    }
    producer = KafkaProducer(**given)
    for future in [producer.send(topic, record.encode()) for record in RECORDS]:
        future.get(TIMEOUT_S)
    producer.close()
    source = KafkaConsumer(topic, **given, auto_offset_reset="earliest", consumer_timeout_ms=int(TIMEOUT_S * 1000))
    assert [next(source).value.decode() for _ in RECORDS] == RECORDS
    source.close()
    refused = {**given, "sasl_oauth_token_provider": _ForPython(**OTHERS), "bootstrap_timeout_ms": 1000}
    with pytest.raises(PythonKafkaError):
        KafkaConsumer(**refused)


async def test_our_client_goes_on_behind_the_end_of_its_token(locked: TokenBroker, topic: str, tmp_path: Path) -> None:
    sasl = Sasl(Mechanism.OAUTHBEARER, "", Secret(file=tmp_path / "token"))
    site = Site("east", locked.over_tls, security=Security(Tls(locked.authority.certificate), sasl))
    where, read_back = TopicPartition(topic, 0), list[bytes]()
    count, ends_s = 0, time.monotonic() + SESSION_S * 5 / 4
    (tmp_path / "token").write_text(a_token(exp=time.time() + SESSION_S))
    async with Cluster(site) as cluster:
        assert not await create_topics(cluster, [NewTopic(topic, 1, configs=KEEPS_ALL)])
        while time.monotonic() < ends_s:
            (tmp_path / "token").write_text(a_token(exp=time.time() + SESSION_S))
            await append(cluster, where, encode_batch([Record(0, 1_000, None, b"%d" % count)]))
            count += 1
            await asyncio.sleep(BETWEEN_RECORDS_S)
        span = OffsetSpan(0, (await log_end_offsets(cluster, [where]))[where])
        await scan_records(cluster, where, span, lambda record: read_back.append(bytes(record.value or b"")))
    # Where the machine is too slow to log in again in time, the broker hangs up, and what `append` repeats comes twice.
    assert list(dict.fromkeys(read_back)) == [b"%d" % n for n in range(count)]


def java_properties(locked: TokenBroker, folder: Path, token: str, listener: str = "SASL_SSL") -> tuple[Path, str]:
    """-> the file, and what Java has to be told to take a token from a file."""
    (folder / "token").write_text(token)
    where = f"file://{folder / 'token'}"
    package = "org.apache.kafka.common.security.oauthbearer"
    file = folder / "client.properties"
    file.write_text(
        f"security.protocol={listener}\nsasl.mechanism=OAUTHBEARER\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={locked.authority.certificate}\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={where}\n"
    )
    return file, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={where}"


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("listener", ["SASL_SSL", pytest.param("SASL_PLAINTEXT", marks=pytest.mark.slow)])
def test_kafkas_tools(locked: TokenBroker, topic: str, listener: str, version: str, tmp_path: Path) -> None:
    file, option = java_properties(locked, tmp_path, a_token(), listener)
    arguments = ["--bootstrap-server", locked.at(listener), "--command-config", str(file), "--create", "--topic", topic]
    said = run_java(version, f"{TOOLS}.TopicCommand", *arguments, options=[option])
    assert f"Created topic {topic}." in said


def test_kafkas_tools_are_told_why_a_token_is_refused(locked: TokenBroker, tmp_path: Path) -> None:
    file, option = java_properties(locked, tmp_path, a_token(**OTHERS))
    arguments = ["--bootstrap-server", locked.over_tls, "--command-config", str(file), "--list"]
    told = r"SaslAuthenticationException: Authentication failed: the token is for 'shop', and this broker is kafka"
    with pytest.raises(AssertionError, match=told):
        run_java("4.3.0", f"{TOOLS}.TopicCommand", *arguments, options=[option])


def told_by_kcat(locked: TokenBroker, *settings: str) -> str:
    words = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", *settings]
    with pytest.raises(AssertionError) as refused:
        kcat(locked.bootstrap, "-L", "-m", "3", *(word for each in words for word in ("-X", each)))
    return str(refused.value)


def test_kcat_has_no_token_that_anybody_signed(locked: TokenBroker) -> None:
    """Debian builds its librdkafka without what asks an issuer (OIDC), and kcat has no place for a token that is there.
    What it makes by itself nobody has signed, and so it is refused.
    """
    assert "OIDC depends on libcurl and OpenSSL which were not available" in told_by_kcat(
        locked, "sasl.oauthbearer.method=oidc"
    )
    own = ("enable.sasl.oauthbearer.unsecure.jwt=true", "sasl.oauthbearer.config=principal=shop")
    assert "Authentication failed: the token" in told_by_kcat(locked, *own)


def test_nothing_of_a_token_stands_in_its_log(locked: TokenBroker) -> None:
    assert "eyJ" not in locked.log.read_text()
