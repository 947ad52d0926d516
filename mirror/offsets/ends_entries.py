"""How entries stand in the topic `__farshore-ends-LINK`: JSON, in shares of the source's topics."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

ENDS_VERSION: Final = 1
SHARES: Final = 16
"""Of the topics by their names: an entry that changed is written whole."""


def share_of(topic: str) -> int:
    """Which entry speaks of the topic."""
    return zlib.crc32(topic.encode()) % SHARES


def load_entry(value: bytes | None) -> dict[str, Any] | None:
    """None where it cannot be understood, or is taken back: then it says nothing."""
    if value is None:
        return None
    try:
        decoded = json.loads(value)
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) and decoded.get("v") == ENDS_VERSION else None


def ends_key(*parts: object) -> bytes:
    return dump_entry(list(parts))


def dump_entry(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
