"""The metadata of a cluster of one broker, in `metadata.json` of its data directory.

The file is small (a topic of 12 partitions takes about 1 kB) and rarely changed, so each change writes it whole: to a
temporary file, fsync, rename, fsync of the directory. A crash leaves the old or the new one.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.cluster.metadata_store import (
    BrokerRegistration,
    MetadataConflict,
    MetadataUnreadable,
    PartitionState,
    TopicState,
)
from broker.errors import LogStorageError
from broker.log.disk import OS_DISK, Disk

FILE_NAME: Final = "metadata.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class _Contents:
    cluster_id: str
    next_producer_id: int = 0
    broker_epoch: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)


class EmbeddedMetadataStore:
    """A MetadataStore for the one process that holds the lock of the data directory."""

    def __init__(self, path: Path, contents: _Contents, disk: Disk) -> None:
        """Use `open`."""
        self._path = path
        self._contents = contents
        self._disk = disk
        # What was last written of each topic, by its id and version.
        self._encoded: dict[tuple[uuid.UUID, int], str] = {}

    @classmethod
    def open(cls, data_dir: Path, cluster_id: str | None = None, disk: Disk = OS_DISK) -> EmbeddedMetadataStore:
        """Reads the file, or begins a cluster with `cluster_id` (None: a new random one).

        Raises MetadataUnreadable (also when the file belongs to another cluster than asked for), LogStorageError.
        """
        path = data_dir / FILE_NAME
        try:
            data = disk.read_file(path)
        except FileNotFoundError:
            store = cls(path, _Contents(cluster_id or new_cluster_id()), disk)
            store._save(store._contents)
            return store
        except OSError as error:
            raise LogStorageError(f"cannot read {path}: {error}") from error
        contents = _decode(data, path)
        if cluster_id is not None and contents.cluster_id != cluster_id:
            raise MetadataUnreadable(
                f"{path} belongs to cluster {contents.cluster_id}, not to {cluster_id}",
                hint="check data_dir and cluster_id of this broker",
            )
        return cls(path, contents, disk)

    @property
    def cluster_id(self) -> str:
        return self._contents.cluster_id

    def topics(self) -> Mapping[str, TopicState]:
        return self._contents.topics

    def create_topic(self, topic: TopicState) -> TopicState:
        if topic.name in self._contents.topics:
            raise MetadataConflict(f"topic {topic.name} exists")
        created = replace(topic, version=0)
        self._save(replace(self._contents, topics={**self._contents.topics, topic.name: created}))
        return created

    def update_topics(self, topics: Sequence[TopicState]) -> list[TopicState]:
        changed = []
        for topic in topics:
            self._check_version(topic)
            changed.append(replace(topic, version=topic.version + 1))
        if changed:
            merged = {**self._contents.topics, **{topic.name: topic for topic in changed}}
            self._save(replace(self._contents, topics=merged))
        return changed

    def delete_topic(self, topic: TopicState) -> None:
        self._check_version(topic)
        left = {name: other for name, other in self._contents.topics.items() if name != topic.name}
        self._save(replace(self._contents, topics=left))

    def register_broker(self, registration: BrokerRegistration) -> int:
        epoch = self._contents.broker_epoch + 1
        brokers = {**self._contents.brokers, registration.node_id: registration}
        self._save(replace(self._contents, broker_epoch=epoch, brokers=brokers))
        return epoch

    def brokers(self) -> Mapping[int, BrokerRegistration]:
        return self._contents.brokers

    def allocate_producer_ids(self, count: int) -> range:
        first = self._contents.next_producer_id
        self._save(replace(self._contents, next_producer_id=first + count))
        return range(first, first + count)

    def _check_version(self, topic: TopicState) -> None:
        known = self._contents.topics.get(topic.name)
        if known is None or (known.topic_id, known.version) != (topic.topic_id, topic.version):
            raise MetadataConflict(f"topic {topic.name} was changed since version {topic.version}")

    def _save(self, contents: _Contents) -> None:
        """The new contents count only once they are on the disk."""
        # A topic may have thousands of partitions: only what changed is put into words again.
        encoded = {
            (topic.topic_id, topic.version): self._encoded.get((topic.topic_id, topic.version)) or _encode_topic(topic)
            for topic in contents.topics.values()
        }
        document = {
            "format": FORMAT,
            "cluster_id": contents.cluster_id,
            "next_producer_id": contents.next_producer_id,
            "broker_epoch": contents.broker_epoch,
            "brokers": [asdict(broker) for broker in contents.brokers.values()],
        }
        text = json.dumps(document, indent=1)[:-2] + ',\n "topics": [\n' + ",\n".join(encoded.values()) + "\n ]\n}"
        try:
            self._disk.write_file(self._path, text.encode(), durable=True)
        except OSError as error:
            raise LogStorageError(f"cannot write {self._path}: {error}") from error
        self._contents, self._encoded = contents, encoded


def new_cluster_id() -> str:
    """A cluster id as Kafka makes them: a random UUID, 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _decode(data: bytes, path: Path) -> _Contents:
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise MetadataUnreadable(f"{path} has format {document['format']}, this farshore reads {FORMAT}")
        brokers = [BrokerRegistration(**broker) for broker in document["brokers"]]
        topics = [_decode_topic(topic) for topic in document["topics"]]
        return _Contents(
            cluster_id=document["cluster_id"],
            next_producer_id=document["next_producer_id"],
            broker_epoch=document["broker_epoch"],
            brokers={broker.node_id: broker for broker in brokers},
            topics={topic.name: topic for topic in topics},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataUnreadable(f"{path} cannot be read: {error!r}") from error


def _encode_topic(topic: TopicState) -> str:
    """As JSON, one line for each partition."""
    partitions = [
        json.dumps({"leader": p.leader, "leader_epoch": p.leader_epoch, "replicas": p.replicas, "isr": p.isr})
        for p in topic.partitions
    ]
    rest = {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "configs": dict(topic.configs),
        "version": topic.version,
    }
    return json.dumps(rest)[:-1] + ', "partitions": [\n  ' + ",\n  ".join(partitions) + "\n ]}"


def _decode_topic(document: dict[str, Any]) -> TopicState:
    partitions = tuple(
        PartitionState(
            leader=partition["leader"],
            leader_epoch=partition["leader_epoch"],
            replicas=tuple(partition["replicas"]),
            isr=tuple(partition["isr"]),
        )
        for partition in document["partitions"]
    )
    topic_id = uuid.UUID(document["topic_id"])
    return TopicState(document["name"], topic_id, partitions, document["configs"], document["version"])
