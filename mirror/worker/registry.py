"""Where batches come from: the registry of the mirrors' producer ids on each target cluster, as one link reads it.

A link registers its producer id, and the sites whose records it brings, before its first batch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from broker.client.cluster import Cluster
from broker.client.errors import LogUnreadable
from broker.client.fanout import both, split_failures
from broker.client.model import Topic
from broker.client.offsets import list_each_offset, log_end_offsets
from broker.client.scan import OffsetSpan, scan_log, scan_records
from broker.client.topics import describe_topics
from broker.wire.batch import only_from
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.records import Record
from broker.wire.vocabulary import LATEST, TopicPartition
from mirror.errors import RegistryLost, StateDamaged
from mirror.link import PRODUCERS_TOPIC, STATE_PREFIX
from mirror.offsets.state_writer import REGISTRY_CONTENT, check_compacted
from mirror.origins import Registration, SiteIdentity, decode_producer_id, decode_registration

REGISTRY = TopicPartition(PRODUCERS_TOPIC, 0)


def identify(cluster: Cluster) -> SiteIdentity:
    """The cluster as it is called here, and as what it says of itself."""
    addresses = frozenset(f"{node.host}:{node.port}" for node in cluster.nodes.values())
    return SiteIdentity(cluster.site.name, cluster.cluster_id, addresses)


_POSITION_KEY = b'["position",'
"""How the keys begin, in a link's state, of what is proved of a partition."""


