"""What is known of a link from run to run, in a file that no program reads which would misunderstand it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from monitoring.errors import AuditResultDamaged


class Versioned(Protocol):
    """What says by which version of its form it was written."""

    @property
    def version(self) -> int: ...


K = TypeVar("K", bound=Versioned)


def read_link_file(path: Path, form: TypeAdapter[K], version: int, what: str, hint: str) -> K | None:
    """None where there is none. Raises AuditResultDamaged, which says that it is not `what`, with the `hint`."""
    try:
        found = form.validate_json(path.read_text(encoding="utf-8"))
        if found.version != version:
            raise ValueError(f"its version is {found.version}, this program reads {version}")
    except FileNotFoundError:
        return None
    except (ValidationError, ValueError) as error:
        raise AuditResultDamaged(f"{path} is not {what}: {str(error).splitlines()[0]}", hint) from error
    return found
