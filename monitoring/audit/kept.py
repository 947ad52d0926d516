"""Digests and manifests of one site's own job, as Parquet that Spark writes and reads wherever it can reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from monitoring.audit.digest import DIGESTED
from monitoring.audit.manifest import MANIFEST, SiteManifest, Sums, parsed
from monitoring.audit.model import Place
from monitoring.audit.rows import frame_of
from monitoring.audit.session import first_line, java_class
from monitoring.errors import DigestsUnusable

MANIFEST_SCHEMA: Final = "manifest string"
DIGESTS_SCHEMA: Final = "topic string, partition int, range_start bigint, " + ", ".join(
    f"{name} bigint" for name in DIGESTED
)


def digests_folder(base: str, run_id: str) -> str:
    return f"{base}/digests/run_id={run_id}"


def write_digests(digests: Any, base: str, run_id: str, site: str) -> None:
    """One site's digests, in place of what was there. `base` is a folder, or an address that Spark can write to."""
    placed = digests.repartition("topic", "partition").sortWithinPartitions("range_start")
    placed.write.partitionBy("topic", "partition").mode("overwrite").parquet(_digests(base, run_id, site))


def sums_of(digests: Any) -> dict[Place, Sums]:
    """By partition."""
    rows = digests.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("ranges"),
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.bit_xor(F.xxhash64("range_start", *DIGESTED)).alias("rows_hash"),
    )
    return {
        (row["topic"], row["partition"]): Sums(row["ranges"], row["records"], row["bytes"], row["rows_hash"])
        for row in rows.collect()
    }


def drop_manifest(spark: Any, base: str, run_id: str, site: str) -> None:
    """Before digests are written anew: what is half written has none."""
    path = _java_path(spark, _manifest(base, run_id, site))
    path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, True)


def write_manifest(spark: Any, manifest: SiteManifest, base: str) -> None:
    """Behind the digests."""
    rows: list[Mapping[str, Any]] = [{"manifest": MANIFEST.dump_json(manifest).decode()}]
    frame = frame_of(spark, rows, MANIFEST_SCHEMA).coalesce(1)
    frame.write.mode("overwrite").parquet(_manifest(base, manifest.run_id, manifest.site))


def read_manifest(spark: Any, base: str, run_id: str, site: str) -> SiteManifest:
    """Raises DigestsUnusable where there is none: the site was not digested, or not to the end."""
    where = _manifest(base, run_id, site)
    try:
        rows = spark.read.schema(MANIFEST_SCHEMA).parquet(where).collect()
    except (PySparkException, Py4JError) as error:
        raise DigestsUnusable(
            f"there are no digests of site {site} for run {run_id} in {base}, or not all of them: {first_line(error)}",
            f"digest it, and bring all of it here: farshore audit digest --site {site} --run {run_id}",
        ) from error
    return parsed([row["manifest"] for row in rows], site, where)


def read_digests(spark: Any, base: str, run_id: str, site: str) -> Any:
    """A DataFrame as `digest_site` has it. Raises DigestsUnusable."""
    try:
        found = spark.read.schema(DIGESTS_SCHEMA).parquet(_digests(base, run_id, site))
        # Names of folders are what Spark takes for them: a topic may be called 2026.
        return found.select("topic", "partition", "range_start", *DIGESTED).localCheckpoint()
    except (PySparkException, Py4JError) as error:
        raise DigestsUnusable(
            f"the digests of site {site} for run {run_id} cannot be read in {base}: {first_line(error)}",
            f"copy them again, or digest it anew: farshore audit digest --site {site} --run {run_id}",
        ) from error


def written_bytes(spark: Any, base: str, run_id: str, site: str) -> int:
    """What the digests and the manifest of a site take, as they are stored."""
    total = 0
    for text in (_digests(base, run_id, site), _manifest(base, run_id, site)):
        path = _java_path(spark, text)
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        total += files.getContentSummary(path).getLength()
    return total


def _java_path(spark: Any, text: str) -> Any:
    return java_class(spark, "org.apache.hadoop.fs.Path")(text)


def _digests(base: str, run_id: str, site: str) -> str:
    return f"{digests_folder(base, run_id)}/site={site}"


def _manifest(base: str, run_id: str, site: str) -> str:
    return f"{base}/manifests/run_id={run_id}/site={site}"