class OriginRegistry:
    """The registered producer ids of one cluster, read as far as was needed. Sites are called as `sites` says."""

    def __init__(self, cluster: Cluster, sites: Iterable[SiteIdentity] = ()) -> None:
        self._cluster = cluster
        self._sites = tuple(sites)
        self._as_written: dict[int, Registration] = {}
        self._registered: dict[int, Registration] = {}
        self._asked: set[tuple[int, int]] = set()
        self._read_to = 0
        self._topic_id: UUID | None = None
        self.entries_read = 0
        """While it stands, nothing else is known."""
        self._turn = asyncio.Lock()
        """Of two that read at the same time one could put back what the other has read beyond it."""

    def registered(self) -> tuple[Registration, ...]:
        """All that is known now."""
        return tuple(self._registered.values())

    def as_written(self) -> tuple[Registration, ...]:
        """All that is known now, with the sites called as the links call them."""
        return tuple(self._as_written.values())

    def call_sites(self, sites: Sequence[SiteIdentity]) -> None:
        """From now on the sites are called so, also in what was read before."""
        self._sites = tuple(sites)
        self._registered = {known: one.as_seen_by(self._sites) for known, one in self._as_written.items()}

    @property
    def names_origins(self) -> bool:
        """Whether there is a link whose state must be asked where its batches came from."""
        return any(registered.named_from is not None for registered in self._registered.values())

    def find(self, producer_id: int) -> Registration | None:
        """None: a local producer's, or no producer's. Call `learn` first."""
        return self._registered.get(producer_id)

    async def learn(self, records: memoryview) -> None:
        """Make sure that the origin of every producer in these batches is known.

        A link registers before its first data batch and, where it brings more than before, before the first with a new
        epoch: so a producer that has written data with an epoch is asked about once. Raises ClientError.
        """
        if only_from(records, self._asked):
            return
        async with self._turn:
            unasked: set[tuple[int, int]] = set()
            with suppress(WireError):  # what is damaged is told by who reads it; nothing behind it is taken
                for header, _ in iter_fetched(records):
                    producer = (header.producer_id, header.producer_epoch)
                    # A fence's marker stands before the registration that follows the fence.
                    if header.producer_id >= 0 and not header.is_control and producer not in self._asked:
                        unasked.add(producer)
            if unasked:
                await self._read_on()
                self._asked |= unasked

    async def check_kept(self) -> None:
        """Refuse to run where retention would delete registrations: records would go round. Raises ClientError."""
        if await describe_topics(self._cluster, [PRODUCERS_TOPIC]):
            await check_compacted(self._cluster, {PRODUCERS_TOPIC: REGISTRY_CONTENT})

    async def refresh(self) -> None:
        """Read on to the registry's present end. Raises RegistryLost where it is not the one that was read before."""
        async with self._turn:
            await self._read_on()

    async def _read_on(self) -> None:
        describing, ends = describe_topics(self._cluster, [PRODUCERS_TOPIC]), dict[TopicPartition, int]()
        if self._topic_id is None:
            topic = (await describing).get(PRODUCERS_TOPIC)
        else:  # over a distance a round trip less
            described, told = await both(describing, list_each_offset(self._cluster, {REGISTRY: LATEST}))
            topic, ends = (
                described.get(PRODUCERS_TOPIC),
                {at: end.offset for at, end in split_failures(told)[0].items()},
            )
        if topic is None:
            self._refuse_loss(is_lost=self._read_to > 0)
            return
        end = (ends or await log_end_offsets(self._cluster, [REGISTRY]))[REGISTRY]
        self._refuse_loss(is_lost=end < self._read_to or self._topic_id not in (None, topic.topic_id))
        self._topic_id = topic.topic_id
        await scan_records(self._cluster, REGISTRY, OffsetSpan(self._read_to, end), self._apply)
        self._read_to = max(self._read_to, end)

    def _refuse_loss(self, *, is_lost: bool) -> None:
        if is_lost:
            raise RegistryLost(f"{PRODUCERS_TOPIC} at {self._cluster.site.name} was deleted while the link ran")

    async def refuse_unknown_writers(self, topics: Mapping[str, Topic]) -> None:
        """Raise RegistryLost where a link mirrored to this cluster, as its state there says, that is not registered.
        `topics` are the cluster's.

        Its records would be taken for local ones. An entry of that state that cannot be understood hides no other; of a
        log that cannot be read nobody knows what it says.
        """
        known = {(registered.link, registered.unit) for registered in self.registered()}
        site = self._cluster.site.name
        states = {name: topic for name, topic in topics.items() if name.startswith(STATE_PREFIX)}
        for name, topic in sorted(states.items()):
            link = name.removeprefix(STATE_PREFIX)
            for unit in sorted(part.partition for part in topic.partitions if (link, part.partition) not in known):
                what = f"link {link} mirrored to {site}"
                try:
                    if not await _has_positions(self._cluster, TopicPartition(name, unit), self._as_written):
                        continue
                except LogUnreadable as error:
                    what = f"whether {what} cannot be read ({error})"
                raise RegistryLost(
                    f"{what}, and {PRODUCERS_TOPIC} there does not say so",
                    hint=f"run {link}: it registers at its start, and then this one goes on; or, if it is gone"
                    f" for good, delete {name} at {site}: what it brought then counts as {site}'s own",
                )

    def _apply(self, record: Record) -> None:
        try:
            self.entries_read += 1
            producer_id = decode_producer_id(record.key or b"")
            if record.value is None:
                self._as_written.pop(producer_id, None)
                self._registered.pop(producer_id, None)
                return
            registered = decode_registration(producer_id, record.value)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            where = f"{PRODUCERS_TOPIC} offset {record.offset} at {self._cluster.site.name}"
            raise StateDamaged(f"{where}: {error}") from error
        self._as_written[producer_id] = registered
        self._registered[producer_id] = registered.as_seen_by(self._sites)


async def registered_at(cluster: Cluster) -> tuple[Registration, ...]:
    """The links that write to a cluster, as they say there. Raises ClientError, StateDamaged."""
    registry = OriginRegistry(cluster)
    await registry.check_kept()
    await registry.refresh()
    return registry.registered()


async def _has_positions(cluster: Cluster, state: TopicPartition, registered: Container[int]) -> bool:
    """Whether a link's state has a position of any partition whose writer is not registered. Raises ClientError.

    Where the link was cut anew there may be positions of another unit's writing that this one never began with.
    """
    found: dict[bytes, bytes] = {}

    def take(record: Record) -> None:
        key = record.key or b""
        if key.startswith(_POSITION_KEY):
            found.pop(key, None)
            if record.value is not None:
                found[key] = record.value

    await scan_log(cluster, state, take)
    return any(_writer_of(value) not in registered for value in found.values())


def _writer_of(position: bytes) -> int:
    """The producer id of who wrote a position; -1, nobody's, where it cannot be understood."""
    try:
        return int(json.loads(position)["writer"][0])
    except (ValueError, KeyError, TypeError, IndexError):
        return -1
