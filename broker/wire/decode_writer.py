"""Writes the source of a decoder. See `broker.wire.compiler` for what the code is given and returns.

Running over the end of the buffer is left to `struct.error` and IndexError, which `broker.wire.codec` turns
into MalformedMessage; only slices, which Python shortens silently, and counts, which cost memory, are
tested here. `left` is how many elements of arrays and tagged fields the message may have.
"""

from __future__ import annotations

from typing import Any

from broker.wire.schema import FIXED_WIDTH_BYTES, FieldSpec, Kind, Message, Struct


class DecodeWriter:
    """The source for one message class and version: `source()`, plus the `constants` and struct `formats` it names."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._flexible = version >= cls.FLEXIBLE_SINCE
        self._lines: list[str] = []
        self._indent = 1
        self._pending: list[tuple[str, str]] = []
        self._uuids: list[str] = []
        self._names = 0
        self.constants: dict[str, Any] = {}
        self.formats: dict[str, str] = {}

    def source(self) -> str:
        self._lines = ["def run(buf, p, size, left):"]
        self._struct(self._cls, "m")
        self._emit("return m, p")
        return "\n".join(self._lines)

    # -- lines and the pending run of fixed-width values

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _flush(self) -> None:
        """Read the pending fixed-width values with one `struct` call."""
        if not self._pending:
            return
        letters = "".join(letter for letter, _ in self._pending)
        targets = ", ".join(target for _, target in self._pending)
        if letters == "B":
            self._emit(f"{targets} = buf[p]")
        else:
            name = f"U_{letters.replace('?', 'o')}"
            self.formats[name] = f">{letters}"
            self._emit(f"{targets}{',' if len(self._pending) == 1 else ''} = {name}(buf, p)")
        widths = {kind.value: width for kind, width in FIXED_WIDTH_BYTES.items()} | {"B": 1}
        self._emit(f"p += {sum(widths[letter] for letter, _ in self._pending)}")
        for target in self._uuids:
            self._emit(f"{target} = UUID(bytes={target}) if any({target}) else ZERO_UUID")
        self._pending, self._uuids = [], []

    def _length(self, letter: str) -> str:
        """Read a length, together with the pending run -> a variable holding it, -1 for null."""
        count = self._name("n")
        self._pending.append(("B" if self._flexible else letter, count))
        self._flush()
        if self._flexible:
            self._emit(f"if {count} > 127:")
            self._emit(f"    {count}, p = read_uvarint(buf, p - 1)")
            self._emit(f"{count} -= 1")
        return count

    # -- structs and fields

    def _constant(self, cls: type[Struct]) -> str:
        name = f"C_{cls.__name__}"
        self.constants[name] = cls
        return name

    def _struct(self, cls: type[Struct], owner: str) -> None:
        """Make `owner` and read all its fields and tags; leaves nothing pending."""
        self._emit(f"{owner} = new({self._constant(cls)})")
        tagged: list[FieldSpec] = []
        for spec in cls.FIELDS:
            if not spec.is_in(self._version) or spec.tag is not None:
                fresh = "[]" if spec.default == () else repr(spec.default)
                self._emit(f"{owner}.{spec.name} = {'ZERO_UUID' if spec.kind is Kind.UUID else fresh}")
                if spec.is_in(self._version):
                    tagged.append(spec)
            else:
                self._field(spec, f"{owner}.{spec.name}")
        if self._flexible:
            self._tags(tagged, owner)
        self._flush()

    def _field(self, spec: FieldSpec, target: str) -> None:
        if spec.kind is Kind.UUID:
            self._pending.append(("16s", target))
            self._uuids.append(target)
        elif spec.kind is Kind.STRUCT:
            assert spec.struct is not None
            made = self._name("s")
            if spec.has_null_mark:
                self._pending.append(("b", made))
                self._flush()
                self._emit(f"if {made} < {0 if spec.tag is None else 1}:")
                self._emit(f"    {target} = None")
                self._emit("else:")
                self._indent += 1
            self._flush()
            self._struct(spec.struct, made)
            self._emit(f"{target} = {made}")
            self._indent -= spec.has_null_mark
        elif spec.kind in (Kind.STRING, Kind.BYTES, Kind.RECORDS):
            self._sized(spec, target)
        elif spec.kind is Kind.ARRAY:
            self._array(spec, target)
        else:
            self._pending.append((spec.kind.value, target))

    def _null(self, spec: FieldSpec, count: str, target: str) -> None:
        """The branch for a null (or, where lengths are signed, a negative length)."""
        self._emit(f"if {count} < 0:")
        if spec.is_nullable_in(self._version):
            self._emit(f"    if {count} < -1:")
            self._emit(f"        raise too_long({target.partition('.')[2]!r}, {count})")
            self._emit(f"    {target} = None")
        else:
            self._emit(f"    raise null_refused({target.partition('.')[2]!r})")

    def _sized(self, spec: FieldSpec, target: str) -> None:
        """A string, bytes or records field: its length, then its bytes."""
        count = self._length("h" if spec.kind is Kind.STRING else "i")
        self._null(spec, count, target)
        self._emit("else:")
        self._indent += 1
        self._emit(f"{count} += p")
        self._emit(f"if {count} > size:")
        self._emit(f"    raise too_long({target.partition('.')[2]!r}, {count} - p)")
        reading = {
            Kind.STRING: f"str(buf[p:{count}], 'utf-8')",
            Kind.BYTES: f"bytes(buf[p:{count}])",
            Kind.RECORDS: f"memoryview(buf)[p:{count}]",
        }[spec.kind]
        self._emit(f"{target} = {reading}")
        self._emit(f"p = {count}")
        self._indent -= 1

    def _array(self, spec: FieldSpec, target: str) -> None:
        count = self._length("i")
        self._null(spec, count, target)
        self._emit("else:")
        self._indent += 1
        item = spec.item
        assert item is not None
        width = self._least_bytes(spec)
        self._emit(f"if {count} * {width} > size - p:")
        self._emit(f"    raise too_long({target.partition('.')[2]!r}, {count})")
        self._count_items(count)
        if item is Kind.STRUCT or item is Kind.STRING or item is Kind.UUID:
            self._items(spec, item, count, target)
        else:
            self._emit(f"{target} = ARRAY_{item.name}.unpack({count}, buf, p)")
            self._emit(f"p += {count} * {width}")
        self._indent -= 1

    def _count_items(self, count: str) -> None:
        """A byte or two can stand for an object of hundreds: what is made is counted, not only what is read."""
        self._emit(f"left -= {count}")
        self._emit("if left < 0:")
        self._emit("    raise TooManyItems('more elements and tagged fields than one message may have here')")

    def _items(self, spec: FieldSpec, item: Kind, count: str, target: str) -> None:
        """The loop over an array's elements that are not plain numbers."""
        held, element = self._name("a"), self._name("m")
        self._emit(f"{target} = {held} = []")
        self._emit(f"for _ in range({count}):")
        self._indent += 1
        if item is Kind.STRUCT:
            assert spec.struct is not None
            self._struct(spec.struct, element)
        else:
            self._field(FieldSpec(item, None), element)
            self._flush()
        self._emit(f"{held}.append({element})")
        self._indent -= 1

    def _least_bytes(self, spec: FieldSpec) -> int:
        """The fewest bytes one element of an array can take, so that a count is refused before it costs memory."""
        if spec.item in FIXED_WIDTH_BYTES:
            return FIXED_WIDTH_BYTES[spec.item]
        if spec.item is Kind.STRING:
            return 1 if self._flexible else 2
        assert spec.struct is not None
        return self._least_struct_bytes(spec.struct)

    def _least_struct_bytes(self, cls: type[Struct]) -> int:
        total = 1 if self._flexible else 0
        for spec in cls.FIELDS:
            if not spec.is_in(self._version) or spec.tag is not None:
                continue
            if spec.kind in FIXED_WIDTH_BYTES:
                total += FIXED_WIDTH_BYTES[spec.kind]
            elif self._flexible:
                total += 1
            else:
                total += 2 if spec.kind is Kind.STRING else 4
        return max(total, 1)

    # -- tagged fields

    def _tags(self, tagged: list[FieldSpec], owner: str) -> None:
        """The tag section: one byte and one test when it is empty, which it nearly always is."""
        count = self._name("g")
        self._pending.append(("B", count))
        self._flush()
        self._emit(f"if {count}:")
        self._indent += 1
        self._emit(f"if {count} > 127:")
        self._emit(f"    {count}, p = read_uvarint(buf, p - 1)")
        self._count_items(count)
        if not tagged:
            self._emit(f"p = skip_tags(buf, p, size, {count})")
        else:
            self._known_tags(tagged, owner, count)
        self._indent -= 1

    def _known_tags(self, tagged: list[FieldSpec], owner: str, count: str) -> None:
        tag, end = self._name("k"), self._name("e")
        self._emit(f"check_tag_count({count})")
        self._emit(f"for _ in range({count}):")
        self._indent += 1
        self._emit(f"{tag}, p = read_uvarint(buf, p)")
        self._emit(f"{end}, p = read_uvarint(buf, p)")
        self._emit(f"{end} += p")
        self._emit(f"if {end} > size:")
        self._emit(f"    raise too_long('a tagged field', {end} - p)")
        for spec in tagged:
            self._emit(f"if {tag} == {spec.tag}:")
            self._indent += 1
            self._field(spec, f"{owner}.{spec.name}")
            self._flush()
            self._emit(f"if p != {end}:")
            self._emit("    raise Malformed('a tagged field does not end where it says')")
            self._indent -= 1
        self._emit(f"p = {end}")
        self._indent -= 1
