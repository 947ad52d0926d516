"""Field tables: how a Kafka message is declared.

A message is a class whose annotations are its Python types and whose defaults are field specs::

    @message(key=0, versions=(3, 11), flexible=9)
    class ProduceRequest(Message):
        transactional_id: str | None = string(nullable=0, default=None)
        acks: int = int16()

`message` and `struct` turn that into an ordinary mutable dataclass with slots. The table itself stays on
the class as `FIELDS`, in wire order; `broker.wire.compiler` turns it into straight-line code per version.

A field exists on the wire in versions `since..until`; outside of them it keeps its default when decoded and
is left out when encoded. `nullable` is the first version in which null is allowed. A field with a `tag` is
carried as a tagged field (KIP-482), left out when it has its default. A tagged struct is None when absent, one without
a tag when it is null; one with a tag that may be null is always written, because its absence means something else.
"""

from __future__ import annotations

import dataclasses
import inspect
import uuid as uuids
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, TypeVar, dataclass_transform

NEWEST = 32767
"""`until` of a field that was never removed."""

NEVER = 32767
"""`flexible` of a message that never became flexible, `nullable` of a field that never is null."""

ZERO_UUID = uuids.UUID(int=0)


class Kind(Enum):
    """Wire types; the value of a fixed-width kind is its `struct` format letter."""

    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    BOOL = "?"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    ARRAY = "array"
    STRUCT = "struct"


FIXED_WIDTH_BYTES: dict[Kind, int] = {
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.BOOL: 1,
    Kind.UUID: 16,
}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """One row of a field table. `item` is an array's element: a primitive kind, or STRUCT with `struct` set.

    `before` names the field that follows it on the wire, where it is declared behind others: a field of a late version
    then does not change what the arguments of the class mean.
    """

    kind: Kind
    default: Any
    since: int = 0
    until: int = NEWEST
    nullable: int = NEVER
    tag: int | None = None
    item: Kind | None = None
    struct: type[Struct] | None = None
    name: str = ""
    before: str | None = None

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return version >= self.nullable

    @property
    def is_inline(self) -> bool:
        """A struct that is neither tagged nor ever null."""
        return self.kind is Kind.STRUCT and self.tag is None and self.nullable == NEVER

    @property
    def has_null_mark(self) -> bool:
        """A struct with a byte before it that says whether it is null."""
        return self.kind is Kind.STRUCT and self.nullable != NEVER


