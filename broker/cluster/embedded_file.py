"""The form of metadata.json. Fields that came later have defaults, so that the file of every earlier version is
read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.access.acls import AclBinding, ResourcePattern
from broker.cluster.metadata import Configs, DeletedTopic, PartitionState, PatternAcls, TopicState, new_secret
from broker.cluster.metadata_store import MetadataUnreadable
from broker.wire.vocabulary import TopicPartition

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Contents:
    """`configs` are those of all but topics, by ConfigResource.path; a topic has its own."""

    cluster_id: str
    next_producer_id: int = 0
    broker_epoch: int = 0
    controller_epoch: int = 0
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    configs: Mapping[str, Configs] = field(default_factory=dict)
    topic_deletions: frozenset[str] = frozenset()
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    preferred_elections: frozenset[TopicPartition] = frozenset()
    deleted_topics: Mapping[uuid.UUID, DeletedTopic] = field(default_factory=dict)
    acls: Mapping[ResourcePattern, PatternAcls] = field(default_factory=dict)
    secret: bytes = field(default_factory=new_secret, repr=False)
    """One that is not in the file yet is there with the next change, before anybody is served."""


Encoded = dict[str, tuple[TopicState, str]]
"""Topics as they were written, with their text."""


def encode(contents: Contents, earlier: Encoded) -> tuple[str, Encoded]:
    """The file's text. A topic may have thousands of partitions: only what changed is put into words again."""
    encoded: Encoded = {}
    for name, topic in contents.topics.items():
        known = earlier.get(name)
        encoded[name] = known if known is not None and known[0] is topic else (topic, _encode_topic(topic))
    document = {
        "format": FORMAT,
        "cluster_id": contents.cluster_id,
        "secret": contents.secret.hex(),
        "next_producer_id": contents.next_producer_id,
        "broker_epoch": contents.broker_epoch,
        "controller_epoch": contents.controller_epoch,
        # Farshore before its clusters kept registrations here, and wants the field.
        "brokers": [],
        "configs": {path: {"values": dict(c.values), "version": c.version} for path, c in contents.configs.items()},
        "topic_deletions": sorted(contents.topic_deletions),
        "reassignments": [[*where, list(replicas)] for where, replicas in contents.reassignments.items()],
        "preferred_elections": [list(where) for where in sorted(contents.preferred_elections)],
        "deleted_topics": [
            {"name": t.name, "topic_id": str(t.topic_id), "partitions": t.partitions, "brokers": sorted(t.nodes)}
            for t in contents.deleted_topics.values()
        ],
        "acls": [
            {"pattern": list(pattern), "version": acls.version, "acls": sorted(list(acl[3:]) for acl in acls.bindings)}
            for pattern, acls in sorted(contents.acls.items())
        ],
    }
    topics = ",\n".join(text for _, text in encoded.values())
    return json.dumps(document, indent=1)[:-2] + ',\n "topics": [\n' + topics + "\n ]\n}", encoded


def decode(data: bytes, path: Path) -> Contents:
    """Raises MetadataUnreadable."""
    try:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise MetadataUnreadable(f"{path} has format {document['format']}, this farshore reads {FORMAT}")
        topics = [_decode_topic(topic) for topic in document["topics"]]
        return Contents(
            cluster_id=document["cluster_id"],
            next_producer_id=document["next_producer_id"],
            broker_epoch=document["broker_epoch"],
            controller_epoch=document.get("controller_epoch", 0),
            topics={topic.name: topic for topic in topics},
            configs={name: Configs(c["values"], c["version"]) for name, c in document.get("configs", {}).items()},
            topic_deletions=frozenset(document.get("topic_deletions", ())),
            reassignments={TopicPartition(t, p): tuple(r) for t, p, r in document.get("reassignments", ())},
            preferred_elections=frozenset(TopicPartition(*each) for each in document.get("preferred_elections", ())),
            deleted_topics={t.topic_id: t for t in map(_decode_deleted, document.get("deleted_topics", ()))},
            acls=dict(map(_decode_acls, document.get("acls", ()))),
            secret=bytes.fromhex(document["secret"]) if "secret" in document else new_secret(),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataUnreadable(f"{path} cannot be read: {error!r}") from error


def _decode_deleted(document: dict[str, Any]) -> DeletedTopic:
    topic_id, nodes = uuid.UUID(document["topic_id"]), frozenset(document["brokers"])
    return DeletedTopic(document["name"], topic_id, document["partitions"], nodes)


def _decode_acls(document: dict[str, Any]) -> tuple[ResourcePattern, PatternAcls]:
    pattern = ResourcePattern(*document["pattern"])
    return pattern, PatternAcls(frozenset(AclBinding(*pattern, *acl) for acl in document["acls"]), document["version"])


def _encode_topic(topic: TopicState) -> str:
    """As JSON, one line for each partition."""
    rest = {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "configs": dict(topic.configs),
        "version": topic.version,
        "config_version": topic.config_version,
    }
    partitions = ",\n  ".join(json.dumps(_partition(state)) for state in topic.partitions)
    return json.dumps(rest)[:-1] + ', "partitions": [\n  ' + partitions + "\n ]}"


def _partition(state: PartitionState) -> dict[str, Any]:
    document = {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "replicas": state.replicas,
        "isr": state.isr,
        "controller_epoch": state.controller_epoch,
        "version": state.version,
    }
    if state.adding_replicas or state.removing_replicas:
        document |= {"adding_replicas": state.adding_replicas, "removing_replicas": state.removing_replicas}
    return {**document, "recovering": True} if state.recovering else document


def _decode_topic(document: dict[str, Any]) -> TopicState:
    partitions = tuple(
        PartitionState(
            leader=partition["leader"],
            leader_epoch=partition["leader_epoch"],
            replicas=tuple(partition["replicas"]),
            isr=tuple(partition["isr"]),
            adding_replicas=tuple(partition.get("adding_replicas", ())),
            removing_replicas=tuple(partition.get("removing_replicas", ())),
            controller_epoch=partition.get("controller_epoch", 0),
            recovering=partition.get("recovering", False),
            version=partition.get("version", 0),
        )
        for partition in document["partitions"]
    )
    return TopicState(
        document["name"],
        uuid.UUID(document["topic_id"]),
        partitions,
        document["configs"],
        document["version"],
        document.get("config_version", 0),
    )
