"""How entries stand in a link's state: as JSON, and how the keys begin of those that there are most of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

PARTITION_KEYS: Final = (b'["position",', b'["interval",', b'["page",', b'["origins",')
"""Before the topic and the number, in the keys of a partition's position and map."""
UNSAID: Final = {
    "next_try_at_ms": -1,
    "epochs_to": -1,
    "left_out": (),
    "after": (),
    "marker_may_follow": False,
    "records_behind": -1,
}
"""Values that are left out where an entry is written: as versions before there were these wrote it, and read it."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def dump_json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


def check_key(decoded: Any) -> list[Any]:
    """[kind, ...], of what a key says as JSON; raises ValueError for what is no key of a state topic."""
    if not isinstance(decoded, list) or not decoded:
        raise ValueError("not a key of a link's state")
    return decoded


def partition_prefixes(topic: str, partition: int) -> tuple[bytes, ...]:
    """How those keys begin of this partition: those of no other do."""
    where = dump_json([topic, partition])[1:-1]
    return tuple(kind + where + end for kind in PARTITION_KEYS for end in (b",", b"]"))


def load_all(texts: Sequence[bytes]) -> Sequence[Any]:
    """What each of these says as JSON; None for all of them where one cannot be read: then each is to be looked at."""
    try:
        found = json.loads(b"[%s]" % b",".join(texts))
    except ValueError:
        found = []
    return found if len(found) == len(texts) else [None] * len(texts)
