"""The peer: what people write when they need a mirror quickly, a confluent-kafka consume and produce loop.

`python -m tests.bench.loop_peer SOURCE TARGET TOPIC RECORDS CODEC` says when it begins and when it
has copied, and waits to be measured and ended. SOURCE and TARGET are bootstrap servers, or JSON files of settings.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer

CONSUME_RECORDS = 10_000
BEGINS = "begins"
COPIED = "copied"


def settings(word: str) -> Mapping[str, str]:
    """How a site is reached."""
    if not word.endswith(".json"):
        return {"bootstrap.servers": word}
    found: Mapping[str, str] = json.loads(Path(word).read_text(encoding="utf-8"))
    return found


def copy(source: Mapping[str, str], target: Mapping[str, str], topic: str, records: int, codec: str) -> None:
    """Copy `records` records of a topic, keeping key, value, headers, timestamp and partition."""
    consumer = Consumer(
        {
            **source,
            "group.id": f"loop-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer(
        {
            **target,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    print(BEGINS, flush=True)
    consumer.subscribe([topic])
    copied = 0
    try:
        while copied < records:
            for message in consumer.consume(CONSUME_RECORDS, timeout=1.0):
                if message.error():
                    raise RuntimeError(message.error())
                while True:
                    try:
                        producer.produce(
                            topic,
                            message.value(),
                            message.key(),
                            message.partition(),
                            timestamp=message.timestamp()[1],
                            headers=message.headers(),
                        )
                        break
                    except BufferError:
                        producer.poll(0.05)
                copied += 1
            producer.poll(0)
        producer.flush()
    finally:
        consumer.close()
    print(COPIED, flush=True)
    signal.pause()


if __name__ == "__main__":
    copy(settings(sys.argv[1]), settings(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
