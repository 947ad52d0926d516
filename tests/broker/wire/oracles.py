"""Two other implementations of the protocol, put behind the same two questions: what do you read, what do you write?"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import ZERO_UUID, FieldSpec, Kind, Message, Struct

_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
_BITS = "authorized_operations"
"""kafka-python has bit sets where the name ends like this, and leaves out what stands before it."""
_MILLISECOND = datetime.timedelta(milliseconds=1)

_KAFKA_PYTHON: dict[str, Any] = {cls.__name__: cls for base in (ApiMessage, ApiData) for cls in base.__subclasses__()}


def _present(cls: type[Struct], version: int) -> Iterator[FieldSpec]:
    return (spec for spec in cls.FIELDS if spec.is_in(version) and spec.tag != OWN_TAG)


# -- kio: a class per version, whose fields stand in the same order as ours


def _kio_class(cls: type[Message], version: int) -> Any:
    if cls.API_KEY < 0:
        name = "subscription" if cls.__name__.endswith("Subscription") else "assignment"
        module = import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
        return getattr(module, cls.__name__)
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    return load(cls.API_KEY, version)


def _kio_value(value: Any, spec: FieldSpec) -> Any:
    """kio's enums, durations, times and null uuids as the plain values of the wire."""
    if spec.kind is Kind.UUID and value is None:
        return ZERO_UUID
    if spec.kind is Kind.INT64 and value is None:
        return -1
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, enum.IntEnum):
        return int(value)
    return value


def _kio_plain(theirs: Any, cls: type[Struct], version: int) -> dict[str, Any]:
    """A kio object as the dict that `strategies.plain` gives for ours, fields of other versions left out."""
    out: dict[str, Any] = {}
    for spec, field in zip(_present(cls, version), dataclasses.fields(theirs), strict=True):
        value = getattr(theirs, field.name)
        if spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            absent = value is None or (spec.tag is not None and value == type(value)())
            out[spec.name] = None if absent else _kio_plain(value, spec.struct, version)
        elif spec.kind is Kind.ARRAY and value is not None:
            item = FieldSpec(spec.item or Kind.INT8, None)
            struct = spec.struct
            out[spec.name] = [_kio_plain(one, struct, version) if struct else _kio_value(one, item) for one in value]
        else:
            out[spec.name] = _kio_value(value, spec)
    return out


def kio_reads(cls: type[Message], version: int, data: bytes) -> tuple[dict[str, Any], bytes]:
    """What kio reads in `data`, and what it writes for that."""
    theirs, size = entity_reader(_kio_class(cls, version))(data, 0)
    assert size == len(data)
    out = io.BytesIO()
    entity_writer(type(theirs))(out, theirs)
    return _kio_plain(theirs, cls, version), out.getvalue()


# -- kafka-python: one class for all versions, fields named as ours


def _make(cls: Any, message: Struct, version: int) -> Any:
    values: dict[str, Any] = {}
    for spec in _present(type(message), version):
        value = getattr(message, spec.name)
        if spec.name.endswith(_BITS) and _BITS in cls._struct.fields and spec.kind is Kind.INT32:
            values[_BITS] = {bit for bit in range(32) if value >> bit & 1}
        elif spec.kind is Kind.STRUCT:
            if value is not None:
                values[spec.name] = _make(_field(cls, spec).data_class, value, version)
        elif spec.struct is not None and value is not None:
            values[spec.name] = [_make(_field(cls, spec).data_class, one, version) for one in value]
        elif spec.tag is None or value != (list(spec.default) if spec.kind is Kind.ARRAY else spec.default):
            values[spec.name] = value
    return cls(version=version, **values)


def _field(cls: Any, spec: FieldSpec) -> Any:
    return cls._struct.fields[spec.name]


def kafka_python_writes(message: Message, version: int) -> bytes:
    """The message built as a kafka-python object, field by field, and encoded by it."""
    theirs = _make(_KAFKA_PYTHON[type(message).__name__], message, version)
    return bytes(theirs.encode(version=version, header=False))


def _kafka_python_plain(theirs: Any, cls: type[Struct], version: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for spec in _present(cls, version):
        if spec.name.endswith(_BITS) and _BITS in theirs._struct.fields and spec.kind is Kind.INT32:
            bits = getattr(theirs, _BITS)
            mask = sum(1 << bit for bit in ({31} if bits is None else bits))
            out[spec.name] = mask - (1 << 32) if mask >= 1 << 31 else mask
            continue
        value = getattr(theirs, spec.name)
        if spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            present = value is not None if spec.tag is None else theirs.tags is not None and spec.name in theirs.tags
            out[spec.name] = _kafka_python_plain(value, spec.struct, version) if present else None
        elif spec.struct is not None and value is not None:
            out[spec.name] = [_kafka_python_plain(one, spec.struct, version) for one in value]
        elif spec.kind is Kind.UUID:
            out[spec.name] = ZERO_UUID if value is None else value
        else:
            out[spec.name] = bytes(value) if isinstance(value, memoryview) else value
    return out


def kafka_python_has(cls: type[Message]) -> bool:
    """Whether kafka-python knows the message at all."""
    return cls.__name__ in _KAFKA_PYTHON


def kafka_python_reads(cls: type[Message], version: int, data: bytes) -> dict[str, Any]:
    """What kafka-python reads in `data`."""
    name, oracle = cls.__name__, _KAFKA_PYTHON[cls.__name__]
    if name == "ApiVersionsResponse" and data[:2] != b"\0\0":
        # It reads every answer with an error as v0, and Kafka writes v0 for UNSUPPORTED_VERSION only.
        theirs = super(oracle, oracle).decode(data, version=version)
    else:
        theirs = oracle.decode(data, version=version, header=False)
    return _kafka_python_plain(theirs, cls, version)
