"""Where texts stand that a site's security needs: files, and properties in a file as Kafka's own tools take it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from broker.client.security.jaas import JaasMalformed, parse_jaas
from broker.client.security.java_properties import ENCODING, Entry, PropertiesMalformed, parse_properties

PEM_LINE: Final = 64
_PEM_BLOCK: Final = re.compile(
    r"-+BEGIN\s+([A-Z0-9 ]+?)-+\s+((?:[A-Za-z-]+:[^\r\n]*[\r\n]+)*)([A-Za-z0-9+/=\s]+?)\s*-+END\s+[A-Z0-9 ]+?-+"
)


class PropertyUnreadable(ValueError):
    """A property that is not there, or no longer what it was. The message never has its value."""


@dataclass(frozen=True, slots=True)
class Property:
    """One of a file of Java's properties; `option`: of the login that it describes, as `sasl.jaas.config` does."""

    file: Path
    name: str
    option: str | None = None

    def read(self) -> str:
        """Raises OSError, PropertyUnreadable."""
        try:
            entry = read_properties(self.file).get(self.name)
            value = entry.value if entry is not None else ""
            if self.option is not None:
                value = parse_jaas(value).options.get(self.option, "")
        except (PropertiesMalformed, JaasMalformed) as error:
            raise PropertyUnreadable(str(error)) from None
        return value

    def __str__(self) -> str:
        return f"{self.name} in {self.file}" if self.option is None else f"{self.option} of {self.name} in {self.file}"


Place: TypeAlias = Path | Property


def read_properties(file: Path) -> dict[str, Entry]:
    """Raises OSError, PropertiesMalformed."""
    return parse_properties(file.read_bytes().decode(ENCODING))


def path_of(place: Place) -> Path:
    return place.file if isinstance(place, Property) else place


def text_of(place: Place) -> str:
    """Raises OSError, UnicodeDecodeError, PropertyUnreadable."""
    return place.read() if isinstance(place, Property) else place.read_text(encoding="utf-8")


def pem_of(text: str, kind: str = "") -> str:
    """The blocks of PEM whose name ends with `kind`, in lines as OpenSSL wants them: in a property they may be one."""
    return "".join(
        _block(name, head, "".join(body.split()))
        for name, head, body in _PEM_BLOCK.findall(text)
        if name.endswith(kind)
    )


def _block(name: str, head: str, body: str) -> str:
    """`head` says how an older key is encrypted, and ends with an empty line."""
    lines = [*head.split("\n\n")[0].splitlines(), *([""] if head else []), *textwrap.wrap(body, PEM_LINE)]
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""])
