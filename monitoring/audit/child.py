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
from contextlib import ExitStack
from typing import Any, TextIO

from monitoring.audit.document import as_document
from monitoring.audit.job import AuditJob, run_job
from monitoring.audit.look import log_starts
from monitoring.audit.proof import next_proof, write_proof
from monitoring.audit.protocol import EVENT, REQUEST, ChildRequest, Compared, Event, Progress, failed
from monitoring.audit.report import as_html
from monitoring.audit.session import SparkSettings, forget_what_is_done, require_connector, spark_session
from monitoring.audit.store import write_document, write_report, write_summary
from monitoring.audit.tables import write_result, write_tables
from monitoring.errors import AuditError


def main() -> None:
    """Carry out one request after the other."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as events, ExitStack() as sessions:
        spark = None
        for line in sys.stdin.buffer:
            request = REQUEST.validate_json(line)
            try:
                if spark is None:
                    _tell(events, Progress("starting Spark"))
                    spark = sessions.enter_context(spark_session(_settings(request)))
                    require_connector(spark)
                _tell(events, compare(spark, request, events))
            except (AuditError, OSError) as error:
                _tell(events, failed(error))
                return
            forget_what_is_done(spark)


def _settings(request: ChildRequest) -> SparkSettings:
    return SparkSettings(request.master, request.jars, request.log_file, request.options, request.packages)


def compare(spark: Any, request: ChildRequest, events: TextIO) -> Compared:
    """Compare and store. Raises AuditError, and OSError when the results cannot be written."""
    directory, run_id = request.directory, request.run_id
    job = AuditJob(
        run_id,
        request.frozen,
        _now_ms,
        look=lambda partitions: asyncio.run(log_starts(request.frozen, partitions)),
        report=lambda step: _tell(events, Progress(step)),
    )
    result = run_job(spark, job, store=lambda tables: write_tables(tables, directory, run_id))
    _tell(events, Progress("writing the result"))
    write_result(spark, result, directory)
    page = write_report(as_html(result, request.command), directory, run_id)
    document = as_document(result)
    write_document(document, directory)
    write_proof(next_proof(result), directory)
    write_summary(result, directory)
    return Compared(result.verdict, document, page)


def _tell(events: TextIO, event: Event) -> None:
    events.write(EVENT.dump_json(event).decode() + "\n")
    events.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
