"""Which tests reach which lines, and how long each takes without a bug: measured a file at a time."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from coverage import Coverage

from tests.mutants.planting import Bug
from tests.mutants.trial import OPTIONS, quietly


class Measured:
    """pytest's hooks in the child: each test is a context of the coverage, and has a time."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._begun = 0.0
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.skipped: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)
        self._begun = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.monotonic() - self._begun
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.skipped:
            self.skipped.add(report.nodeid)


def measure(tests: str, areas: Iterable[str], into: Path, log: Path) -> None:
    """Run a file of tests in this process -> a JSON file of seconds, failures and reached lines."""
    quietly(log)
    coverage = Coverage(data_file=None, config_file=False, include=[str(Path(area).resolve() / "*") for area in areas])
    measured = Measured(coverage)
    options = [option for option in OPTIONS if option != "-x"]
    with coverage.collect():
        pytest.main([*options, tests], plugins=[measured])
    data = coverage.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    for path in data.measured_files():
        contexts = data.contexts_by_lineno(path)
        by_line = {line: [test for test in found if test] for line, found in contexts.items()}
        lines[str(Path(path).relative_to(Path.cwd()))] = by_line
    seconds = {test: took for test, took in measured.seconds.items() if test not in measured.skipped}
    told = {"seconds": seconds, "failed": sorted(measured.failed), "lines": lines}
    unfinished = into.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(told))
    unfinished.rename(into)


@dataclass
class Reach:
    """`seconds` of each test that passed; by path and line the tests that reach it."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    by_line: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))

    @classmethod
    def read(cls, files: list[Path]) -> Reach:
        found = cls()
        for file in files:
            told = json.loads(file.read_text())
            found.seconds |= told["seconds"]
            found.failed += told["failed"]
            for path, lines in told["lines"].items():
                for line, tests in lines.items():
                    found.by_line[path][int(line)] |= set(tests)
        for test in found.failed:
            found.seconds.pop(test, None)
        return found

    def tests(self, bug: Bug) -> list[str]:
        """Those that meet it."""
        reached = set[str]().union(*(self.by_line[bug.path][line] for line in bug.statement))
        return sorted(reached & self.seconds.keys())
