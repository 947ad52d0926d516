"""What may be set, on whom, and who is meant by a question. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from broker.access.entities import CLIENT_ID, IP, USER, Entity
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2
_WHOLE_WITHIN: Final = 1e-6


class QuotaKey(StrEnum):
    """Kafka's names. `controller_mutation_rate` is kept, and limits nothing here."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_OF_ADDRESSES: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
_OF_CLIENTS: Final = frozenset(QuotaKey) - _OF_ADDRESSES
_FRACTIONS: Final = frozenset({QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE})


class QuotaInvalid(BrokerError):
    error_code = ErrorCode.INVALID_REQUEST
    hint = "see what Kafka's kafka-configs --alter takes"


def check_entity(entity: Entity) -> None:
    """Raises QuotaInvalid."""
    if not entity:
        raise QuotaInvalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise QuotaInvalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise QuotaInvalid(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise QuotaInvalid("Invalid client quota entity: an address has neither user nor client id")
        address = entity[IP]
        if address is not None:
            try:
                ip_address(address)
            except ValueError:
                raise QuotaInvalid(f"{address} is not a valid IP") from None


def altered(entity: Entity, values: Mapping[str, str], changes: Mapping[str, float | None]) -> dict[str, str]:
    """`values` with `changes`, of which None is a removal. Raises QuotaInvalid."""
    made = dict(values)
    for key, value in changes.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _text(entity, key, value)
    return made


def _text(entity: Entity, key: str, value: float) -> str:
    """As Kafka keeps it."""
    if key not in (_OF_ADDRESSES if IP in entity else _OF_CLIENTS):
        raise QuotaInvalid(f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise QuotaInvalid(f"Quota {key} must be greater than 0")
    if key in _FRACTIONS:
        return repr(value)
    if abs(whole := int(value + _WHOLE_WITHIN)) > 0 and abs(whole - value) <= _WHOLE_WITHIN:
        return str(whole)
    raise QuotaInvalid(f"Configuration {key} must be a Long value")


def quotas_in(values: Mapping[str, str]) -> dict[str, float]:
    """Of what is set, which may be more than quotas; hands may have left what is no number."""
    found = {}
    for key in QuotaKey:
        with suppress(ValueError):
            if key in values and (value := float(values[key])) > 0 and math.isfinite(value):
                found[str(key)] = value
    return found


class Asked(NamedTuple):
    """A part of a question. `match` None: those of all."""

    kind: str
    match_type: int
    match: str | None


def check_asked(parts: Collection[Asked]) -> None:
    """Raises QuotaInvalid."""
    kinds = [part.kind for part in parts]
    for kind, match_type, match in parts:
        if not kind:
            raise QuotaInvalid("Invalid empty entity type.")
        if kinds.count(kind) > 1:
            raise QuotaInvalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise QuotaInvalid(f"Unsupported entity type {kind}", error_code=ErrorCode.UNSUPPORTED_VERSION)
        if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            raise QuotaInvalid(f"Unknown match type {match_type}")
        if (match_type == MATCH_EXACT) is (match is None):
            raise QuotaInvalid(f"Match type {match_type} goes with a name only where it is {MATCH_EXACT}: an exact one")
    if IP in kinds and len(kinds) > 1:
        raise QuotaInvalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )


def is_meant(entity: Entity, parts: Collection[Asked], *, strict: bool) -> bool:
    """`strict`: nothing but what is asked for by its type."""
    if strict and len(entity) != len(parts):
        return False
    return all(
        part.kind in entity and (part.match_type == MATCH_SPECIFIED or entity[part.kind] == part.match)
        for part in parts
    )
