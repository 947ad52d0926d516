"""What reading a request costs is bounded by the objects it makes: every array of every message, and tags, count."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from broker.handlers.table import HANDLERS
from broker.wire.api import API
from broker.wire.codec import decode, encode_bytes
from broker.wire.errors import TooManyItems
from broker.wire.primitives import uvarint
from broker.wire.schema import FIXED_WIDTH_BYTES, ZERO_UUID, FieldSpec, Kind, Message, Struct

ALLOWED = 1_000
MORE = 60_000
PEAK_BYTES = 2 << 20


def least(spec: FieldSpec) -> object:
    """A value of an array's element, or of a field that may not be left out."""
    if spec.kind is Kind.STRUCT:
        assert spec.struct is not None
        return filled(spec.struct)
    return spec.default


def element(spec: FieldSpec) -> object:
    if spec.item is Kind.STRUCT:
        assert spec.struct is not None
        return filled(spec.struct)
    if spec.item is Kind.UUID:
        return ZERO_UUID
    return 0 if spec.item in FIXED_WIDTH_BYTES else ""


def filled(cls: type[Struct]) -> Struct:
    """The smallest one there is: no element in any array, no byte in any text."""
    made = object.__new__(cls)
    for spec in cls.FIELDS:
        value = least(spec)
        if value is None and not spec.is_nullable_in(0):
            value = {Kind.STRING: "", Kind.BYTES: b"", Kind.ARRAY: [], Kind.RECORDS: b""}.get(spec.kind)
        setattr(made, spec.name, [] if spec.kind is Kind.ARRAY else value)
    return made


def with_one_large_array(cls: type[Struct], version: int, count: int) -> Iterator[tuple[str, Struct]]:
    for spec in cls.FIELDS:
        if spec.kind is not Kind.ARRAY or not spec.is_in(version):
            continue
        made = filled(cls)
        setattr(made, spec.name, [element(spec)] * count)
        yield spec.name, made
        if spec.struct is not None:
            for name, inner in with_one_large_array(spec.struct, version, count):
                made = filled(cls)
                setattr(made, spec.name, [inner])
                yield f"{spec.name}.{name}", made


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_no_array_of_any_request_makes_more_objects_than_are_allowed(key: int) -> None:
    cls = API[key].request
    low, high = HANDLERS[key].versions
    for version in range(max(low, cls.VERSIONS[0]), high + 1):
        for name, message in with_one_large_array(cls, version, MORE):
            assert isinstance(message, Message)
            body = encode_bytes(message, version)
            tracemalloc.start()
            try:
                with pytest.raises(TooManyItems):
                    decode(cls, version, body, max_items=ALLOWED)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak_bytes < PEAK_BYTES, (name, version)
        for _, message in with_one_large_array(cls, version, ALLOWED - 5):
            assert isinstance(message, Message)
            decode(cls, version, encode_bytes(message, version), max_items=ALLOWED)


def test_tagged_fields_count_too() -> None:
    cls = API[3].request
    body = encode_bytes(filled(cls), 12)  # type: ignore[arg-type]
    tags = b"".join(uvarint(100 + number) + b"\x00" for number in range(ALLOWED + 1))
    with pytest.raises(TooManyItems):
        decode(cls, 12, body[:-1] + uvarint(ALLOWED + 1) + tags, max_items=ALLOWED)
