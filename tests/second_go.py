"""A lane of `make test`; and what failed in lanes, run again with the machine to itself (docs/adr/0054).

`python -m tests.second_go lane FOLDER OPTION...` runs pytest and notes in FOLDER which tests failed, where nothing else
did; `python -m tests.second_go again FOLDER` runs those that lanes noted in folders in this one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

AT_MOST = 3
"""More that fail at once are no accident of a busy machine."""
NOTE = "failed.json"


class Outcomes:
    """Which tests failed, and which passed, as pytest tells it."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def run_lane(folder: Path, options: Sequence[str]) -> int:
    """pytest's exit code; 0 where nothing but tests failed, and those are noted. What pytest raises (at its end, say,
    for what was never closed) is raised.
    """
    outcomes = Outcomes()
    code = int(pytest.main([*options], plugins=[outcomes]))
    if code != pytest.ExitCode.TESTS_FAILED or not outcomes.failed:
        return code
    folder.mkdir(parents=True)
    (folder / NOTE).write_text(json.dumps(sorted(outcomes.failed)))
    return 0


def run_again(lanes: Path) -> int:
    """0 where there is none, or each passed by now. The whole files are run: who spoils another one is in it."""
    tests = sorted(test for note in lanes.glob(f"*/{NOTE}") for test in json.loads(note.read_text()))
    named = "\n".join(f"  {test}" for test in tests)
    if not tests:
        return 0
    if len(tests) > AT_MOST:
        print(f"test: {len(tests)} failed; at most {AT_MOST} have a second go:\n{named}", file=sys.stderr)
        return 1
    print(f"test: failed beside the other lanes, and run again alone:\n{named}", file=sys.stderr)
    outcomes = Outcomes()
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    code = int(pytest.main(["-m", "not slow", *files], plugins=[outcomes]))
    if code or not outcomes.passed >= set(tests):
        print(f"test: not all passed alone:\n{named}", file=sys.stderr)
        return code or 1
    print(
        f"test: passed when they ran alone, and need a mend, of themselves or of what they test:\n{named}",
        file=sys.stderr,
    )
    return 0


def main(what: str, folder: str, *options: str) -> int:
    return run_lane(Path(folder), options) if what == "lane" else run_again(Path(folder).resolve(strict=True))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
