"""Classes as a JVM keeps them for the next one, which starts in about half of the time with them.

`make` has them written once (`python -m tests.class_archives`). An archive fits one Java, and jars at one place: for
others there is none, and a JVM starts as it always did.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).resolve().parents[1] / ".cache"
SPARK: Final = "spark"
ZOOKEEPER: Final = "zookeeper"


def server_of(version: str) -> str:
    """The name of a Kafka release's archive for its broker."""
    return f"kafka-{version}"


def tools_of(version: str) -> str:
    """And of that for its tools."""
    return f"kafka-tools-{version}"


@cache
def archive_of(name: str) -> Path:
    """Where the archive is, or would be."""
    java = Path(shutil.which("java") or "java").resolve()
    seen = (java, java.stat().st_mtime_ns if java.exists() else 0, CACHE, sys.prefix)
    return CACHE / "classes" / f"{name}-{hashlib.sha256(repr(seen).encode()).hexdigest()[:12]}.jsa"


@cache
def kept_classes(name: str) -> tuple[str, ...]:
    """A JVM's options; none where there is no archive. One that it does not fit would say so among what it prints."""
    archive = archive_of(name)
    return ("-Xlog:disable", f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()
