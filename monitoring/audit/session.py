"""Starting Spark for an audit, with the connector that belongs to it. Only the audit's child loads this."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from monitoring.audit.locked import redacting
from monitoring.errors import SparkFailed

JAVA_STOP_S = 30.0
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DATAFRAME_DEBUGGING = "spark.python.sql.dataFrameDebugging.enabled"
_CLASSES_ASKED_FOR = {
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
}
"""By the names that PySpark asks Java for whenever it makes a column."""
_CONSUMER_TIMES = [
    f"spark.kafka.consumer.{cache}.{time}"
    for cache in ("cache", "fetchedData.cache")
    for time in ("timeout", "evictorThreadRunInterval")
]
_CAUSED_BY, _CALLED, _PYTHONS = "Caused by: ", ": ", "Traceback (most recent call last):"
"""Of a Java trace: what begins a cause, and what a failed call was answered; and what begins a trace of Python's."""
TO_JAVA = "py4j"
"""The logger of what PySpark sends to Java: passwords are among it."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to reach Spark. `jars` empty: the connector is resolved by Maven coordinates, at PySpark's own version.

    `packages` are Maven coordinates besides, `options` Spark's own settings, which come before ours,
    but beside ours where they say what Spark is not to show.
    `log_file` is where this process's standard error goes: an error names it.
    """

    master: str
    jars: tuple[str, ...]
    log_file: Path
    options: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


def connector_coordinates(pyspark_version: str) -> str:
    """Maven coordinates of the Kafka connector, which must have exactly PySpark's version."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark_version}"


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[Any]:
    """A SparkSession for the time of the block; its Java has ended after it. Raises SparkFailed when it does not start.

    Spark 4 leaves an empty folder `artifacts` where its Java was started: that is a folder which goes away.
    """
    logging.getLogger(TO_JAVA).setLevel(logging.INFO)
    # The workers must run the same Python as we do, or Spark refuses to mix them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options = spark_options(settings)
    with tempfile.TemporaryDirectory(prefix="farshore-audit-", ignore_cleanup_errors=True) as scratch:
        try:
            with chdir(scratch):
                session = _start(settings, options)
            try:
                yield session
            finally:
                with suppress(Py4JError, OSError):  # a Java that is gone is stopped
                    session.stop()
        finally:
            _stop_java()


def require_connector(spark: Any) -> None:
    """Raise SparkFailed where the session has no Kafka connector. No broker is asked for that."""
    try:
        spark.read.format("kafka").option("kafka.bootstrap.servers", "unused:1").option(
            "assign", '{"unused":[0]}'
        ).load()
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(
            f"Spark's Kafka connector is not in these jars, or not the one of this Spark: {first_line(error)}",
            f"use {connector_coordinates(spark.version)} and what it needs; without --jars Maven has it",
        ) from error


def forget_what_is_done(spark: Any) -> None:
    """Give back what a comparison keeps at the executors and on their disks, before the next one begins.

    Its checkpoints are on nobody's mind any more, and Java would look for such things each half an hour alone.
    """
    gc.collect()
    for kept in spark.sparkContext._jsc.getPersistentRDDs().values():
        kept.unpersist()
    spark.catalog.clearCache()
    java_class(spark, "java.lang.System").gc()


def spark_options(settings: SparkSettings) -> dict[str, str]:
    """All settings of the session, by Spark's names."""
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # It keeps them for a page that nobody sees, and a session may last for a thousand comparisons.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "10",
        # It says in an error which of our lines made a column, for six questions to Java for each column that is made.
        DATAFRAME_DEBUGGING: "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
        # Both sites are read by one job each time: results must not depend on a speculative second reader.
        "spark.speculation": "false",
        # A partition is read once: what its consumer and its last poll hold is of no use to anybody afterwards.
        **dict.fromkeys(_CONSUMER_TIMES, "1s"),
        JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if not settings.master.startswith("local"):
        # On a cluster the executors must reach the driver by its own name; Spark finds it.
        del options["spark.driver.host"], options["spark.driver.bindAddress"]
    packages = list(settings.packages)
    if settings.jars:
        options["spark.jars"] = ",".join(_absolute(jar) for jar in settings.jars)
    else:
        packages.insert(0, connector_coordinates(pyspark.__version__))
    if packages:
        options["spark.jars.packages"] = ",".join(packages)
    chosen = dict(settings.options)
    if JAVA_OPTIONS in chosen:
        chosen[JAVA_OPTIONS] = f"{options[JAVA_OPTIONS]} {chosen[JAVA_OPTIONS]}"
    return options | chosen | redacting(chosen)


def _absolute(jar: str) -> str:
    """A path that holds in every folder; an address is one already."""
    return jar if urlsplit(jar).scheme else str(Path(jar).absolute())


def _start(settings: SparkSettings, options: dict[str, str]) -> Any:
    builder = SparkSession.builder.master(settings.master).appName("farshore-audit")
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        _keep_classes(session)
        return session
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise SparkFailed(
            f"Spark did not start: {first_line(error)}",
            f"see {settings.log_file}; without access to a Maven repository name the connector's jars with --jars",
        ) from error


def java_class(spark: Any, full_name: str) -> Any:
    """A class of Java's. By `spark._jvm.a.b.Class` Java would look through all jars for each part of the name."""
    return getattr(spark._jvm, full_name)


def _keep_classes(session: Any) -> None:
    """Java is asked for them once: it looks through all jars for a short name, each time."""
    for name, full_name in _CLASSES_ASKED_FOR.items():
        setattr(session._jvm, name, java_class(session, full_name))


def _stop_java() -> None:
    """Wait for the Java process, which otherwise ends some time after this one, as nobody's child."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(JAVA_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def cause_of(error: BaseException) -> str:
    """The innermost cause that a Java trace names, of an error in Python its own last line; else its first line."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    causes = [nth for nth, line in enumerate(lines) if line.strip().startswith(_CAUSED_BY)]
    named = causes or [nth for nth, line in enumerate(lines) if line.startswith(_CALLED)]
    if not named:
        return first_line(error)
    told = lines[named[-1]].strip().removeprefix(_CAUSED_BY).removeprefix(_CALLED)
    if not told.endswith(_PYTHONS):
        return told
    python = takewhile(lambda line: not line.startswith("\tat "), lines[named[-1] + 1 :])
    return [told, *[line for line in python if not line.startswith(" ")]][-1]


def is_refusal(told: str) -> bool:
    """Whether Kafka did not let Java read a topic, as an error of Spark has it: not all of these name the topic."""
    return ".TopicAuthorizationException: " in told
