"""Who fails twice has failed, who fails once is named, and nothing else that goes wrong is forgiven."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.second_go import AT_MOST, NOTE

Run = Callable[..., subprocess.CompletedProcess[str]]
TESTS = """
from pathlib import Path
import pytest

HERE = Path(__file__).parent

def test_first():
    (HERE / "spoilt").touch() if (HERE / "spoils").exists() else None

def test_then():
    if (HERE / "skips").exists():
        pytest.skip("not today")
    assert (HERE / "mended").exists() and not (HERE / "spoilt").exists()
"""
ENDS_BADLY = """
def pytest_unconfigure():
    raise RuntimeError("left open")
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """One part of the program, with pytest in a folder of its own."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")

    def go(*words: str) -> subprocess.CompletedProcess[str]:
        root = str(Path(__file__).parents[1])
        program = (
            f"import sys; sys.path.insert(0, {root!r}); from tests.second_go import main; sys.exit(main(*sys.argv[1:]))"
        )
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return go


LANE = ("lane", "lanes/one", "-p", "no:randomly", "test_it.py")


def test_what_failed_is_run_again_and_fails_again(run: Run) -> None:
    assert run(*LANE).returncode == 0
    again = run("again", "lanes")
    assert again.returncode == 1
    assert "not all passed alone:\n  test_it.py::test_then" in again.stderr


def test_who_passes_alone_is_named(run: Run, tmp_path: Path) -> None:
    assert run(*LANE).returncode == 0
    (tmp_path / "mended").touch()
    again = run("again", "lanes")
    assert again.returncode == 0
    assert "need a mend, of themselves or of what they test:\n  test_it.py::test_then" in again.stderr


def test_who_is_spoilt_by_another_one_of_its_file_is_run_with_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mended").touch()
    (tmp_path / "spoils").touch()
    assert run(*LANE).returncode == 0
    (tmp_path / "spoilt").unlink()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -p no:randomly\n")
    assert run("again", "lanes").returncode == 1


def test_a_skip_is_no_pass(run: Run, tmp_path: Path) -> None:
    assert run(*LANE).returncode == 0
    (tmp_path / "skips").touch()
    assert run("again", "lanes").returncode == 1


def test_a_lane_that_ends_otherwise_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name")
    assert run(*LANE, "test_broken.py").returncode == pytest.ExitCode.INTERRUPTED
    (tmp_path / "conftest.py").write_text(ENDS_BADLY)
    assert run(*LANE).returncode == 1
    assert not (tmp_path / "lanes").exists() or run("again", "lanes").returncode == 1


def test_many_are_no_accident(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lanes" / "one").mkdir(parents=True)
    (tmp_path / "lanes" / "one" / NOTE).write_text(json.dumps([f"a.py::test[{at}]" for at in range(AT_MOST + 1)]))
    again = run("again", "lanes")
    assert (again.returncode, "4 failed; at most 3 have a second go" in again.stderr) == (1, True)


def test_where_no_lane_could_say_anything_nothing_has_passed(run: Run) -> None:
    assert run("again", "nowhere").returncode == 1
