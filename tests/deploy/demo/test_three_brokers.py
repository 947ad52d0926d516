"""The whole demo with three brokers at each site, of which each loses one that leads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE_S = 1200


@pytest.mark.slow
def test_each_site_loses_a_leader_and_no_record(tmp_path: Path) -> None:
    # The connector's jars are looked for below the folder that the demo is started in.
    done = subprocess.run(
        [sys.executable, "-m", "deploy.cli", "demo", "--brokers", "3", "--report", str(tmp_path / "report.html")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for site in ("east", "west"):
        assert f"  {site}: 336,776 records read, 0 lost, 0 repeated" in done.stderr
    assert "A leader of each site was killed meanwhile" in (tmp_path / "report.html").read_text()
