"""Spark as the child starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from monitoring.audit.locked import REDACTED, redacting
from monitoring.audit.session import (
    JAVA_OPTIONS,
    SparkSettings,
    cause_of,
    connector_coordinates,
    forget_what_is_done,
    java_class,
    spark_options,
)

ROOT = Path(__file__).resolve().parents[3]


def test_spark_leaves_nothing_in_the_folder_where_it_ran_and_misses_its_connector(tmp_path: Path) -> None:
    """In a process of its own: Spark looks at its folder only when its Java starts."""
    program = (
        "from pathlib import Path\n"
        "from monitoring.audit.session import SparkSettings, require_connector, spark_session\n"
        "from monitoring.errors import SparkFailed\n"
        "settings = SparkSettings('local[1]', (), Path('spark.log'), {'spark.jars.packages': ''})\n"
        "with spark_session(settings) as spark:\n"
        "    assert spark.range(3).count() == 3\n"
        "    try:\n"
        "        require_connector(spark)\n"
        "    except SparkFailed as error:\n"
        "        print(error, error.hint)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=120, stdout=subprocess.PIPE
    )
    assert list(tmp_path.iterdir()) == []
    assert b"Kafka connector is not in these jars" in done.stdout
    assert f"{connector_coordinates(version('pyspark'))} and what it needs".encode() in done.stdout


def test_settings_of_the_operator_come_before_ours() -> None:
    mine = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "64", JAVA_OPTIONS: "-Dmine=1"}
    options = spark_options(SparkSettings("local[1]", ("a.jar",), Path("log"), mine, ("org:own:1",)))
    assert (options["spark.driver.memory"], options["spark.sql.shuffle.partitions"]) == ("4g", "64")
    assert options[JAVA_OPTIONS].endswith(".properties -Dmine=1")
    assert (options["spark.jars"], options["spark.jars.packages"]) == (str(Path("a.jar").absolute()), "org:own:1")


def test_what_an_operator_has_redacted_is_redacted_beside_passwords() -> None:
    mine = {"spark.redaction.regex": "(?x) customer # and no more", "spark.sql.redaction.options.regex": ""}
    options = spark_options(SparkSettings("local[1]", ("a.jar",), Path("log"), mine))
    assert options["spark.redaction.regex"] == f"{REDACTED['spark.redaction.regex']}|(?x) customer # and no more"
    assert options["spark.sql.redaction.options.regex"] == REDACTED["spark.sql.redaction.options.regex"]


def test_spark_goes_by_both_expressions(spark: Any) -> None:
    """As Java reads them."""
    joined = redacting({"spark.redaction.regex": "(?x) customer # and no more"})["spark.redaction.regex"]
    expression = java_class(spark, "java.util.regex.Pattern").compile(joined)
    for name in ("kafka.sasl.JAAS.config", "spark.ssl.keyStore", "my.customer.name"):
        assert expression.matcher(name).find(), name
    assert not expression.matcher("my.CUSTOMER.name").find()


def test_without_jars_the_connector_is_one_of_the_packages() -> None:
    options = spark_options(SparkSettings("local[1]", (), Path("log"), {}, ("org:own:1",)))
    assert options["spark.jars.packages"] == f"{connector_coordinates(version('pyspark'))},org:own:1"
    assert "spark.jars" not in options


def test_checkpoints_of_a_comparison_are_given_back_before_the_next(spark: Any) -> None:
    def kept() -> int:
        return len(spark.sparkContext._jsc.getPersistentRDDs())

    forget_what_is_done(spark)
    assert kept() == 0
    frame = spark.range(10).localCheckpoint()
    assert kept() == 1
    forget_what_is_done(spark)
    assert kept() == 0
    assert spark.range(3).localCheckpoint().count() == 3
    del frame


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        ("[PATH_NOT_FOUND] no such path\n\nJVM stacktrace:\n\tat a.b(C.java:1)", "[PATH_NOT_FOUND] no such path"),
        (
            "An error occurred while calling o7.load.\n: java.io.IOException: no room\n\tat a.b(C.java:1)\n",
            "java.io.IOException: no room",
        ),
        (
            "An error occurred while calling z:a.b.\n: org.apache.spark.SparkException: aborted\n\tat a.b(C.java:1)\n"
            "Caused by: java.lang.A: one\n\tat a.b(C.java:1)\nCaused by: java.lang.B: other\n\t... 3 more",
            "java.lang.B: other",
        ),
        (
            "An error occurred while calling z:a.b.\n: org.apache.spark.SparkException: aborted\n\tat a.b(C.java:1)\n"
            "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            "  File \"worker.py\", line 1, in main\n    load()\nModuleNotFoundError: No module named 'monitoring'\n\n"
            "\tat a.b(C.java:1)\n\t... 1 more",
            "ModuleNotFoundError: No module named 'monitoring'",
        ),
        ("", "RuntimeError"),
    ],
)
def test_of_a_trace_its_innermost_cause_is_said(trace: str, cause: str) -> None:
    assert cause_of(RuntimeError(trace)) == cause
