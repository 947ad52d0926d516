"""Which topic names are allowed (Kafka's Topic.validate)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.limits import TOPIC_NAME_CHARS_MAX
from broker.topics.errors import InvalidTopicName
from broker.wire.coordinator_keys import OFFSETS_TOPIC

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises InvalidTopicName. A name becomes part of a path, so nothing else may pass."""
    if not name:
        raise InvalidTopicName("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicName("Topic name is invalid: '.' or '..' is not allowed")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopicName(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_CHARS_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicName(
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )


def check_collision(name: str, others: Iterable[str]) -> None:
    """Raises InvalidTopicName where `.` and `_` are the only difference: Kafka's metric names could not tell them
    apart.
    """
    folded = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == folded:
            raise InvalidTopicName(f"Topic '{name}' collides with existing topics: {other}")
