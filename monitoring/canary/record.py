"""The canary's record: key and value are JSON, so that any consumer can read them."""

from __future__ import annotations

import json
from typing import NamedTuple

RECORD_VERSION = 1


class CanaryRecord(NamedTuple):
    """Record `sequence` (0, 1, 2...) of the run `run`, written at `sent_ms` (milliseconds since 1970)."""

    run: str
    sequence: int
    sent_ms: int


def encode(record: CanaryRecord) -> tuple[bytes, bytes]:
    """(key, value)."""
    value = {"v": RECORD_VERSION, "run": record.run, "sequence": record.sequence, "sent_ms": record.sent_ms}
    return record.run.encode(), json.dumps(value, separators=(",", ":")).encode()


def decode(value: bytes | None) -> CanaryRecord | None:
    """None for what no canary of this version wrote: the topic belongs to us, but anybody may write to it."""
    try:
        fields = json.loads(value or b"")
        if fields["v"] != RECORD_VERSION:
            return None
        return CanaryRecord(str(fields["run"]), int(fields["sequence"]), int(fields["sent_ms"]))
    except (ValueError, KeyError, TypeError):
        return None
