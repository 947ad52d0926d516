"""How entries stand in a link's state: as JSON, and how the keys begin of those that there are most of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

_BEHIND_PARTITION: Final = {b'["position"': 0, b'["interval"': 1, b'["page"': 1, b'["origins"': 3}
"""How many fields stand behind the topic and the number, in the keys of a partition's position and map."""
NO_PARTITION: Final = b""
UNSAID: Final = {
    "next_try_at_ms": -1,
    "epochs_to": -1,
    "left_out": (),
    "after": (),
    "marker_may_follow": False,
    "records_behind": -1,
    "pins": (),
    "after_ms": -1,
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


def partition_part(topic: str, partition: int) -> bytes:
    """What those keys have in common that are of this partition, and those of no other."""
    return dump_json([topic, partition])[1:-1]


def part_of(key: bytes) -> bytes:
    """The `partition_part` of a key; NO_PARTITION of one that is not of a partition's position or map."""
    kind, _, rest = key.partition(b",")
    behind = _BEHIND_PARTITION.get(kind)
    return NO_PARTITION if behind is None else rest[:-1].rsplit(b",", behind)[0]


def load_all(texts: Sequence[bytes]) -> Sequence[Any]:
    """What each of these says as JSON; None for all of them where one cannot be read: then each is to be looked at."""
    try:
        found = json.loads(b"[%s]" % b",".join(texts))
    except ValueError:
        found = []
    return found if len(found) == len(texts) else [None] * len(texts)
