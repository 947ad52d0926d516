"""Starting Spark for an audit, quietly, with the connector that belongs to it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring.errors import SparkFailed, SparkMissing

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to reach Spark. `jars` empty: the connector is resolved by Maven coordinates, at PySpark's own version."""

    master: str = "local[*]"
    jars: tuple[str, ...] = ()
    log_file: Path | None = None
    options: dict[str, str] = field(default_factory=dict)


def connector_coordinates(pyspark_version: str) -> str:
    """Maven coordinates of the Kafka connector, which must have exactly PySpark's version."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark_version}"


def require_spark() -> None:
    """Raise SparkMissing, naming the command that helps, before anything slow begins."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissing("the audit needs PySpark, which is not installed", "pip install 'farshore[audit]'")
    java_home = os.environ.get("JAVA_HOME")
    if (java_home is None or not Path(java_home, "bin", "java").exists()) and shutil.which("java") is None:
        raise SparkMissing(
            "the audit needs Java 17 for Spark, and no java is on the PATH",
            "apt-get install openjdk-17-jre-headless, or set JAVA_HOME",
        )


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[Any]:
    """A SparkSession for the time of the block.

    Spark's own log and the resolver's report go to `settings.log_file` (else nowhere): standard output belongs to the
    result. Raises SparkMissing, and SparkFailed when Spark does not start.
    """
    require_spark()
    from py4j.protocol import Py4JError

    # The workers must run the same Python as we do, or Spark refuses to mix them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with interrupts_kept(), _nothing_left_in(Path.cwd()):
        try:
            session = _start(settings)
            try:
                yield session
            finally:
                with suppress(Py4JError, OSError):  # a Java that is gone is stopped
                    session.stop()
        finally:
            _stop_java()


@contextmanager
def _nothing_left_in(folder: Path) -> Iterator[None]:
    """Take away the empty folder `artifacts` that Spark 4 makes where it is started, unless it was there before."""
    artifacts = folder / "artifacts"
    ours = not artifacts.exists()
    try:
        yield
    finally:
        if ours:
            with suppress(OSError):  # it is not there, or somebody has put something into it
                artifacts.rmdir()


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise KeyboardInterrupt when the block failed after a SIGINT, whatever it failed with.

    Py4J turns the KeyboardInterrupt of a call that waits for Java into an error of that call, and PySpark puts a
    handler of its own in place of ours. The wake-up descriptor is told of a signal whatever its handler does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        handler = signal.getsignal(signal.SIGINT)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        except Exception as error:  # any failure may be the interrupt's; without one it is raised unchanged
            if signal.SIGINT in _received(reader):
                raise KeyboardInterrupt from error
            raise
        finally:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGINT, handler)


def _received(reader: socket.socket) -> bytes:
    """The numbers of the signals that came, one a byte."""
    try:
        return reader.recv(4096)
    except BlockingIOError:
        return b""


def _start(settings: SparkSettings) -> Any:
    import pyspark
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.master).appName("farshore-audit")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
        # Both sites are read by one job each time: results must not depend on a speculative second reader.
        "spark.speculation": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    if not settings.master.startswith("local"):
        # On a cluster the executors must reach the driver by its own name; Spark finds it.
        del options["spark.driver.host"], options["spark.driver.bindAddress"]
    if settings.jars:
        options["spark.jars"] = ",".join(settings.jars)
    else:
        options["spark.jars.packages"] = connector_coordinates(pyspark.__version__)
    for name, value in (options | settings.options).items():
        builder = builder.config(name, value)
    where = (
        f"see {settings.log_file}" if settings.log_file is not None else "run again with --output-dir to keep its log"
    )
    try:
        with _output_of_java(settings.log_file), _no_java_left_behind():
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise SparkFailed(
            f"Spark did not start: {_first_line(error)}",
            f"{where}; without access to a Maven repository name the connector's jars with --jars",
        ) from error


@contextmanager
def _output_of_java(log_file: Path | None) -> Iterator[None]:
    """Let the Java process that is started inside inherit a log file as its standard output and error.

    PySpark offers no way to say this: the child takes descriptors 1 and 2 as they are. They are given back at the end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(log_file or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    try:
        for descriptor, _ in kept:
            os.dup2(target, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in kept:
            os.dup2(original, descriptor)
            os.close(original)
        os.close(target)


@contextmanager
def _no_java_left_behind() -> Iterator[None]:
    """End the Java processes that are started inside when the block fails or is interrupted.

    A Java that was starting finds nobody to tell its port to: its main thread ends, but another one listens for ever.
    PySpark keeps the process to itself until it has connected, so it is taken note of where it is made.
    """
    from pyspark import java_gateway

    made: list[subprocess.Popen[bytes]] = []

    def popen(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(*command, **options))
        return made[-1]

    java_gateway.Popen = popen
    try:
        yield
    except BaseException:  # also when interrupted: nobody else knows these processes
        for process in made:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = subprocess.Popen


def _stop_java() -> None:
    """End the Java process, which PySpark otherwise keeps until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
