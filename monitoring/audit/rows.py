"""A DataFrame of rows that this process has. One made from Python rows would start Python workers at Spark for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits


def frame_of(spark: Any, rows: Iterable[Mapping[str, Any]], schema: str) -> Any:
    """The rows (of what JSON has) as a DataFrame; `schema` as in DDL."""
    fields = ",".join(":".join(field.rsplit(" ", 1)) for field in schema.split(", "))
    text = json.dumps(list(rows), separators=(",", ":"))
    parsed = F.from_json(F.lit(text), f"array<struct<{fields}>>")
    table = spark.range(1).select(F.explode(parsed).alias("row")).select("row.*")
    # A long literal would be looked through for each of a plan's many forms, and travel with each task.
    return table if len(text) <= limits.AUDIT_LITERAL_MAX_CHARACTERS else table.repartition(1).localCheckpoint()
