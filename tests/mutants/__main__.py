"""`python -m tests.mutants`: a seeded sample of planted bugs, how many the tests found, and those they did not.

mutmut plants them (pyproject.toml says where, and which tests stand beside the code); bugs only in a message's words
are left out of the sample. What mutmut cannot plant: bugs in decorated functions, so in properties, and in defaults.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
from mutmut import __main__ as engine
from mutmut import stats
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, setup_source_paths, walk_mutatable_files
from mutmut.workers.isolation import MutantResult
from rich.console import Console

from tests.mutants.dropped_calls import plant_dropped_calls

WORKPLACE = Path("mutants")
KNOWN = Path(__file__).with_name("survivors.toml")
FOUND_AT_LEAST = 0.95
TIMED_OUT_AT_MOST = 0.2
"""Where more bugs than this are found only by a time-out, it is the run that hangs, not they."""
WORLDS = "0:60"
"""Those of the simulation, so few that they run in this process: what others run is not seen to reach anything."""
FOUND = ("killed", "timeout", "caught by type check")
HOW_IT_ENDED = dict(stats.status_by_exit_code) | {
    2: "killed",  # the tests could not even be collected; whoever stops the run stops it as a whole
    -9: "timeout",  # more processor time than it may take
}
_SENTENCE = re.compile(r"""(["'])(?:XX)?[^"']*\s[^"']*\1""")


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug: its name for mutmut, and the lines that it takes away and puts in."""

    name: str
    was: str
    became: str

    @property
    def function(self) -> str:
        return re.sub(r"__mutmut_\d+$", "", self.name)


@click.command()
@click.option("--sample", default=300, show_default=True, help="How many bugs are planted.")
@click.option("--seed", default=1, show_default=True, help="Another seed is another sample.")
@click.option("--only", default="", help="Only in modules and functions whose name contains this.")
@click.option("--tests", multiple=True, help="Only these tests, in the place of all that pyproject.toml names.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True)
def main(sample: int, seed: int, only: str, tests: tuple[str, ...], processes: int) -> None:
    """Plant bugs, run the tests that reach them, and list what was not found. Exits 1 below 95 %."""
    os.environ.setdefault("FARSHORE_SIMULATION_SEEDS", WORLDS)
    plant_dropped_calls()
    if tests:
        config().pytest_add_cli_args_test_selection = list(tests)
    bugs = draw(_generate(processes, only), sample, seed)
    if not bugs:
        raise click.UsageError(f"no bug can be planted in what is named {only}")
    _watch(len(bugs))
    engine._run([bug.name for bug in bugs], processes)
    sys.exit(0 if report(bugs, _outcomes()) >= FOUND_AT_LEAST else 1)


def _generate(processes: int, only: str) -> list[str]:
    """Into an empty folder: mutmut would keep the files, and the findings, of an earlier state of the code."""
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir()
    modules = [str(path) for path in walk_mutatable_files() if only in ".".join(path.with_suffix("").parts)]
    config().only_mutate = modules or config().only_mutate
    with contextlib.redirect_stdout(io.StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        setup_source_paths()
        del sys.modules["tests"]  # the copy of them is meant from here on
        engine.create_mutants(processes)
    return sorted(name for name in _exit_codes() if only in name)


def _exit_codes() -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        found |= data.exit_code_by_key
    return found


def _outcomes() -> dict[str, str]:
    return {name: HOW_IT_ENDED.get(code, "suspicious") for name, code in _exit_codes().items()}


def draw(names: list[str], sample: int, seed: int) -> list[Bug]:
    """A seeded sample of bugs that are more than a change of a message's words."""
    random.Random(seed).shuffle(names)
    bugs: list[Bug] = []
    for name in names:
        if len(bugs) == sample:
            break
        bug = _bug(name)
        if _SENTENCE.sub("", bug.was) != _SENTENCE.sub("", bug.became):
            bugs.append(bug)
    return bugs


def _bug(name: str) -> Bug:
    lines = get_diff_for_mutant(name).splitlines()[2:]
    was, became = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign) and not line.startswith(3 * sign))
        for sign in "-+"
    )
    return Bug(name, was, became)


def _watch(planted: int) -> None:
    """One line for each bug as its outcome is known, in the place of mutmut's spinner."""
    register = engine._register_mutant_result
    tried: Counter[str] = Counter()

    def tell(result: MutantResult, mutation_data_by_mutant_name: dict[str, SourceFileMutationData]) -> None:
        register(result, mutation_data_by_mutant_name)
        outcome = HOW_IT_ENDED.get(result.exit_code, "suspicious")
        tried[outcome] += 1
        print(f"{tried.total()} of {planted}: {outcome} in {result.duration:.0f} s, {result.mutant_name}", flush=True)

    def silence(_text: str, *, force_output: bool = False) -> None:
        pass

    engine._register_mutant_result = tell
    for module in (engine, stats):
        vars(module)["print_status"] = silence


def report(bugs: list[Bug], outcomes: dict[str, str]) -> float:
    """Print what was not found, with its reason where one is written -> the share that was found.

    What no test reaches was not found.
    """
    known = tomllib.loads(KNOWN.read_text()).get("survivor", [])
    reasons = {(entry["function"], entry["was"], entry["became"]): entry["reason"] for entry in known}
    console = Console(width=160)
    survivors = [bug for bug in bugs if outcomes[bug.name] not in FOUND]
    for bug in survivors:
        reason = reasons.get((bug.function, bug.was, bug.became), "no reason is written: a test is missing")
        text = f"{bug.name} ({outcomes[bug.name]})\n  - {bug.was}\n  + {bug.became}\n  {reason}"
        console.print(text, markup=False, highlight=False)
    found = len(bugs) - len(survivors)
    late = sum(outcomes[bug.name] == "timeout" for bug in bugs)
    console.print(f"{found} of {len(bugs)} planted bugs were found ({late} by a time-out): {found / len(bugs):.1%}")
    if late > TIMED_OUT_AT_MOST * len(bugs):
        raise click.ClickException("so many time-outs prove nothing; run a test without a bug, and see what hangs")
    return found / len(bugs)


if __name__ == "__main__":
    main()
