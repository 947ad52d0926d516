"""The journal's lines, read without opening what they tell at length: of 1,000 groups a move is megabytes of JSON, and
every command reads those of the last moves, of which it wants to know who made them and how they ended. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from failover.errors import JournalDamaged

_HEAD: Final = re.compile(rb'\{"at_ms":(\d{1,15}),"detail":(?=\{)')
_TAIL: Final = re.compile(
    rb'(?<=\}),"event":"([a-z_]+)","operation_id":"([ -!#-\[\]-~]+)","previous_hash":"([0-9a-f]{64})",'
    rb'"sequence":(\d{1,15}),"v":(\d{1,15})\}\Z'
)
_TAIL_MAX_BYTES: Final = 1024


class Detail(Mapping[str, Any]):
    """An entry's evidence, opened when somebody asks for it. Raises JournalDamaged then where it is no object."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._opened: dict[str, Any] | None = None

    def opened(self) -> dict[str, Any]:
        if self._opened is None:
            found = read_json(self._text, damaged := object())
            if found is damaged:
                raise JournalDamaged("an entry of the journal cannot be read")
            if not isinstance(found, dict):
                raise JournalDamaged("an entry of the journal has no evidence")
            self._opened = found
        return self._opened

    def __getitem__(self, name: str) -> Any:
        return self.opened()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened())

    def __len__(self) -> int:
        return len(self.opened())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Detail):
            return self._text == other._text or self.opened() == other.opened()
        return isinstance(other, Mapping) and self.opened() == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.opened())


def fields_of(line: bytes) -> dict[str, Any] | None:
    """An entry's fields, its `detail` unopened where the line is as farshore writes it; None: it is no object."""
    head = _HEAD.match(line)
    tail = _TAIL.search(line, max(0, len(line) - _TAIL_MAX_BYTES))
    if head is None or tail is None:
        return _opened(line)
    event, operation_id, previous_hash, sequence, version = tail.groups()
    return {
        "v": int(version),
        "sequence": int(sequence),
        "at_ms": int(head[1]),
        "operation_id": operation_id.decode(),
        "event": event.decode(),
        "detail": Detail(line[head.end() : tail.start()]),
        "previous_hash": previous_hash.decode(),
    }


def _opened(line: bytes) -> dict[str, Any] | None:
    fields = read_json(line)
    return fields if isinstance(fields, dict) else None


def read_json(text: bytes | None, otherwise: Any = None) -> Any:
    """Whatever stands there; `otherwise` for what is none, or is nested deeper than can be read."""
    try:
        return json.loads(text or b"null")
    except (ValueError, RecursionError):
        return otherwise
