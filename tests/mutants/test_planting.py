"""What is planted, in a module of a few lines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mutmut.configuration import config

from tests.mutants.planting import Bug, draw, every_bug, plant
from tests.mutants.reach import Reach

SPECIMEN = """
LIMIT = 3

def add(a, b=1):
    total = (
        a
        + b
    )
    if total > LIMIT:
        raise ValueError("more than the holder's limit")
    return total

class Holder:
    def __init__(self, items):
        self.items = items

    @property
    def first(self):
        return self.items[0]

    @staticmethod
    def twice(a):
        return a * 2

    async def forget(self):
        self.items.clear()
"""


@pytest.fixture
def bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Bug]:
    config()  # read where pyproject.toml is
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = "specimen_" + "".join(filter(str.isalnum, request.node.name))
    Path(f"{name}.py").write_text(SPECIMEN)
    return every_bug(["."], name)


def one(bugs: list[Bug], was: str, became: str) -> Bug:
    (found,) = (bug for bug in bugs if (bug.was, bug.became) == (was, became))
    return found


def module(bugs: list[Bug]) -> Any:
    return __import__(bugs[0].path.removesuffix(".py"))


def test_who_holds_the_function_already_runs_the_bug(bugs: list[Bug]) -> None:
    holder = module(bugs).Holder
    add, twice, held = module(bugs).add, holder.twice, holder([1])
    plant(one(bugs, "a + b", "a - b"))
    plant(one(bugs, "return a * 2", "return a * 3"))
    plant(one(bugs, "self.items.clear()", "pass"))
    asyncio.run(held.forget())
    assert (add(3, 2), twice(2), held.items) == (1, 6, [1])


def test_bugs_in_functions_alone_and_in_more_than_words(bugs: list[Bug]) -> None:
    names = {"add", "Holder.__init__", "Holder.twice", "Holder.forget"}
    assert {bug.function for bug in bugs} == names
    assert not any(words in bug.became for bug in bugs for words in ("XXmore", "THE HOLDER'S LIMIT"))
    assert not any("LIMIT = " in bug.was or "b=1" in bug.was for bug in bugs)
    assert len({bug.name for bug in bugs}) == len(bugs)


def test_a_test_must_reach_the_statement(bugs: list[Bug]) -> None:
    bug = one(bugs, "a + b", "a - b")
    head = one(bugs, "if total > LIMIT:", "if total >= LIMIT:")
    assert (bug.statement, head.statement) == (range(5, 9), range(9, 10))
    reach = Reach({"quick": 1.0, "slow": 2.0})
    for line, test in ((7, "slow"), (9, "quick"), (9, "fails without a bug")):
        reach.by_line[bug.path][line].add(test)
    assert (reach.tests(bug), reach.tests(head)) == (["slow"], ["quick"])


def test_a_sample_is_the_same_for_its_seed(bugs: list[Bug]) -> None:
    drawn = [[bug.name for bug in draw(["."], 5, seed)] for seed in (1, 1, 3)]
    assert len(bugs) > 5
    assert [len(names) for names in drawn] == [5, 5, 5]
    assert drawn[0] == drawn[1] != drawn[2]
