"""Users, client ids and addresses, as what is set on them stands in the metadata: Kafka's names of znodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_plus

from broker.cluster.metadata import DEFAULT_ENTITY

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
ENTITY_FOLDERS: Final = (USERS, CLIENTS, IPS)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_FOLDERS: Final = {USER: USERS, CLIENT_ID: CLIENTS, IP: IPS}
_TYPES: Final = {folder: entity_type for entity_type, folder in _FOLDERS.items()}

Entity = Mapping[str, str | None]
"""Names by type, in Kafka's words; None: all that have nothing of their own."""


def sanitized(name: str | None) -> str:
    """As a part of a path: org.apache.kafka.common.utils.Sanitizer."""
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def path_of(entity: Entity) -> str:
    """ConfigResource.path. Of a user, a client id, a client id of a user, or an address."""
    return "/".join(f"{_FOLDERS[kind]}/{sanitized(entity[kind])}" for kind in (USER, CLIENT_ID, IP) if kind in entity)


def entity_of(path: str) -> Entity:
    parts = path.split("/")
    names = (None if name == DEFAULT_ENTITY else unquote_plus(name) for name in parts[1::2])
    return {_TYPES[folder]: name for folder, name in zip(parts[::2], names, strict=True)}
