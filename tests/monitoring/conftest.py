"""One Spark for all tests of the audit: it takes some ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from monitoring.audit.session import SparkSettings, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark without the Kafka connector: for functions of DataFrames."""
    settings = SparkSettings(
        master="local[2]", options={"spark.jars.packages": "", "spark.sql.shuffle.partitions": "2"}
    )
    with spark_session(settings) as session:
        yield session
