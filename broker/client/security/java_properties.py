"""Files of Java's properties, as `java.util.Properties` reads them. Pure, and no error of it shows a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

ENCODING: Final = "latin-1"
"""Java's, whatever else the file seems to be in."""
_SPACE: Final = " \t\f"
_NATURAL_LINE: Final = re.compile(r"\r\n|\r|\n")
_SPLIT: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))


class PropertiesMalformed(ValueError):
    """What Java would not read either."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`line`: the one at which it begins, counted from 1. `value` is trimmed, as Kafka does with what it is given."""

    line: int
    name: str
    value: str


def parse_properties(text: str) -> dict[str, Entry]:
    """By name; of two the last one, as in Java. Raises PropertiesMalformed."""
    found: dict[str, Entry] = {}
    for number, line in _logical_lines(text):
        split = _SPLIT.fullmatch(line)
        assert split is not None, "a lone backslash at the end is never part of a logical line"
        name, value = (_unescaped(part, number) for part in split.groups())
        found[name] = Entry(number, name, value.strip(_TRIMMED))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Without comments and empty ones; a backslash at its end continues a line at the first letter of the next."""
    begun, began_at = "", 0
    for number, natural in enumerate(_NATURAL_LINE.split(text), 1):
        line = natural.lstrip(_SPACE)
        if not begun:
            if not line or line[0] in "#!":
                continue
            began_at = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
            continue
        yield began_at, begun + line
        begun = ""
    if begun:
        yield began_at, begun


def _unescaped(text: str, line: int) -> str:
    def replaced(found: re.Match[str]) -> str:
        escaped = found.group(1)
        if escaped[0] != "u":
            return _CONTROLS.get(escaped, escaped)
        if len(escaped) == 1:
            raise PropertiesMalformed(f"line {line}: there are no four hexadecimal digits behind a \\u")
        return chr(int(escaped[1:], 16))

    plain = _ESCAPE.sub(replaced, text)
    try:  # Java's letters beyond the first 65536 are pairs
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PropertiesMalformed(f"line {line}: a \\u is half of a letter") from None
