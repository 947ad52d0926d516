"""Who fails twice has failed, and who fails once is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.second_go import AT_MOST, failed_tests, run_alone

ONCE = """
from pathlib import Path

def test_once():
    assert Path(__file__).with_name("again").exists()
"""


def lane(folder: Path, tests: Sequence[str]) -> None:
    cache = folder / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(tests, True)))


def test_those_of_all_lanes_are_found(tmp_path: Path) -> None:
    lane(tmp_path / "lane-a", ["b.py::test[x-1]", "a.py::test"])
    lane(tmp_path / "lane-b", ["c.py::test"])
    (tmp_path / "lane-c").mkdir()
    assert failed_tests(tmp_path) == ["a.py::test", "b.py::test[x-1]", "c.py::test"]
    assert run_alone(failed_tests(tmp_path / "nowhere")) == 0


@pytest.mark.parametrize("passes", [True, False])
def test_it_fails_again_or_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str], *, passes: bool) -> None:
    (tmp_path / "test_it.py").write_text(ONCE)
    if passes:
        (tmp_path / "again").touch()
    test = f"{tmp_path / 'test_it.py'}::test_once"
    assert run_alone([test]) == (not passes)
    said = capfd.readouterr().err
    assert said.count(test) == 2
    assert ("passed alone, and need a mend" in said) is passes


def test_many_are_no_accident(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_alone([f"a.py::test_{number}" for number in range(AT_MOST + 1)]) == 1
    assert "4 failed; at most 3 have a second go" in capfd.readouterr().err
