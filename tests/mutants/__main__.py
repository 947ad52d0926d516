"""`python -m tests.mutants`: a seeded sample of planted bugs, how many the tests found, and those they did not.

A stopped run goes on where it was, as long as no file has changed: what is known lies in mutants/.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, Phase, settings
from rich.console import Console

from tests.mutants.planting import Bug, draw, every_bug, plant
from tests.mutants.reach import Reach, measure
from tests.mutants.trial import OPTIONS, End, attempt, in_child

AREAS: dict[str, tuple[str, ...]] = {
    "broker/groups": ("tests/broker/groups",),
    "broker/transactions": ("tests/broker/transactions",),
    "broker/log": ("tests/broker/log",),
    "failover": ("tests/failover",),
    "mirror/groups": ("tests/mirror/groups", "tests/mirror"),
    "mirror/offsets": ("tests/mirror/offsets", "tests/mirror"),
    "mirror/worker": ("tests/mirror/worker", "tests/mirror"),
}
"""Where bugs are planted, and the tests beside it; a wider folder is given only what the narrower did not find."""
NOT_ASKED = (
    *("--ignore", "tests/mirror/simulation/test_planted.py"),
    *("--ignore", "tests/mirror/simulation/test_contract.py"),
    *("--deselect", "tests/mirror/simulation/test_circles.py::test_a_planted_bug_is_found"),
)
"""They plant bugs of their own, or hold the simulation against real clusters."""
SOURCES = ("broker", "mirror", "failover", "monitoring", "chaos", "deploy", "tests")
WORKPLACE = Path("mutants")
KNOWN = Path(__file__).with_name("survivors.toml")
FOUND_AT_LEAST = 0.95
WORLDS = {"FARSHORE_SIMULATION_SEEDS": "0:60", "FARSHORE_SIMULATION_CIRCLES": "0:20"}
"""Those of the simulation, so few that they run in this process: what others run is not seen to reach anything."""
PATIENCE = (1.0, 4.0)
"""Where a test without a bug takes more than half of what it may, the machine is slow: once more, with more time."""

FAILED, LATE = "found", "found by a time-out alone"
NOT_FOUND, NOT_REACHED, UNCLEAR = "not found", "not reached by any test", "unclear: the test fails without the bug too"
FOUND = (FAILED, LATE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bug: one of the words above, with the test that found it and what it said."""

    bug: str
    what: str
    test: str = ""
    how: str = ""
    tests: int = 0
    seconds: float = 0.0


