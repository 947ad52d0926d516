"""A DataFrame of rows that this process has. One made from Python rows would start Python workers at Spark for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from monitoring.audit.session import java_class


def frame_of(spark: Any, rows: Iterable[Mapping[str, Any]], schema: str) -> Any:
    """The rows (of what JSON has) as a DataFrame; `schema` as in DDL.

    They travel to Java as lines of one text. As a literal in the plan a long one would be looked through, and written
    out, for each of the plan's many forms.
    """
    text = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    lines = java_class(spark, "java.util.regex.Pattern").compile("\n").splitAsStream(text).toList()
    encoder = java_class(spark, "org.apache.spark.sql.Encoders").STRING()
    strings = spark._jsparkSession.createDataset(lines, encoder)
    parsed = DataFrame(strings.toDF(), spark).where("value != ''").select(F.from_json("value", schema).alias("row"))
    return parsed.select("row.*")
