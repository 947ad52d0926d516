"""The demo as a person starts it, to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 1200


def told(report: Path, *options: str, **environment: str) -> str:
    """What it says on stderr."""
    # The connector's jars are looked for below the folder that the demo is started in.
    done = subprocess.run(
        [sys.executable, "-m", "deploy.cli", "demo", *options, "--report", str(report)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr
