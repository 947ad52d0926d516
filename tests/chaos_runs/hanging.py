"""Calls of clients' libraries that never come back, by their own known faults."""

from __future__ import annotations

import contextlib
import linecache
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from confluent_kafka import Consumer, KafkaException

LEAVING_S: Final = 5.0
GIVEN_BACK_S: Final = 0.1
CLOSING_S: Final = 30.0
NEVER_CLOSED: Final = "in close (librdkafka's issue 5476)"

KNOWN_HANGS: Final = {
    # It takes no notice of its own time-out, and waits for a broker that is not in the metadata any more.
    ".send_offsets_to_transaction(": "in send_offsets_to_transaction (librdkafka's issues 5456 and 5511)",
}


def known_hang(frame: FrameType) -> str | None:
    """Which known fault a thread stands in, by the call that it stands at; None: what it waits for is not known."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return next((fault for call, fault in KNOWN_HANGS.items() if call in line), None)


def closed(consumer: Consumer, within_s: float = CLOSING_S) -> bool:
    """Whether `close` came back in time. It never does where two of the client's threads wait for each other's lock, as
    they may from a broker's leaving the metadata on (librdkafka's issue 5476): such a consumer is given nothing more.
    """
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(within_s)
    return not closing.is_alive()


@contextlib.contextmanager
def leaving(consumer: Consumer, hangs: Callable[[str], None]) -> Iterator[Consumer]:
    """Closes it once it has given its partitions back: to give them back amid `close` may never end (librdkafka's issue
    4884), and it holds the interpreter's lock meanwhile, so that the whole process stands still. `hangs` is told of one
    that does not close.
    """
    try:
        yield consumer
        with contextlib.suppress(KafkaException):
            consumer.unsubscribe()
            give_up_s = time.monotonic() + LEAVING_S
            while consumer.assignment() and time.monotonic() < give_up_s:
                consumer.poll(GIVEN_BACK_S)
    finally:
        if not closed(consumer):
            hangs(NEVER_CLOSED)
