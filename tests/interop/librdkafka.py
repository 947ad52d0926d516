"""librdkafka's admin client, asked again where one of its questions stands."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from tests.interop.servers import wait_until

DESCRIBED_S: Final = 10.0
"""Of one question: one stood for a minute beside Kafka, cause unknown."""
TIMEOUT_S: Final = 180.0


def describe_group(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    """AssertionError where no answer comes."""
    answers: list[ConsumerGroupDescription] = []

    def answered() -> bool:
        asked = admin.describe_consumer_groups([group], request_timeout=DESCRIBED_S)
        try:
            answers.append(asked[group].result(TIMEOUT_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
        return bool(answers)

    wait_until(answered, TIMEOUT_S, f"{group} to be described")
    return answers[0]
