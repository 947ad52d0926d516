"""An application at the site that will be lost: it writes until it dies, and says what was acknowledged.

A process of its own, because it dies with its site: a client that lived on would write its last batches to the broker
when its disk is brought back. `python -m deploy.demo.live_writer FILE SITE TOPIC` writes to a site of a farshore.toml,
and prints a line "PARTITION OFFSET" for every acknowledged record.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from broker.client.site import Site
from deploy.config import load
from deploy.demo.flights import flights
from deploy.demo.traffic import zstd_producer

BURST_RECORDS = 400


async def write(site: Site, topic: str) -> None:
    """Write bursts for ever; each is acknowledged before the next."""
    producer = await zstd_producer(site)
    await producer.start()
    endless = itertools.cycle(flights())
    while True:
        sent = [
            await producer.send(topic, flight.value, key=flight.key, timestamp_ms=flight.timestamp_ms)
            for flight in itertools.islice(endless, BURST_RECORDS)
        ]
        for metadata in await asyncio.gather(*sent):
            print(metadata.partition, metadata.offset)
        sys.stdout.flush()


if __name__ == "__main__":
    file, name, topic = sys.argv[1:]
    asyncio.run(write(load(Path(file)).site(name), topic))
