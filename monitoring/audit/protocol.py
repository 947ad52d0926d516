"""What the audit's parent and its child say to each other: one request on stdin, one event a line on a pipe.

Nothing here needs Spark. The values travel as JSON, written and read by their types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from broker.base.errors import FarshoreError
from monitoring.audit.manifest import SiteManifest
from monitoring.audit.model import AuditVerdict, FrozenLink, Side
from monitoring.audit.plans import KeptPlan
from monitoring.audit.sample import Sample
from monitoring.errors import AuditError, DigestsUnusable, NothingToCompare, SiteLost, SparkFailed, SparkMissing


@dataclass(frozen=True, slots=True)
class ApartRequest:
    """A part of a run: digest the site of `side`, or, where that is None, compare. `base` has the digests."""

    kept: KeptPlan
    base: str
    side: Side | None = None


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """What the child is to do, and where to put what it finds. `command` is what repeats the run.

    `options` are Spark's own settings, `packages` Maven coordinates besides the connector's. `apart`: not a whole run,
    but a part of the one that was planned. `may_stay_closed` as in `Sites`.
    """

    run_id: str
    frozen: FrozenLink
    master: str
    jars: tuple[str, ...]
    directory: Path
    log_file: Path
    command: str
    options: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    sample: Sample | None = None
    apart: ApartRequest | None = None
    may_stay_closed: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """The step that begins."""

    step: str
    event: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class Compared:
    """The end of a run: everything is on disk. `document` is what `as_document` gives."""

    verdict: AuditVerdict
    document: dict[str, Any]
    report: Path
    event: Literal["compared"] = "compared"


@dataclass(frozen=True, slots=True)
class Digested:
    """The end of a site's own part: its digests are written. `size_bytes` is what has to travel."""

    manifest: SiteManifest
    size_bytes: int
    event: Literal["digested"] = "digested"


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a run that failed. `kind` names the error's class, and with it whether it is retriable."""

    kind: Literal[
        "AuditError", "DigestsUnusable", "NothingToCompare", "OSError", "SiteLost", "SparkFailed", "SparkMissing"
    ]
    message: str
    hint: str = ""
    event: Literal["failed"] = "failed"


Ended = Compared | Digested
Event = Progress | Ended | Failed

_ERRORS: Final = (DigestsUnusable, NothingToCompare, SiteLost, SparkFailed, SparkMissing)
_KINDS: Final = {kind.__name__: kind for kind in (AuditError, *_ERRORS)}
REQUEST: Final = TypeAdapter(ChildRequest)
EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Event)


def failed(error: AuditError | OSError) -> Failed:
    """An error as an event."""
    if isinstance(error, OSError):
        named = error.strerror and error.filename
        return Failed("OSError", f"{error.filename}: {error.strerror}" if named else error.strerror or str(error))
    kind = next((kind for kind in _ERRORS if isinstance(error, kind)), AuditError)
    return Failed(kind.__name__, str(error), error.hint)  # type: ignore[arg-type]  # the names of the classes above


def error_of(event: Failed) -> FarshoreError | OSError:
    """The event as the error it was."""
    return OSError(event.message) if event.kind == "OSError" else _KINDS[event.kind](event.message, event.hint)