@click.command()
@click.option("--sample", default=300, show_default=True, help="How many bugs are planted.")
@click.option("--seed", default=1, show_default=True, help="Another seed is another sample.")
@click.option("--only", default="", help="Only in areas, modules and functions whose name contains this.")
@click.option("--every", is_flag=True, help="All bugs in what --only names, in the place of a sample of all areas.")
@click.option("--tests", multiple=True, help="Only these tests, in the place of all beside the code.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True)
def main(sample: int, seed: int, only: str, every: bool, tests: tuple[str, ...], processes: int) -> None:
    """Plant bugs, run the tests that reach them, and list what was not found. Exits 1 below 95 %."""
    place = _place()
    bugs = every_bug(AREAS, only) if every else [bug for bug in _drawn(place, sample, seed) if only in bug.name]
    if not bugs:
        raise click.UsageError(f"no bug can be planted in what is named {only}")
    _make_repeatable()
    outcomes: dict[str, Outcome] = {}
    for area, folders in AREAS.items():
        left, asked = [bug for bug in bugs if bug.path.startswith(f"{area}/")], set[str]()
        for folder in [tests] if tests else [(each,) for each in folders]:
            if left:
                files = [file for file in _collect(folder) if file not in asked]
                reach = _reach(files, place, processes)
                book = place / f"outcomes-{_digest([Path(file) for file in files])}.jsonl"
                tried = _try_all(left, reach, book, processes)
                outcomes |= {name: told for name, told in tried.items() if told.tests or name not in outcomes}
                left = [bug for bug in left if outcomes[bug.name].what not in FOUND]
                asked.update(files)
    sys.exit(0 if report(bugs, outcomes) >= FOUND_AT_LEAST else 1)


def _make_repeatable() -> None:
    """The same examples each time; a failure is one however large its example; and none comes from a slow machine."""
    os.environ.update(WORLDS)
    phases, checks = (Phase.explicit, Phase.generate), list(HealthCheck)
    settings.register_profile(
        "mutants", deadline=None, derandomize=True, database=None, phases=phases, suppress_health_check=checks
    )
    settings.load_profile("mutants")


def _drawn(place: Path, sample: int, seed: int) -> list[Bug]:
    kept = place / f"sample-{seed}-{sample}.pickle"
    if not kept.exists():
        unfinished = kept.with_suffix(".unfinished")
        unfinished.write_bytes(pickle.dumps(draw(AREAS, sample, seed)))
        unfinished.rename(kept)
    found: list[Bug] = pickle.loads(kept.read_bytes())
    return found


def _place() -> Path:
    """Where this state of the code, and of what its tests share, keeps what is known of it."""
    files = [file for source in SOURCES for file in Path(source).rglob("*.py") if not file.name.startswith("test_")]
    place = WORKPLACE / _digest([file for file in files if not file.is_relative_to("tests/mutants")])
    place.mkdir(parents=True, exist_ok=True)
    return place


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _collect(tests: Sequence[str]) -> list[str]:
    """Import all tests, for all children -> their files."""

    class Seen:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.files = sorted({item.nodeid.partition("::")[0] for item in session.items})

    seen, printed = Seen(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = pytest.main([*OPTIONS, *NOT_ASKED, "--collect-only", *tests], plugins=[seen])
    if code:
        raise click.ClickException(f"the tests cannot be collected\n{printed.getvalue()[-2000:]}")
    assert threading.active_count() == 1, "a fork would lack the other threads"
    return seen.files


def _in_children(count: int, processes: int, work: Callable[[int], None]) -> None:
    """Call it with each number below `count`, in this many children; each takes the next when it is done with one."""
    read, write = os.pipe()
    os.write(write, b"".join(number.to_bytes(4) for number in range(count)))
    os.close(write)

    def take() -> None:
        while number := os.read(read, 4):
            work(int.from_bytes(number))

    children = [in_child(take) for _ in range(min(processes, count))]
    os.close(read)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise click.ClickException("a process of the run ended early; run it again: it goes on from there")


def _reach(files: list[str], place: Path, processes: int) -> Reach:
    into = {file: place / f"{file.replace('/', '.')}-{_digest([Path(file)])}.json" for file in files}
    missing = [file for file in files if not into[file].exists()]

    def one(number: int) -> None:
        file = missing[number]
        begun = time.monotonic()
        child = in_child(lambda: measure(file, AREAS, into[file], into[file].with_suffix(".log")))
        if os.waitpid(child, 0)[1]:
            raise click.ClickException(f"{file} cannot be run without a bug: {into[file].with_suffix('.log')}")
        print(f"without a bug: {file}, {time.monotonic() - begun:.0f} s", flush=True)

    _in_children(len(missing), processes, one)
    reach = Reach.read(list(into.values()))
    for test in reach.failed:
        print(f"fails without a bug, so it is not asked: {test}", flush=True)
    return reach


def _try_all(bugs: list[Bug], reach: Reach, book: Path, processes: int) -> dict[str, Outcome]:
    book.touch()

    def known() -> dict[str, Outcome]:
        return {told["bug"]: Outcome(**told) for told in map(json.loads, book.read_text().splitlines())}

    before = known()
    left = [bug for bug in bugs if bug.name not in before]

    def one(number: int) -> None:
        bug = left[number]
        outcome = try_bug(bug, reach, book.with_name(f"{os.getpid()}.log"))
        with book.open("a") as end:
            end.write(json.dumps(asdict(outcome)) + "\n")
        print(
            f"{number + 1} of {len(left)}: {outcome.what}, {outcome.seconds:.0f} s: {bug.name} {outcome.test}",
            flush=True,
        )

    _in_children(len(left), processes, one)
    return known()


def try_bug(bug: Bug, reach: Reach, log: Path) -> Outcome:
    """Plant it and run the tests that meet it; what finds it must pass without it, and well within its time."""
    tests = reach.tests(bug)
    if not tests:
        return Outcome(bug.name, NOT_REACHED)
    found = _run(bug, tests, reach, log)
    if found.what == LATE:
        others = _run(bug, [test for test in tests if test != found.test], reach, log)
        return others if others.what == FAILED else found
    return found


def _run(bug: Bug, tests: list[str], reach: Reach, log: Path) -> Outcome:
    for patience in PATIENCE:
        end = attempt(tests, reach.seconds, log, lambda: plant(bug), patience)
        if not end.found:
            return _outcome(bug, NOT_FOUND, end, tests)
        well_within = patience / 2 if end.late else patience
        clean = attempt([end.test or tests[0]], reach.seconds, log, lambda: None, well_within)
        if not clean.found:
            return _outcome(bug, LATE if end.late else FAILED, end, tests)
    return _outcome(bug, UNCLEAR, end, tests)


def _outcome(bug: Bug, what: str, end: End, tests: list[str]) -> Outcome:
    return Outcome(bug.name, what, end.test or "", end.how, len(tests), round(end.seconds, 1))


def report(bugs: list[Bug], outcomes: dict[str, Outcome]) -> float:
    """Print what was not found, with its reason where one is written -> the share that was found."""
    known = tomllib.loads(KNOWN.read_text()).get("survivor", [])
    reasons = {(entry["function"], entry["was"], entry["became"]): entry["reason"] for entry in known}
    tell = partial(Console(width=160).print, markup=False, highlight=False)
    for bug in bugs:
        outcome = outcomes[bug.name]
        if outcome.what == LATE:
            tell(f"{bug.name} ({outcome.what}: {outcome.test})\n  - {bug.was}\n  + {bug.became}")
        elif outcome.what not in FOUND:
            reason = reasons.get(bug.key, "no reason is written: a test is missing")
            tell(f"{bug.name} ({outcome.what})\n  - {bug.was}\n  + {bug.became}\n  {reason}")
    for area in AREAS:
        here = Counter(outcomes[bug.name].what in FOUND for bug in bugs if bug.path.startswith(f"{area}/"))
        if here.total():
            tell(f"{area}: {here[True]} of {here.total()}")
    found = sum(outcomes[bug.name].what in FOUND for bug in bugs)
    late = sum(outcomes[bug.name].what == LATE for bug in bugs)
    tell(f"{found} of {len(bugs)} planted bugs were found ({late} by a time-out alone): {found / len(bugs):.1%}")
    return found / len(bugs)


if __name__ == "__main__":
    main()
