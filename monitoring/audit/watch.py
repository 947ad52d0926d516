"""`farshore audit watch`: audit after audit of one link by one Spark, each from where the proof of the last one ends.

Nothing but a bug ends it: what fails is said once and tried again, and the age of the proof grows meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from monitoring.audit.files import held
from monitoring.audit.model import AuditVerdict
from monitoring.audit.run import AuditOutcome, AuditRequest, require_means, run_audit, run_id_of
from monitoring.audit.spark_child import SparkChild
from monitoring.audit.watching import (
    WatchState,
    after_run,
    read_state,
    run_id_at,
    runs_to_trim,
    state_path,
    unproved_offsets,
    write_state,
)
from monitoring.errors import AuditError

TABLES: Final = ("runs", "digests", "ranges", "groups", "diffs", "manifests")
FILES: Final = (("plans", "json"), ("reports", "html"), ("repairs", "json"), ("documents", "json"))


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of a link now. `failed_in_a_row`: audits since the last one that ended; `audits` ended, `failed`
    did not, both since the start. `seconds`: how long the newest took. `unproved` as in `unproved_offsets`.
    `differed`: one since the start found a difference.
    """

    link: str
    proved_at_ms: int | None = None
    verdict: AuditVerdict | None = None
    audits: int = 0
    failed: int = 0
    failed_in_a_row: int = 0
    seconds: float | None = None
    unproved: dict[str, int] = field(default_factory=dict)
    differed: bool = False


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """What to audit, how long from the beginning of one audit to that of the next, and who is told.

    `post` gets what is known whenever it changes, `say` lines for a person.
    """

    request: AuditRequest
    every_ms: int
    clock: Clock
    post: Callable[[Watched], None]
    say: Callable[[str], None]


async def watch(settings: WatchSettings) -> None:
    """Until cancelled: an audit that is under way then is given up, and what it had read is read again by the next.

    Raises AuditError where no audit could ever be made here, or another watch of the link runs on the same folder.
    """
    request, clock = settings.request, settings.clock
    require_means((request.link.source, request.link.target), request.jars)
    run_id_of(replace(request, run_id=run_id_at(request.link.name, clock.now_ms())))
    with _the_only_watch(request.directory, request.link.name):
        state = read_state(request.directory, request.link.name)
        watched = Watched(request.link.name, state.proved_at_ms, state.verdict)
        settings.post(watched)
        failing = ""
        async with SparkChild() as spark:
            while True:
                began = clock.monotonic()
                run = replace(request, run_id=run_id_at(request.link.name, clock.now_ms()))
                try:
                    outcome = await run_audit(run, lambda _: None, spark.compare)
                    state, watched = _ended(settings, state, watched, outcome)
                    failing = ""
                except (FarshoreError, OSError, ExceptionGroup) as error:
                    words = _told(error)
                    watched = replace(watched, failed=watched.failed + 1, failed_in_a_row=watched.failed_in_a_row + 1)
                    if words != failing:
                        settings.say(f"no audit, tried again each {settings.every_ms / 1000:g} s: {words}")
                    failing = words
                    with suppress(OSError):  # what goes wrong now does so again when an audit has ended, and is told
                        trim(request.directory, state)
                    settings.post(watched)
                await clock.sleep(max(0.0, began + settings.every_ms / 1000 - clock.monotonic()))


def _ended(
    settings: WatchSettings, state: WatchState, watched: Watched, outcome: AuditOutcome
) -> tuple[WatchState, Watched]:
    """Tell what is new, keep it, and let go of old runs. Raises OSError where that cannot be written."""
    document: dict[str, Any] = outcome.document
    state, lines = after_run(state, document)
    if watched.failed_in_a_row:
        settings.say(f"audits again, after {watched.failed_in_a_row:,} that failed")
    for line in lines:  # before it is kept: a crash in between tells it twice, and not never
        settings.say(line)
    watched = replace(
        watched,
        proved_at_ms=state.proved_at_ms,
        verdict=state.verdict,
        audits=watched.audits + 1,
        failed_in_a_row=0,
        seconds=document["seconds"],
        unproved=unproved_offsets(document),
        differed=watched.differed or state.verdict in (AuditVerdict.DIFFERS, AuditVerdict.MOVED),
    )
    settings.post(watched)
    directory = settings.request.directory
    write_state(state, directory)
    trim(directory, state)
    return state, watched


def trim(directory: Path, state: WatchState) -> None:
    """Remove the runs that the watch keeps no more, and what those that failed had written. Raises OSError.

    None of the watch may be under way.
    """
    found = [path.stem for folder, _ in FILES for path in (directory / folder).glob("*")]
    found += [path.name.partition("=")[2] for table in TABLES for path in (directory / table).glob("run_id=*")]
    ended = {path.stem for path in (directory / "documents").glob("*.json")}
    for run_id in runs_to_trim(found, ended, state):
        for table in TABLES:
            with suppress(FileNotFoundError):
                shutil.rmtree(directory / table / f"run_id={run_id}")
        for folder, ending in FILES:
            (directory / folder / f"{run_id}.{ending}").unlink(missing_ok=True)


def _told(error: FarshoreError | OSError | ExceptionGroup[Exception]) -> str:
    """In words, with the next step. What is not to be told is a bug, and raised."""
    if isinstance(error, ExceptionGroup):
        _, bugs = error.split((FarshoreError, OSError))
        if bugs is not None:
            raise error
        return _told(_first(error))
    if isinstance(error, FarshoreError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    return str(error) or type(error).__name__


def _first(group: ExceptionGroup[Exception]) -> Any:
    found: Any = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


@contextmanager
def _the_only_watch(directory: Path, link: str) -> Iterator[None]:
    """Two would tell all twice and trim each other's runs."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(state_path(directory, link).with_suffix(".lock"), waits=False))
        except BlockingIOError as error:
            raise AuditError(
                f"link {link} is watched already, by another process with the folder {directory}",
                "stop that one, or give this one a folder of its own: --output-dir",
            ) from error
        yield
