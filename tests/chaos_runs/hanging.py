"""Calls of clients' libraries that never come back, by their own known faults."""

from __future__ import annotations

import linecache
from types import FrameType
from typing import Final

KNOWN_HANGS: Final = {
    # It takes no notice of its own time-out, and waits for a broker that is not in the metadata any more.
    ".send_offsets_to_transaction(": "in send_offsets_to_transaction (librdkafka's issues 5456 and 5511)",
}


def known_hang(frame: FrameType) -> str | None:
    """Which known fault a thread stands in, by the call that it stands at; None: what it waits for is not known."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return next((fault for call, fault in KNOWN_HANGS.items() if call in line), None)
