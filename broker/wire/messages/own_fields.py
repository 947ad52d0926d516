"""What farshore's brokers tell each other, and note for the next coordinator, beyond Kafka's fields: tagged fields
(KIP-482), which Kafka reads over.

Their tags are far above those that Kafka gives.
"""

from __future__ import annotations

from typing import Final

from broker.wire.schema import Struct, array, int32, string, struct

OWN_TAG: Final = 10_000


@struct
class SetConfig(Struct):
    name: str = string()
    value: str = string()


@struct
class TopicConfigs(Struct):
    """What is set on a topic; a Kafka broker reads it from ZooKeeper, where that of a topic to come is not yet."""

    version: int = int32(default=-1)
    configs: list[SetConfig] = array(SetConfig)
