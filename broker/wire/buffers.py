"""The buffer types that messages and frames are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

Records: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview]
"""A records field: one buffer, or several that follow each other on the wire. Decoding gives one `memoryview`."""
