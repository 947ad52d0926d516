"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.classes import SPARK, kept_classes
from tests.rubbish import look_for_garbage_rarely

FILES_LEFT_OPEN_MAX = 40
"""What one file of tests may leave open in this process: imports and shared fixtures keep some."""
LEAN_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""No JVM of a test lives long enough to repay the second compiler's work."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Nor does a plan over a few rows repay Java that is written and compiled for it."""
SPARK_JARS = Path(__file__).resolve().parents[1] / ".cache" / "spark" / version("pyspark")

# A slow machine is no fault of an example, whatever hypothesis' own limit of 200 ms says.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_configure() -> None:
    """What is imported while tests are collected stays: looking through it is a sixth of what collecting takes."""
    look_for_garbage_rarely()


def pytest_collection_finish() -> None:
    """Otherwise `closed_files` alone would look through every collected test once per module."""
    look_for_garbage_rarely()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark for the whole run: a process can have only one, and it takes some ten seconds to start.

    With the Kafka connector where it was fetched; tests of pure DataFrame functions do without.
    """
    # Loaded here, as most runs of tests have no use for PySpark and all that it loads.
    from monitoring.audit.session import SparkSettings, spark_session

    jars = tuple(sorted(str(jar) for jar in SPARK_JARS.glob("*.jar")))
    options = {"spark.sql.shuffle.partitions": "2", **INTERPRETED} | ({} if jars else {"spark.jars.packages": ""})
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    with spark_session(SparkSettings("local[2]", jars, log_file, options)) as session:
        yield session


@pytest.fixture(scope="session", autouse=True)
def no_terminal() -> Iterator[None]:
    """Tables are as wide as what is in them, however wide the terminal says it is that the tests were started from."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def lean_java() -> Iterator[None]:
    """Every Java that a test starts: Spark's is started by others, and no other way leads to it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JDK_JAVA_OPTIONS", " ".join([LEAN_JAVA, *kept_classes(SPARK)]))
        yield


@pytest.fixture(scope="module", autouse=True)
def closed_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files left open add up over a run of thousands of tests, until another test fails for want of a number."""
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir())) if opened.exists() else 0
    yield
    if opened.exists():
        look_for_garbage_rarely()
        left = len(list(opened.iterdir())) - before
        assert left <= FILES_LEFT_OPEN_MAX, f"{request.node.name} leaves {left} files open"
