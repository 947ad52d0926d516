"""The process that Spark runs in: reads ChildRequests from stdin, writes events to the descriptor in its argument.

    python -m monitoring.audit.child DESCRIPTOR < requests.jsonl

Spark is started for the first request, by what that one says of it, and ends with stdin or with the first request that
fails. Standard output and error are the log, which Spark's Java inherits. Errors that say nothing to an operator end it
with a traceback there and without a last event.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TextIO

from monitoring.audit.apart import ApartJob, compare_apart, digest_apart
from monitoring.audit.document import as_document
from monitoring.audit.job import AuditJob, run_job
from monitoring.audit.kept import written_bytes
from monitoring.audit.look import log_starts, require_clusters
from monitoring.audit.model import Side
from monitoring.audit.outcome import AuditResult
from monitoring.audit.proof import (
    as_far_as_kept,
    next_proof,
    proof_held,
    read_proof_if_any,
    without_what_differs,
    write_proof,
)
from monitoring.audit.protocol import (
    EVENT,
    REQUEST,
    ApartRequest,
    ChildRequest,
    Compared,
    Digested,
    Ended,
    Event,
    Progress,
    failed,
)
from monitoring.audit.refusals import named_refusal
from monitoring.audit.report import as_html
from monitoring.audit.session import SparkSettings, forget_what_is_done, require_connector, spark_session
from monitoring.audit.store import is_newest, write_document, write_report, write_summary
from monitoring.audit.tables import write_result, write_tables
from monitoring.errors import AuditError, ReadRefused


def main() -> None:
    """Carry out one request after the other."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as events, ExitStack() as sessions:
        spark = None

        def report(step: str) -> None:
            _tell(events, Progress(step))

        for line in sys.stdin.buffer:
            request = REQUEST.validate_json(line)
            try:
                if spark is None:
                    report("starting Spark")
                    spark = sessions.enter_context(spark_session(_settings(request)))
                    require_connector(spark)
                _tell(events, carry_out(spark, request, report))
            except ReadRefused as error:
                _tell(events, failed(_named(request, error)))
                return
            except (AuditError, OSError) as error:
                _tell(events, failed(error))
                return
            forget_what_is_done(spark)


def _named(request: ChildRequest, error: ReadRefused) -> AuditError:
    apart = request.apart
    sides = tuple(Side) if apart is None or apart.side is None else (apart.side,)
    try:
        return asyncio.run(named_refusal(request.frozen, sides, error))
    except AuditError as lost:
        return lost


def _settings(request: ChildRequest) -> SparkSettings:
    return SparkSettings(request.master, request.jars, request.log_file, request.options, request.packages)


def carry_out(spark: Any, request: ChildRequest, report: Callable[[str], None]) -> Ended:
    """The whole run, or a part of it. Raises AuditError, and OSError when the results cannot be written."""
    if request.apart is not None and request.apart.side is not None:
        return digested(spark, request, report)
    result = compared(spark, request, report)
    report("writing the result")
    write_result(spark, result, request.directory)
    return keep(result, request)


def digested(spark: Any, request: ChildRequest, report: Callable[[str], None]) -> Digested:
    """One site's own part."""
    apart = request.apart
    assert apart is not None
    assert apart.side is not None
    manifest = digest_apart(spark, _apart(request, apart, report), apart.side)
    return Digested(manifest, written_bytes(spark, apart.base, request.run_id, manifest.site))


def compared(spark: Any, request: ChildRequest, report: Callable[[str], None]) -> AuditResult:
    """Of both sites' digests, where the run is apart; else of both sites, which are digested here."""
    if request.apart is not None:
        return compare_apart(spark, _apart(request, request.apart, report), request.directory)
    job = _job(request, tuple(Side), report)
    return run_job(spark, job, store=lambda tables: write_tables(tables, request.directory, request.run_id))


def keep(result: AuditResult, request: ChildRequest) -> Compared:
    """What others read of the run. An older freeze does not take the place of a newer one, nor a sample of a proof.

    But whatever has found a difference, what was proved of these partitions is to be read again.
    """
    directory = request.directory
    page = write_report(as_html(result, request.command), directory, result.run_id)
    document = as_document(result)
    write_document(document, directory)
    with proof_held(directory, result.frozen.link):
        known, is_last = read_proof_if_any(directory, result.frozen.link), is_newest(result, directory)
        if is_last and result.sampled is None:
            write_proof(as_far_as_kept(next_proof(result), result, known), directory)
        elif not result.verdict.is_equal:
            write_proof(without_what_differs(known, result), directory)
        if is_last and (result.sampled is None or not result.verdict.is_equal):
            write_summary(result, directory)
    return Compared(result.verdict, document, page)


def _apart(request: ChildRequest, apart: ApartRequest, report: Callable[[str], None]) -> ApartJob:
    sides = tuple(Side) if apart.side is None else (apart.side,)

    def meet(asked: Sequence[Side]) -> None:
        asyncio.run(require_clusters(request.frozen, asked))

    return ApartJob(_job(request, sides, report), apart.kept, apart.base, meet)


def _job(request: ChildRequest, sides: Sequence[Side], report: Callable[[str], None]) -> AuditJob:
    return AuditJob(
        request.run_id,
        request.frozen,
        _now_ms,
        look=lambda partitions: asyncio.run(log_starts(request.frozen, partitions, sides)),
        report=report,
        sample=request.sample,
        may_stay_closed=request.may_stay_closed,
    )


def _tell(events: TextIO, event: Event) -> None:
    events.write(EVENT.dump_json(event).decode() + "\n")
    events.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
