"""The APIs: their keys, names, messages and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from types import MappingProxyType
from typing import Final

from broker.wire.errors import UnsupportedVersion
from broker.wire.schema import Message


class ApiKey(IntEnum):
    """Kafka's API keys, with Kafka's names; only those that have tables here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


PRODUCE_ADVERTISED_MIN_VERSION: Final = 0
"""Advertised, though decoding begins at 3: older librdkafka switches compression off otherwise (KAFKA-18659)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `min_version` is what a broker advertises; `request.VERSIONS` is what can be decoded."""

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible_since: int


def _load(key: ApiKey) -> Api:
    """Find the tables of a key by Kafka's naming: FIND_COORDINATOR is in find_coordinator, as FindCoordinator..."""
    module = import_module(f"broker.wire.messages.{key.name.lower()}")
    name = "".join(word.capitalize() for word in key.name.split("_"))
    request: type[Message] = getattr(module, f"{name}Request")
    response: type[Message] = getattr(module, f"{name}Response")
    low, high = request.VERSIONS
    if key is ApiKey.PRODUCE:
        low = PRODUCE_ADVERTISED_MIN_VERSION
    return Api(key, name, request, response, low, high, request.FLEXIBLE_SINCE)


API: Final[Mapping[int, Api]] = MappingProxyType({int(key): _load(key) for key in ApiKey})


def request_header_version(key: int, version: int) -> int:
    """2 for flexible versions, else 1 (version 0 has no client id and belonged to an API that is gone)."""
    return 2 if version >= _api(key).flexible_since else 1


def response_header_version(key: int, version: int) -> int:
    """1 for flexible versions, else 0; always 0 for ApiVersions, whose reader does not know the version yet."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= _api(key).flexible_since else 0


def _api(key: int) -> Api:
    api = API.get(key)
    if api is None:
        raise UnsupportedVersion(f"API key {key} is not known")
    return api
