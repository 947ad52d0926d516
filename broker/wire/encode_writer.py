"""Writes the source of an encoder. See `broker.wire.compiler` for what the code is given and returns."""

from __future__ import annotations

from typing import Any

from broker.wire.schema import FieldSpec, Kind, Message, Struct


class EncodeWriter:
    """The source for one message class and version: `source()`, plus the `constants` and struct `formats` it names."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._flexible = version >= cls.FLEXIBLE_SINCE
        self._lines: list[str] = []
        self._indent = 1
        self._pending: list[tuple[str, str]] = []
        self._names = 0
        self.constants: dict[str, Any] = {}
        self.formats: dict[str, str] = {}

    def source(self) -> str:
        self._lines = ["def run(m, w, out):"]
        self._struct(self._cls, "m", "w")
        self._emit("return w")
        return "\n".join(self._lines)

    # -- lines and the pending run of fixed-width values

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _flush(self, buffer: str, pending: list[tuple[str, str]] | None = None) -> None:
        """Write the pending fixed-width values as one `struct` call."""
        values = self._pending if pending is None else pending
        if not values:
            return
        if all(expression == "0" for _, expression in values):
            self._emit(f"{buffer} += {bytes(len(values))!r}" if len(values) > 1 else f"{buffer}.append(0)")
        else:
            letters = "".join(letter for letter, _ in values)
            self.formats[f"P_{letters.replace('?', 'o')}"] = f">{letters}"
            arguments = ", ".join(expression for _, expression in values)
            self._emit(f"{buffer} += P_{letters.replace('?', 'o')}({arguments})")
        if pending is None:
            self._pending = []

    def _length(self, count: str, letter: str, buffer: str) -> None:
        """Write a length held in the variable `count` (-1: null), together with the pending run."""
        if not self._flexible:
            self._pending.append((letter, count))
            self._flush(buffer)
            return
        pending, self._pending = self._pending, []
        self._emit(f"if {count} < 127:")
        self._indent += 1
        if pending:
            self._flush(buffer, [*pending, ("B", f"{count} + 1")])
        else:
            self._emit(f"{buffer}.append({count} + 1)")
        self._indent -= 1
        self._emit("else:")
        self._indent += 1
        self._flush(buffer, pending)
        self._emit(f"{buffer} += uvarint({count} + 1)")
        self._indent -= 1

    # -- structs and fields

    def _struct(self, cls: type[Struct], owner: str, buffer: str) -> None:
        """All fields of `owner`, then its tags; leaves nothing pending."""
        tagged: list[FieldSpec] = []
        for spec in cls.FIELDS:
            if not spec.is_in(self._version):
                continue
            if spec.tag is not None:
                tagged.append(spec)
            else:
                self._field(spec, f"{owner}.{spec.name}", buffer)
        if self._flexible:
            self._tags(tagged, owner, buffer)
        self._flush(buffer)

    def _field(self, spec: FieldSpec, value: str, buffer: str) -> None:
        if spec.kind is Kind.UUID:
            self._pending.append(("16s", f"{value}.bytes"))
        elif spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            self._flush(buffer)
            held = self._name("s")
            self._emit(f"{held} = {value}")
            if spec.has_null_mark:
                self._emit(f"if {held} is None:")
                self._emit(f"    {buffer}.append({255 if spec.tag is None else 0})")
                self._emit("else:")
                self._indent += 1
                self._emit(f"{buffer}.append(1)")
            self._struct(spec.struct, held, buffer)
            self._indent -= spec.has_null_mark
        elif spec.kind in (Kind.STRING, Kind.BYTES, Kind.RECORDS):
            self._sized(spec, value, buffer)
        elif spec.kind is Kind.ARRAY:
            self._array(spec, value, buffer)
        else:
            self._pending.append((spec.kind.value, value))

    def _sized(self, spec: FieldSpec, value: str, buffer: str) -> None:
        """A string, bytes or records field: its length, then its bytes."""
        held, count = self._name("b"), self._name("n")
        self._emit(f"{held} = {value}")
        if spec.kind is Kind.RECORDS:
            self._emit(f"{count} = records_bytes({held})")
        else:
            encoded = f"{held}.encode()" if spec.kind is Kind.STRING else held
            if spec.is_nullable_in(self._version):
                self._emit(f"if {held} is None:")
                self._emit(f"    {count} = -1")
                self._emit("else:")
                self._indent += 1
            if spec.kind is Kind.STRING:
                self._emit(f"{held} = {encoded}")
            self._emit(f"{count} = len({held})")
            if spec.is_nullable_in(self._version):
                self._indent -= 1
        self._length(count, "h" if spec.kind is Kind.STRING else "i", buffer)
        self._emit(f"if {count} > 0:")
        if spec.kind is Kind.RECORDS:
            self._emit(f"    {buffer} = write_records({held}, out, {buffer})")
        else:
            self._emit(f"    {buffer} += {held}")

    def _array(self, spec: FieldSpec, value: str, buffer: str) -> None:
        held, count = self._name("a"), self._name("n")
        self._emit(f"{held} = {value}")
        nullable = spec.is_nullable_in(self._version)
        self._emit(f"{count} = -1 if {held} is None else len({held})" if nullable else f"{count} = len({held})")
        self._length(count, "i", buffer)
        self._emit(f"if {count} > 0:")
        self._indent += 1
        item = spec.item
        assert item is not None
        if item is Kind.STRUCT or item is Kind.STRING or item is Kind.UUID:
            element = self._name("m")
            self._emit(f"for {element} in {held}:")
            self._indent += 1
            if item is Kind.STRUCT:
                assert spec.struct is not None
                self._struct(spec.struct, element, buffer)
            else:
                self._field(FieldSpec(item, None), element, buffer)
                self._flush(buffer)
            self._indent -= 1
        else:
            self._emit(f"{buffer} += ARRAY_{item.name}.pack({held})")
        self._indent -= 1

    # -- tagged fields

    def _tags(self, tagged: list[FieldSpec], owner: str, buffer: str) -> None:
        """The tag section: a single 0 byte, merged with the pending run, when every tagged field has its default."""
        if not tagged:
            self._pending.append(("B", "0"))
            return
        tests = [self._differs(spec, f"{owner}.{spec.name}") for spec in tagged]
        pending, self._pending = self._pending, []
        self._emit(f"if {' or '.join(tests)}:")
        self._indent += 1
        self._flush(buffer, pending)
        self._emit(f"{buffer} += uvarint({' + '.join(f'({test})' for test in tests)})")
        for spec, test in sorted(zip(tagged, tests, strict=True), key=lambda pair: pair[0].tag or 0):
            body = self._name("t")
            self._emit(f"if {test}:")
            self._indent += 1
            self._emit(f"{body} = bytearray()")
            self._field(spec, f"{owner}.{spec.name}", body)
            self._flush(body)
            self._emit(f"{buffer} += uvarint({spec.tag})")
            self._emit(f"{buffer} += uvarint(len({body}))")
            self._emit(f"{buffer} += {body}")
            self._indent -= 1
        self._indent -= 1
        self._emit("else:")
        self._indent += 1
        self._flush(buffer, [*pending, ("B", "0")])
        self._indent -= 1

    def _differs(self, spec: FieldSpec, value: str) -> str:
        """An expression that is True when a tagged field has to be written."""
        if spec.has_null_mark:
            return "True"
        if spec.default is None:
            return f"{value} is not None"
        if spec.kind is Kind.ARRAY:
            return f"{value} is None or len({value}) > 0"
        if spec.kind is Kind.UUID:
            return f"{value} != ZERO_UUID"
        return f"{value} != {spec.default!r}"
