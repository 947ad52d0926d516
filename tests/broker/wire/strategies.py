"""Hypothesis strategies made of the field tables, and what a message looks like after a trip through one version."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

from hypothesis import strategies as st

from broker.wire.errors import ErrorCode
from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import FieldSpec, Kind, Message, Struct

S = TypeVar("S", bound=Struct)

MAX_ITEMS = 3

_RANGES = {
    Kind.INT8: (-(1 << 7), (1 << 7) - 1),
    Kind.INT16: (-(1 << 15), (1 << 15) - 1),
    Kind.UINT16: (0, (1 << 16) - 1),
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.INT64: (-(1 << 63), (1 << 63) - 1),
}

MAX_TIME_MS = 1 << 41
"""One oracle reads times as `datetime`, which knows no years beyond 9999."""


def _numbers(spec: FieldSpec) -> st.SearchStrategy[int]:
    if spec.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if spec.kind is Kind.INT64 and "time" in spec.name:
        return st.integers(0, MAX_TIME_MS)
    low, high = _RANGES[spec.kind]
    return st.integers(low, high)


def _one(spec: FieldSpec) -> st.SearchStrategy[Any]:
    """Values of a field, null left out. Lengths around 127 and 128 change the form of a compact length."""
    text = st.text(max_size=8) | st.sampled_from(["x" * 126, "y" * 127, "z" * 300])
    if spec.kind is Kind.STRING:
        return text
    if spec.kind in (Kind.BYTES, Kind.RECORDS):
        return st.binary(max_size=8) | st.sampled_from([b"x" * 126, b"y" * 127, b"z" * 20_000])
    if spec.kind is Kind.UUID:
        return st.uuids(allow_nil=True)
    if spec.kind is Kind.BOOL:
        return st.booleans()
    if spec.kind is Kind.FLOAT64:
        return st.floats(allow_nan=False)
    if spec.kind is Kind.STRUCT:
        assert spec.struct is not None
        return structs(spec.struct)
    if spec.kind is Kind.ARRAY:
        if spec.struct is not None:
            return st.lists(structs(spec.struct), max_size=MAX_ITEMS)
        assert spec.item is not None
        items = _one(FieldSpec(spec.item, None))
        plain = st.lists(items, max_size=MAX_ITEMS)
        if spec.item in _RANGES:
            return plain | st.builds(lambda item, count: [item] * count, items, st.sampled_from([63, 64, 200]))
        return plain
    return _numbers(spec)


def _values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    one = _one(spec)
    if spec.nullable < 100 or (spec.kind is Kind.STRUCT and not spec.is_inline):
        return st.none() | one
    return one


def structs(cls: type[S]) -> st.SearchStrategy[S]:
    """Any value of a message or struct, fields of all versions set."""
    return st.builds(cls, **{spec.name: _values(spec) for spec in cls.FIELDS})


def _default(spec: FieldSpec) -> Any:
    return [] if spec.default == () else spec.default


def _projected(spec: FieldSpec, value: Any, version: int) -> Any:
    if not spec.is_in(version):
        return _default(spec)
    if spec.kind is Kind.STRUCT:
        absent = value is None or (spec.tag is not None and value == type(value)())
        return None if absent else project(value, version)
    if value is None and not spec.is_nullable_in(version):
        if spec.default is None:
            return {Kind.STRING: "", Kind.BYTES: b"", Kind.ARRAY: []}[spec.kind]
        return _default(spec)
    if spec.struct is not None and value is not None:
        return [project(item, version) for item in value]
    return value


def project(message: S, version: int) -> S:
    """The message with only what `version` can carry: other fields at their defaults, no null where none is allowed.

    A tagged struct of nothing but defaults becomes an absent one, which is how every peer writes it.
    """
    return type(message)(
        **{spec.name: _projected(spec, getattr(message, spec.name), version) for spec in message.FIELDS}
    )


def kafkas(message: S) -> S:
    """Without what is farshore's own in it."""
    out = {}
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if spec.tag == OWN_TAG:
            value = _default(spec)
        elif isinstance(value, list):
            value = [kafkas(item) if isinstance(item, Struct) else item for item in value]
        elif isinstance(value, Struct):
            value = kafkas(value)
        out[spec.name] = value
    return type(message)(**out)


def plain(value: Any) -> Any:
    """Nested structs as dicts, memoryviews as bytes: for comparing and for failure texts."""
    if isinstance(value, Struct):
        table = dataclasses.fields(cast(Any, value))
        return {one.name: plain(getattr(value, one.name)) for one in table}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def versions_of(cls: type[Message]) -> range:
    low, high = cls.VERSIONS
    return range(low, high + 1)
