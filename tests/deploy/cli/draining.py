"""A drain that does not end: it takes two seconds else, and may be over before anybody looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

TIMEOUT_S: Final = 180.0
OPEN_MS: Final = 600_000
"""On a busy machine a minute, after which brokers abort it themselves, is over before the commands are."""


@contextmanager
def drain_held_up(source: str, topic: str = "flights") -> Iterator[None]:
    """By a transaction that is open at the source meanwhile, and aborted then."""
    named = {"transactional.id": "holds-up", "client.id": "shop", "transaction.timeout.ms": OPEN_MS}
    producer = Producer({"bootstrap.servers": source, **named})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"never committed", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    try:
        yield
    finally:
        producer.abort_transaction(TIMEOUT_S)
