"""Fetch jars from Maven Central with the Ivy that PySpark carries, so that nothing but Java is needed.

    python -m deploy.tools.fetch_jars kafka 3.9.1 .cache/kafka/3.9.1
    python -m deploy.tools.fetch_jars mirror-maker 3.9.1 .cache/mirror-maker/3.9.1
    python -m deploy.tools.fetch_jars spark .cache/spark

A folder with a `.complete` file in it is done; a fetch that was cut off starts again.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version as installed_version
from pathlib import Path

from deploy.tools.errors import ToolsError
from deploy.tools.java import require_java

FETCH_TIMEOUT_SECONDS = 600
FETCH_ATTEMPTS = 3
COMPLETE = ".complete"

# (organisation, module, version)
Coordinate = tuple[str, str, str]

KAFKA_MODULES = ("kafka_2.13", "kafka-tools")
SLF4J_SIMPLE: Coordinate = ("org.slf4j", "slf4j-simple", "1.7.36")

_IVY_FILE = """<ivy-module version="2.0">
  <info organisation="farshore" module="{module}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    <exclude org="org.slf4j" module="slf4j-reload4j"/>
  </dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->default"/>'


def kafka_coordinates(version: str) -> tuple[Coordinate, ...]:
    """Broker and command-line tools of one Apache Kafka release, with a logger that writes to stderr."""
    return (*(("org.apache.kafka", module, version) for module in KAFKA_MODULES), SLF4J_SIMPLE)


def mirror_maker_coordinates(version: str) -> tuple[Coordinate, ...]:
    """MirrorMaker 2 of one Apache Kafka release."""
    return (("org.apache.kafka", "connect-mirror", version), SLF4J_SIMPLE)


def spark_coordinates(pyspark_version: str) -> tuple[Coordinate, ...]:
    """Spark's Kafka connector. It works with no other version than PySpark's own."""
    return (("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark_version),)


def ivy_file(module: str, coordinates: Sequence[Coordinate]) -> str:
    """An Ivy module that depends on all coordinates at once, so that one version of each shared jar is chosen."""
    lines = "\n".join(_IVY_DEPENDENCY.format(*coordinate) for coordinate in coordinates)
    return _IVY_FILE.format(module=module, dependencies=lines)


def pyspark_ivy() -> Path:
    """The Ivy jar in the installed PySpark. Raises ToolsError when PySpark is not installed."""
    # Only its place is asked for: importing it would load all of Spark.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ToolsError("PySpark is not installed", hint="run: make setup")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise ToolsError("the installed PySpark carries no Ivy", hint="run: make clean setup")
    return jars[-1]


def fetch(module: str, coordinates: Sequence[Coordinate], destination: Path) -> int:
    """Put the coordinates and all they depend on into `destination`; the number of jars there.

    Raises ToolsError with the end of Ivy's output when it does not resolve.
    """
    if (destination / COMPLETE).exists():
        return len(list(destination.glob("*.jar")))
    java, ivy = require_java(), pyspark_ivy()
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".fetching-") as folder:
        jars = Path(folder) / "jars"
        description = Path(folder) / "ivy.xml"
        description.write_text(ivy_file(module, coordinates))
        # An Ivy cache of its own per destination: Ivy does not lock the shared one against a second Ivy.
        command = [java, "-jar", str(ivy), "-m2compatible", "-cache", str(Path(folder) / "cache")]
        command += ["-ivy", str(description), "-confs", "default"]
        command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
        _run_ivy(command, module)
        # What Spark has on its class path already must not come a second time.
        for jar in jars.glob("*.jar") if module.startswith("spark") else ():
            if (ivy.parent / jar.name).exists():
                jar.unlink()
        (jars / COMPLETE).touch()
        shutil.rmtree(destination, ignore_errors=True)
        jars.rename(destination)
    return len(list(destination.glob("*.jar")))


def _run_ivy(command: Sequence[str], module: str) -> None:
    output = ""
    for _attempt in range(FETCH_ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
        output = done.stdout + done.stderr
        # Ivy exits 0 when single artifacts failed; its summary says so.
        if done.returncode == 0 and "FAILED DOWNLOADS" not in output and "UNRESOLVED" not in output:
            return
    tail = "\n".join(output.splitlines()[-20:])
    raise ToolsError(f"Maven Central did not give {module}:\n{tail}", hint="check the network, then run it again")


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["kafka", version, destination]:
            module, coordinates = f"kafka-{version}", kafka_coordinates(version)
        case ["mirror-maker", version, destination]:
            module, coordinates = f"mirror-maker-{version}", mirror_maker_coordinates(version)
        case ["spark", destination]:
            version = installed_version("pyspark")
            module, coordinates = f"spark-kafka-{version}", spark_coordinates(version)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    started = time.monotonic()
    print(f"{module}: fetching jars into {destination} ...", file=sys.stderr, flush=True)
    try:
        count = fetch(module, coordinates, Path(destination))
    except ToolsError as failed:
        print(f"error: {failed}\nhint: {failed.hint}", file=sys.stderr)
        return 1
    print(f"{module}: {count} jars in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
