"""What TLS costs, as tables."""

from __future__ import annotations

from rich import box
from rich.table import Table

from tests.bench.broker_bench import BATCH_BYTES
from tests.bench.data import PARTITIONS, RECORD_BYTES
from tests.bench.measure import Measured
from tests.bench.mirror_bench import cpu, speed
from tests.bench.tables import spread
from tests.bench.tls_bench import Least, TlsResults
from tests.bench.tls_doors import CIPHER, KAFKA_VERSION, PROTOCOLS


def tls_broker_table(results: TlsResults) -> Table:
    """Brokers by both doors; the last columns are ratios."""
    table = Table(
        title=f"Broker against Apache Kafka {KAFKA_VERSION}, {CIPHER}: batches of up to {BATCH_BYTES} bytes, CPU-s/GB "
        "of the broker, Java perf clients",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("")
    for kind in ("farshore", "Kafka"):
        for heading in ("plaintext", "SASL_SSL", "SASL_SSL\nMB/s"):
            table.add_column(f"{kind}\n{heading}", justify="right")
    for heading in ("TLS /\nplain", "Kafka's", "ours / Kafka\nplaintext", "ours / Kafka\nSASL_SSL"):
        table.add_column(heading, justify="right")
    for name in ("produce", "fetch"):
        ours, kafka = (
            [getattr(results.brokers[kind, protocol], name) for protocol in PROTOCOLS] for kind in ("farshore", "kafka")
        )
        cells = [
            cell for plain, locked in (ours, kafka) for cell in (*map(spread, (plain, locked)), f"{speed(locked):.0f}")
        ]
        ratios = ((ours[1], ours[0]), (kafka[1], kafka[0]), (ours[0], kafka[0]), (ours[1], kafka[1]))
        table.add_row(name, *cells, *(_ratio(*pair) for pair in ratios))
    return table


def tls_mirror_table(results: TlsResults) -> Table:
    """The mirror and its brokers, all ours, and the loop."""
    table = Table(
        title=f"Mirror, farshore to farshore, {CIPHER}: {RECORD_BYTES}-byte records, {PARTITIONS} partitions, "
        "uncompressed; CPU-s/GB",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    for heading in ("", "plaintext", "SASL_SSL", "TLS /\nplain", "plaintext\nMB/s", "SASL_SSL\nMB/s"):
        table.add_column(heading, justify="right" if heading else "left")
    plain, locked = (results.mirrors[protocol] for protocol in PROTOCOLS)
    for what, name in (
        ("mirror", "mirror"),
        ("broker that it reads", "source"),
        ("broker that it writes to", "target"),
        ("loop of librdkafka", "loop"),
    ):
        pair: tuple[list[Measured], list[Measured]] = getattr(plain, name), getattr(locked, name)
        speeds = (f"{speed(each):.0f}" for each in pair)
        table.add_row(what, *map(spread, pair), _ratio(pair[1], pair[0]), *speeds)
    return table


def least_line(least: Least) -> str:
    return (
        f"{CIPHER} in one process, CPU-s/GB: the cipher alone {least.cipher_s:.2f}, Python's TLS in memory "
        f"{least.sending_s:.2f} to send, {least.receiving_s:.2f} to receive"
    )


def _ratio(one: list[Measured], other: list[Measured]) -> str:
    return f"{cpu(one) / cpu(other):.2f}x"