class Struct:
    """Base of every nested struct; `FIELDS` is its table in wire order."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[FieldSpec, ...]] = ()

    # As a dataclass's own, which are compiled anew for each class: nearly half of what it costs to import the tables.

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # messages change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class Message(Struct):
    """Base of every top-level message."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    """The lowest and highest version that can be encoded and decoded."""
    FLEXIBLE_SINCE: ClassVar[int] = NEVER
    """First version with compact lengths and tagged fields."""


S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)


def int8(*, default: int = 0, since: int = 0, until: int = NEWEST, tag: int | None = None) -> Any:
    return FieldSpec(Kind.INT8, default, since, until, tag=tag)


def int16(*, default: int = 0, since: int = 0, until: int = NEWEST, tag: int | None = None) -> Any:
    return FieldSpec(Kind.INT16, default, since, until, tag=tag)


def uint16() -> Any:
    return FieldSpec(Kind.UINT16, 0)


def int32(*, default: int = 0, since: int = 0, until: int = NEWEST, tag: int | None = None) -> Any:
    return FieldSpec(Kind.INT32, default, since, until, tag=tag)


def int64(*, default: int = 0, since: int = 0, until: int = NEWEST, tag: int | None = None) -> Any:
    return FieldSpec(Kind.INT64, default, since, until, tag=tag)


def float64() -> Any:
    return FieldSpec(Kind.FLOAT64, 0.0)


def boolean(*, default: bool = False, since: int = 0, until: int = NEWEST, tag: int | None = None) -> Any:
    return FieldSpec(Kind.BOOL, default, since, until, tag=tag)


def uuid(*, since: int = 0, until: int = NEWEST, tag: int | None = None, before: str | None = None) -> Any:
    return FieldSpec(Kind.UUID, ZERO_UUID, since, until, tag=tag, before=before)


def string(
    *,
    default: str | None = "",
    since: int = 0,
    until: int = NEWEST,
    nullable: int = NEVER,
    tag: int | None = None,
) -> Any:
    return FieldSpec(Kind.STRING, default, since, until, nullable, tag)


def bytestring(
    *,
    default: bytes | None = b"",
    since: int = 0,
    until: int = NEWEST,
    nullable: int = NEVER,
    tag: int | None = None,
) -> Any:
    """Opaque bytes; decoded as a copy (`bytes`)."""
    return FieldSpec(Kind.BYTES, default, since, until, nullable, tag)


def records(*, since: int = 0, until: int = NEWEST, nullable: int = 0) -> Any:
    """Record batches: decoded as a `memoryview` slice of the frame, encoded uncopied."""
    return FieldSpec(Kind.RECORDS, None, since, until, nullable)


def array(
    item: type[Struct] | Kind,
    *,
    default: tuple[()] | None = (),
    since: int = 0,
    until: int = NEWEST,
    nullable: int = NEVER,
    tag: int | None = None,
) -> Any:
    """A list of structs, or of a primitive kind. The default is a new empty list, or None when `default` is None."""
    if isinstance(item, Kind):
        return FieldSpec(Kind.ARRAY, default, since, until, nullable, tag, item=item)
    return FieldSpec(Kind.ARRAY, default, since, until, nullable, tag, item=Kind.STRUCT, struct=item)


def nested(item: type[Struct], *, tag: int, since: int = 0, until: int = NEWEST, before: str | None = None) -> Any:
    """One struct as a tagged field; None when absent (Kafka: a struct of defaults, which it never sends)."""
    return FieldSpec(Kind.STRUCT, None, since, until, tag=tag, item=Kind.STRUCT, struct=item, before=before)


def nested_nullable(item: type[Struct], *, tag: int) -> Any:
    """One struct as a tagged field; None when null, and also when absent (Kafka: a struct of defaults)."""
    return FieldSpec(Kind.STRUCT, None, nullable=0, tag=tag, item=Kind.STRUCT, struct=item)


def nullable(item: type[Struct], *, since: int = 0, until: int = NEWEST) -> Any:
    """One struct in its place among the fields, or null: a byte before it says which."""
    return FieldSpec(Kind.STRUCT, None, since, until, nullable=since, item=Kind.STRUCT, struct=item)


def inline(item: type[Struct]) -> Any:
    """One struct in its place among the fields, always there; a new one by default."""
    return FieldSpec(Kind.STRUCT, None, item=Kind.STRUCT, struct=item)


def _in_wire_order(declared: list[FieldSpec]) -> tuple[FieldSpec, ...]:
    table = [spec for spec in declared if spec.before is None]
    for spec in declared:
        if spec.before is not None:
            table.insert([other.name for other in table].index(spec.before), spec)
    return tuple(table)


def _tabulate(cls: type[S]) -> type[S]:
    """Replace the specs in the class body by dataclass defaults and keep them as `FIELDS`."""
    table: list[FieldSpec] = []
    for name in inspect.get_annotations(cls):
        spec = cls.__dict__.get(name)
        if not isinstance(spec, FieldSpec):
            raise TypeError(f"{cls.__name__}.{name} has no field spec")
        table.append(dataclasses.replace(spec, name=name))
        if spec.default == () and spec.kind is Kind.ARRAY:
            setattr(cls, name, dataclasses.field(default_factory=list))
        elif spec.is_inline:
            assert spec.struct is not None
            setattr(cls, name, dataclasses.field(default_factory=spec.struct))
        else:
            setattr(cls, name, spec.default)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else each class's signature is written out for one
    made = dataclasses.dataclass(slots=True, eq=False, repr=False)(cls)
    made.FIELDS = _in_wire_order(table)
    return made


@dataclass_transform()
def struct(cls: type[S]) -> type[S]:
    """Class decorator of a nested struct."""
    return _tabulate(cls)


@dataclass_transform()
def message(*, versions: tuple[int, int], flexible: int = NEVER, key: int = -1) -> Callable[[type[M]], type[M]]:
    """Class decorator of a top-level message; `key` is the API key, -1 for data that is no request or response."""

    def decorate(cls: type[M]) -> type[M]:
        made = _tabulate(cls)
        made.API_KEY = key
        made.VERSIONS = versions
        made.FLEXIBLE_SINCE = flexible
        return made

    return decorate
