"""What TLS costs: produce and fetch beside Apache Kafka with the same client and cipher, a mirror between two brokers
of ours beside a loop of librdkafka, each openly and by SASL_SSL; and the least that it could cost.

Every process is one of its own, and runs go in turns.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.base.server_tls import ServerTls
from broker.client.site import Site
from deploy.local.locks import CA_FILE, CERTIFICATE_FILE, KEY_FILE
from deploy.local.locksmith import make_locks
from tests.bench.broker_bench import (
    WARM_UP_PAYLOAD_BYTES,
    BrokerRuns,
    measure_consumer,
    measure_producer,
    write_payload,
)
from tests.bench.clusters import ClusterKind, service
from tests.bench.data import PARTITIONS, RECORD_BYTES, Stored, fill_topic, stored
from tests.bench.loop_peer import BEGINS, COPIED
from tests.bench.measure import Measured, cpu_seconds
from tests.bench.mirror_bench import delete_below, landed_bytes, until
from tests.bench.tls_doors import (
    PROTOCOLS,
    Protocol,
    TwoDoors,
    TwoDoorsKafka,
    java_properties,
    librdkafka_settings,
    require_cipher,
)
from tests.interop.locked import site_tables

TOPIC = "flights-tls"
BATCH_BYTES = 1_000_000
TLS_RECORD_BYTES = 16_384
LEAST_BYTES = 500_000_000


@dataclass(slots=True)
class MirrorRuns:
    """Of one protocol: the mirror's, its source's and its target's CPU in the same runs, and the loop's."""

    mirror: list[Measured] = field(default_factory=list)
    source: list[Measured] = field(default_factory=list)
    target: list[Measured] = field(default_factory=list)
    loop: list[Measured] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Least:
    """CPU-seconds per GB that nothing can go below: the cipher alone, and each end of Python's TLS in memory."""

    cipher_s: float
    sending_s: float
    receiving_s: float


@dataclass(frozen=True, slots=True)
class TlsResults:
    brokers: Mapping[tuple[ClusterKind, Protocol], BrokerRuns]
    mirrors: Mapping[Protocol, MirrorRuns]
    least: Least


def bench_tls(
    directory: Path, payload_bytes: int, rounds: int, values: list[bytes], say: Callable[[str], None]
) -> TlsResults:
    """Raises ServerFailed where Apache Kafka's jars are not there."""
    directory.mkdir(parents=True)
    brokers = _brokers(directory / "brokers", payload_bytes, rounds, values, say)
    mirrors = _mirrors(directory / "mirrors", payload_bytes, rounds, values, say)
    return TlsResults(brokers, mirrors, _least(directory))


def _brokers(
    directory: Path, payload_bytes: int, rounds: int, values: list[bytes], say: Callable[[str], None]
) -> dict[tuple[ClusterKind, Protocol], BrokerRuns]:
    directory.mkdir()
    payload_file = directory / "payload.txt"
    write_payload(payload_file, values)
    found: dict[tuple[ClusterKind, Protocol], BrokerRuns] = {}
    with ExitStack() as running:
        servers: dict[ClusterKind, TwoDoors | TwoDoorsKafka] = {
            "farshore": running.enter_context(TwoDoors(directory / "farshore")),
            "kafka": running.enter_context(TwoDoorsKafka(directory / "kafka")),
        }
        for number in range(-1, rounds):
            for protocol in PROTOCOLS:
                for kind, server in servers.items():
                    is_warm_up = number < 0
                    what = "warming" if is_warm_up else f"round {number + 1} of {rounds},"
                    say(f"{what} {kind} by {protocol}")
                    if protocol == "SASL_SSL":
                        require_cipher(server.site(protocol))
                    size = min(WARM_UP_PAYLOAD_BYTES, payload_bytes) if is_warm_up else payload_bytes
                    runs = BrokerRuns() if is_warm_up else found.setdefault((kind, protocol), BrokerRuns())
                    _round(server, protocol, f"perf-{protocol}-{number}", size, payload_file, runs)
    delete_below(directory)
    return found


def _round(
    server: TwoDoors | TwoDoorsKafka,
    protocol: Protocol,
    topic: str,
    payload_bytes: int,
    payload_file: Path,
    runs: BrokerRuns,
) -> None:
    assert server.process is not None
    pid, site = server.process.pid, server.site(protocol)
    config = server.folder / f"{protocol}.properties"
    config.write_text(java_properties(site))
    create_topic(site, topic)
    client = (lambda: cpu_seconds(pid), site.bootstrap_servers, topic, payload_bytes)
    runs.produce.append(measure_producer(*client, payload_file, config=config))
    runs.fetch.append(measure_consumer(*client, config=config))


def create_topic(site: Site, topic: str) -> None:
    admin = AdminClient(dict(librdkafka_settings(site)))
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        created.result(30)


