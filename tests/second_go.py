"""What failed beside the other lanes of `make test`, run again with the machine to itself (docs/adr/0054)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

AT_MOST = 3
"""More that fail at once are no accident of a busy machine."""


def failed_tests(lanes: Path) -> list[str]:
    """Node ids, of each lane's own cache of pytest."""
    return sorted(test for found in lanes.glob("*/v/cache/lastfailed") for test in json.loads(found.read_text()))


def run_alone(tests: list[str]) -> int:
    """The exit code of pytest over them. None is 0, and more than `AT_MOST` are 1, unrun."""
    named = "\n".join(f"  {test}" for test in tests)
    if not tests:
        return 0
    if len(tests) > AT_MOST:
        print(f"test: {len(tests)} failed; at most {AT_MOST} have a second go:\n{named}", file=sys.stderr)
        return 1
    print(f"test: failed beside the other lanes, and run again alone:\n{named}", file=sys.stderr)
    code = subprocess.run([sys.executable, "-m", "pytest", "-m", "slow or not slow", *tests], check=False).returncode
    how = "passed alone, and need a mend: a test that a busy machine fails" if code == 0 else "not all passed alone"
    print(f"test: {how}:\n{named}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run_alone(failed_tests(Path(sys.argv[1]))))
