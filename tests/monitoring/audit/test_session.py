"""Spark as the child starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_spark_leaves_nothing_in_the_folder_where_it_ran(tmp_path: Path) -> None:
    """In a process of its own: Spark looks at its folder only when its Java starts."""
    program = (
        "from pathlib import Path\n"
        "from monitoring.audit.session import SparkSettings, spark_session\n"
        "settings = SparkSettings('local[1]', (), Path('spark.log'), {'spark.jars.packages': ''})\n"
        "with spark_session(settings) as spark:\n"
        "    assert spark.range(3).count() == 3\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert list(tmp_path.iterdir()) == []