def _mirrors(
    directory: Path, payload_bytes: int, rounds: int, values: list[bytes], say: Callable[[str], None]
) -> dict[Protocol, MirrorRuns]:
    records = payload_bytes // RECORD_BYTES
    found: dict[Protocol, MirrorRuns] = {protocol: MirrorRuns() for protocol in PROTOCOLS}
    with TwoDoors(directory / "east") as source:
        create_topic(source.site("PLAINTEXT"), TOPIC)
        fill_topic(source.bootstrap, TOPIC, values, records, "none", BATCH_BYTES)
        data = stored(TOPIC, source.data_dir, records)
        for number in range(rounds):
            for protocol, runs in found.items():
                say(f"mirroring by {protocol}, round {number + 1} of {rounds}")
                folder = directory / f"{protocol}-{number}"
                with _empty(folder / "mirror") as target:
                    _mirror_run(folder, source, target, protocol, data, runs)
                with _empty(folder / "loop") as target:
                    runs.loop.append(_loop_run(folder, source, target, protocol, data))
    return found


@contextmanager
def _empty(folder: Path) -> Iterator[TwoDoors]:
    """A target, whose data is deleted with the context."""
    with TwoDoors(folder / "west") as target:
        yield target
    delete_below(folder)


def _mirror_run(
    folder: Path, source: TwoDoors, target: TwoDoors, protocol: Protocol, data: Stored, runs: MirrorRuns
) -> None:
    """From the first batches that landed to the last: starts are left out."""
    assert source.process is not None
    assert target.process is not None
    config = folder / "farshore.toml"
    config.write_text(
        f"{site_tables(source.site(protocol))}\n{site_tables(target.site(protocol))}\n"
        f'[[links]]\nname = "east-west"\nsource = "east"\ntarget = "west"\ntopics = ["{TOPIC}"]\n'
        'topic_names = "same"\ngroups = [".*"]\n'
    )
    command = [sys.executable, "-m", "deploy.cli", "--config", str(config), "mirror", "run"]
    with service(command, folder / "mirror.log") as process:
        pids = (process.pid, source.process.pid, target.process.pid)
        until(process, lambda: landed_bytes(target.data_dir, TOPIC) > data.batch_bytes)
        first, before, began_s = landed_bytes(target.data_dir, TOPIC), [*map(cpu_seconds, pids)], time.monotonic()
        until(process, lambda: landed_bytes(target.data_dir, TOPIC) >= data.wire_bytes)
        after, wall_s = [*map(cpu_seconds, pids)], time.monotonic() - began_s
        last = landed_bytes(target.data_dir, TOPIC)
    payload_bytes = round(data.payload_bytes * (last - first) / last)
    for into, cpu_s in zip((runs.mirror, runs.source, runs.target), zip(before, after, strict=True), strict=True):
        into.append(Measured(payload_bytes, cpu_s[1] - cpu_s[0], wall_s))


def _loop_run(folder: Path, source: TwoDoors, target: TwoDoors, protocol: Protocol, data: Stored) -> Measured:
    create_topic(target.site(protocol), TOPIC)
    settings = [folder / f"{each.folder.name}.json" for each in (source, target)]
    for file, each in zip(settings, (source, target), strict=True):
        file.write_text(json.dumps(librdkafka_settings(each.site(protocol))))
    log = folder / "loop.log"
    words = [*map(str, settings), TOPIC, str(data.records), "none"]
    with service([sys.executable, "-m", "tests.bench.loop_peer", *words], log) as process:
        until(process, lambda: BEGINS in log.read_text())
        cpu_s, began_s = cpu_seconds(process.pid), time.monotonic()
        until(process, lambda: COPIED in log.read_text())
        return Measured(data.payload_bytes, cpu_seconds(process.pid) - cpu_s, time.monotonic() - began_s)


def _least(directory: Path) -> Least:
    """No socket, no loop, no protocol."""
    key, block, rounds = AESGCM(os.urandom(32)), bytes(TLS_RECORD_BYTES), LEAST_BYTES // TLS_RECORD_BYTES
    nonce = bytes(12)
    began_s = time.process_time()
    for _ in range(rounds):
        key.encrypt(nonce, block, None)
    cipher_s = time.process_time() - began_s
    sending_s, receiving_s = _in_memory(directory, bytes(16 * TLS_RECORD_BYTES), rounds // 16)
    return Least(*(each / LEAST_BYTES * 1e9 for each in (cipher_s, sending_s, receiving_s)))


def _in_memory(directory: Path, sent: bytes, times: int) -> tuple[float, float]:
    """CPU seconds of both ends of Python's TLS."""
    locks = make_locks(directory / "least").folder
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ServerTls(locks / CERTIFICATE_FILE, locks / KEY_FILE).context().wrap_bio(there, back, server_side=True)
    context = ssl.create_default_context(cafile=str(locks / CA_FILE))
    client = context.wrap_bio(back, there, server_hostname="127.0.0.1")
    for each in (client, server, client, server):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            continue
    received, sending_s, receiving_s = memoryview(bytearray(len(sent))), 0.0, 0.0
    for _ in range(times):
        began_s = time.process_time()
        client.write(sent)
        sent_s = time.process_time()
        filled = 0
        while filled < len(sent):
            filled += _read_into(server, received[filled:])
        sending_s, receiving_s = sending_s + sent_s - began_s, receiving_s + time.process_time() - sent_s
    return sending_s, receiving_s


def _read_into(end: ssl.SSLObject, buffer: memoryview) -> int:
    # With a buffer it gives a number, whatever its types say.
    return cast(int, end.read(len(buffer), cast(bytearray, buffer)))
