"""What an operator does to topics of a link that runs, or will: mirror no more of them, and mirror them again.

It is written as nobody's producer, so that nobody is fenced for it (`wishes.py`), into each unit's part of the state,
since a topic's partitions are dealt among the units. Cut short it may be so in some units only; then do it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.cutting import state_units
from mirror.offsets.entries import encode_key, encode_value, encode_void_key
from mirror.offsets.state import read_entries
from mirror.offsets.topic_entries import TopicPause, VoidPause


async def pause_topics(link: Link, target: Cluster, operation_id: str, topics: Iterable[str]) -> None:
    """Mirror nothing more of these source topics until they are resumed; one that is paused already stays as it is.

    Who runs the link takes nothing more of them when it sees that, within seconds; what is on its way still arrives.
    May be repeated. Raises ClientError, StateDamaged.
    """
    known, now_ms = (await read_entries(link, target, only=())).paused, target.clock.now_ms()
    pauses = [known.get(topic) or TopicPause(topic, operation_id, now_ms) for topic in topics]
    await _write(link, target, [(encode_key(pause), encode_value(pause)) for pause in pauses])


async def resume_topics(link: Link, target: Cluster, topics: Iterable[str]) -> None:
    """Mirror them again, from where each stood. May be repeated. Raises ClientError, StateDamaged."""
    await _write(link, target, [(encode_void_key(VoidPause(topic)), None) for topic in topics])


async def _write(link: Link, target: Cluster, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
    now_ms = target.clock.now_ms()
    records = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)]
    units, written = await state_units(link, target), list[Link]()
    while units != written:  # a link that is cut anew in between may have carried less
        for unit in units:
            await append(target, TopicPartition(link.state_topic, unit.state_partition), encode_batch(records))
        units, written = await state_units(link, target), units
