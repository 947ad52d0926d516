"""Apache Kafka that lets in by tickets of Kerberos, of a KDC of MIT's."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaConnectionError

from broker.client.applications import client_options
from broker.client.cluster import Cluster
from broker.client.errors import AuthenticationFailed, SecretUnreadable
from broker.client.security import login
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl, Security, Tls
from broker.client.site import Site
from deploy.client_properties import security_of_properties
from monitoring.audit.locked import kafka_options
from tests.interop.kerberos import (
    ANOTHER_SERVICE,
    HOST,
    REALM,
    REAUTHENTICATE_MS,
    SERVICE,
    Kdc,
    KerberosKafkaServer,
    java_options,
)
from tests.interop.servers import run_java, wait_until
from tests.interop.test_locked import written_and_read

pytestmark = pytest.mark.slow
"""What it needs is built with a C compiler: `make kerberos` brings it."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kdc") / "kdc") as server:
        yield server


@pytest.fixture(scope="module", params=["4.3.0", "3.9.1"])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kdc: Kdc
) -> Iterator[KerberosKafkaServer]:
    with KerberosKafkaServer(request.param, tmp_path_factory.mktemp("kafka"), kdc) as server:
        yield server


@pytest.fixture(autouse=True)
def tickets(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache that the environment names; there is none yet."""
    cache = tmp_path / "tickets"
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    return cache


def security(identity: KerberosIdentity, tls: Tls | None = None) -> Security:
    return Security(tls, Sasl(Mechanism.GSSAPI, "", identity))


def by_keytab(kdc: Kdc, name: str, principal: str = "farshore") -> KerberosIdentity:
    return KerberosIdentity(SERVICE, principal, kdc.keytab(name))


async def test_a_keytab_gives_new_tickets_and_sessions_before_the_old_ones_end(
    kafka: KerberosKafkaServer, topic: str
) -> None:
    before = kafka.kdc.issued("short")
    locked = security(by_keytab(kafka.kdc, "short", "short"), Tls(kafka.authority.certificate))
    site = Site("east", kafka.at("LOCKED"), security=locked)
    count, read = await written_and_read(site, topic[-40:], REAUTHENTICATE_MS * 2)
    # Where the machine is too slow to log in again in time, Kafka hangs up, and what `append` repeats comes twice.
    assert list(dict.fromkeys(read)) == [b"%d" % n for n in range(count)]
    assert kafka.kdc.issued("short") - before >= 2


async def test_kafkas_own_file_is_taken_and_what_the_audit_makes_of_it_is_taken_by_java(
    kafka: KerberosKafkaServer, topic: str, tmp_path: Path
) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name={SERVICE}\n"
        f"sasl.jaas.config={module} required \\\n"
        f'  useKeyTab=true storeKey=true keyTab="{kafka.kdc.keytab("farshore")}" principal="farshore@{REALM}";\n'
    )
    site = Site("east", kafka.at("WORDS"), security=security_of_properties(file))
    assert await written_and_read(site, topic[-40:], 0) == (1, [b"0"])
    made = tmp_path / "audit.properties"
    options = kafka_options(site.security)
    made.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in options.items()))
    tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.at("WORDS"), "--list")
    words = (*tool, "--command-config", str(made))
    listed = await asyncio.to_thread(run_java, kafka.version, *words, options=java_options(kafka.kdc))
    assert topic[-40:] in listed.split()


async def seen_by_an_application(site: Site, topic: str) -> list[bytes]:
    """All records of its first partition, with one more that it wrote."""
    producer = AIOKafkaProducer(**await client_options(site))
    try:
        await producer.start()
        last = await producer.send_and_wait(topic, b"of an application", partition=0)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(**await client_options(site), enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign([where := AiokafkaPartition(topic, 0)])
        consumer.seek(where, 0)
        return [(await consumer.getone()).value for _ in range(last.offset + 1)]
    finally:
        await consumer.stop()


async def test_applications_log_in_by_the_keytab_or_the_cache_of_each_site(
    kafka: KerberosKafkaServer, kdc: Kdc, topic: str
) -> None:
    """As the canary and chaos runs do: two identities in one process, and trouble that the client bears."""
    name = topic[-40:]
    locked = security(by_keytab(kdc, "farshore"), Tls(kafka.authority.certificate))
    east = Site("east", kafka.at("LOCKED"), security=locked)
    west = Site("west", kafka.at("WORDS"), security=security(KerberosIdentity(SERVICE, "short")))
    assert await written_and_read(east, name, 0) == (1, [b"0"])
    assert await seen_by_an_application(east, name) == [b"0", b"of an application"]
    with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
        await seen_by_an_application(west, name)
    await asyncio.to_thread(kdc.tool, "kinit", "-k", "-t", str(kdc.keytab("short")), "short")
    assert await seen_by_an_application(west, name) == [b"0", *[b"of an application"] * 2]


async def refusal(kafka: KerberosKafkaServer, identity: KerberosIdentity) -> str:
    """It is told at once, and with what to do."""
    with pytest.raises(SecretUnreadable) as caught:
        async with Cluster(Site("east", kafka.at("WORDS"), security=security(identity))):
            pass
    assert caught.value.hint
    assert f"site east at {HOST}:" in str(caught.value)
    assert str(identity) in str(caught.value)
    return str(caught.value)


async def test_who_has_no_right_ticket_is_told_why(
    kafka: KerberosKafkaServer, kdc: Kdc, tickets: Path, topic: str
) -> None:
    in_cache = KerberosIdentity(SERVICE, "farshore")
    assert f"{kdc.keytab('old')} has a key that is no more its key" in await refusal(kafka, by_keytab(kdc, "old"))
    assert "has no key of it" in await refusal(kafka, by_keytab(kdc, "short"))
    assert "cannot be read: No such file" in await refusal(kafka, by_keytab(kdc, "none"))
    assert "has no key of it" in await refusal(kafka, by_keytab(kdc, "farshore", "nobody"))
    other = KerberosIdentity("other", "farshore", kdc.keytab("farshore"))
    assert f"the KDC knows no service other/{HOST}" in await refusal(kafka, other)
    assert "no ticket in the ticket cache" in await refusal(kafka, in_cache)
    assert "no ticket in the ticket cache" in await refusal(kafka, KerberosIdentity(SERVICE))
    kinit = ("kinit", "-k", "-t", str(kdc.keytab("farshore")))
    await asyncio.to_thread(kdc.tool, *kinit, "-l", "1s", "farshore")
    ends_s = time.time() + 2  # it is counted in whole seconds
    wait_until(lambda: time.time() > ends_s, 10, "the ticket to end")
    assert "the ticket has expired" in await refusal(kafka, in_cache)
    await asyncio.to_thread(kdc.tool, *kinit, "farshore")
    site = Site("east", kafka.at("WORDS"), security=security(KerberosIdentity(SERVICE)))
    assert await written_and_read(site, topic[-40:], 0) == (1, [b"0"])


async def test_a_broker_that_cannot_read_the_ticket_is_the_one_to_look_at(kafka: KerberosKafkaServer) -> None:
    """As where its keytab is older than its key."""
    identity = KerberosIdentity(ANOTHER_SERVICE, "farshore", kafka.kdc.keytab("farshore"))
    with pytest.raises(AuthenticationFailed, match=r"principal farshore, by GSSAPI: the broker refuses") as caught:
        async with Cluster(Site("east", kafka.at("WORDS"), security=security(identity))):
            pass
    assert "the broker's keytab" in caught.value.hint


async def test_a_kdc_that_says_nothing_is_not_waited_for(
    kafka: KerberosKafkaServer, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = tmp_path / "farshore.keytab"  # for another one there may be tickets
    keytab.write_bytes(kdc.keytab("farshore").read_bytes())
    identity = KerberosIdentity(SERVICE, "farshore", keytab)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "krb5.conf"
        config.write_text(kdc.config.read_text().replace(f":{kdc.port}", f":{silent.getsockname()[1]}"))
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        monkeypatch.setattr(login, "KDC_TIMEOUT_S", 0.5)
        assert "the KDC does not answer (not within 0.5 s)" in await refusal(kafka, identity)
