"""The peer: what people write when they need a mirror quickly, a confluent-kafka consume and produce loop.

`python -m tests.bench.loop_peer SOURCE TARGET TOPIC RECORDS CODEC` says when it begins and when it
has copied, and waits to be measured and ended.
"""

from __future__ import annotations

import os
import signal
import sys

from confluent_kafka import Consumer, Producer

CONSUME_RECORDS = 10_000
BEGINS = "begins"
COPIED = "copied"


def copy(source: str, target: str, topic: str, records: int, codec: str) -> None:
    """Copy `records` records of a topic, keeping key, value, headers, timestamp and partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": f"loop-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": target,
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
    copy(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
