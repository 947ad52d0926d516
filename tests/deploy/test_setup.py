"""Which Python a new `.venv` is made with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTION = "/usr/bin/python3"
NEEDED = "import sys, venv; from ensurepip import version; sys.exit(sys.version_info < (3, 11))"


def chosen(tmp_path: Path, code: int, *options: str) -> str:
    """By make, where the PATH's python3 says by `code` whether it was built with optimisation."""
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = ["make", "-s", *options, "--eval", 'chosen: ; @echo "$(PYTHON)"', "chosen"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_python_of_the_path_is_taken_where_it_is_optimised(tmp_path: Path) -> None:
    assert chosen(tmp_path, 0) == "python3"


def test_where_it_is_not_the_distribution_s_is_taken_if_it_will_do(tmp_path: Path) -> None:
    try:
        will_do = subprocess.run([DISTRIBUTION, "-c", NEEDED], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        will_do = False
    assert chosen(tmp_path, 1) == (DISTRIBUTION if will_do else "python3")


@pytest.mark.parametrize("code", [0, 1])
def test_another_is_taken_where_it_is_named(tmp_path: Path, code: int) -> None:
    assert chosen(tmp_path, code, "PYTHON=/opt/python3") == "/opt/python3"
