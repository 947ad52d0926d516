"""Which quota holds for a client, and who shares it: Kafka's order, the most particular first. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from broker.access.entities import CLIENT_ID, IP, USER, path_of

NAMES_REMEMBERED: Final = 1000
NAME_CHARACTERS_KEPT: Final = 256


def kept_name(name: str) -> str:
    """What stands for a user or a client id here: clients choose names of 32 KiB, and thousands of them."""
    if len(name) <= NAME_CHARACTERS_KEPT:
        return name
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


class Limit(NamedTuple):
    """`user` and `client_id` are those who share it; "": whoever it is."""

    value: float
    user: str
    client_id: str


@lru_cache(NAMES_REMEMBERED)
def _paths(user: str, client_id: str) -> tuple[tuple[str, str, str], ...]:
    """Of names that are kept: where a limit may stand, with those who share it then. Who has no client id has no
    quota of client ids.
    """
    own, every = path_of({USER: user}), path_of({USER: None})
    if not client_id:
        return (own, user, ""), (every, user, "")
    return (
        (path_of({USER: user, CLIENT_ID: client_id}), user, client_id),
        (path_of({USER: user, CLIENT_ID: None}), user, client_id),
        (own, user, ""),
        (path_of({USER: None, CLIENT_ID: client_id}), user, client_id),
        (path_of({USER: None, CLIENT_ID: None}), user, client_id),
        (every, user, ""),
        (path_of({CLIENT_ID: client_id}), "", client_id),
        (path_of({CLIENT_ID: None}), "", client_id),
    )


def limit_of(limits: Mapping[str, float], user: str, client_id: str) -> Limit | None:
    """`limits` of one kind, by ConfigResource.path; its names and these are those that are kept."""
    for path, of_user, of_client in _paths(user, client_id):
        value = limits.get(path)
        if value is not None:
            return Limit(value, of_user, of_client)
    return None


def limit_of_address(limits: Mapping[str, float], address: str) -> float | None:
    own = limits.get(path_of({IP: address}))
    return limits.get(path_of({IP: None})) if own is None else own
