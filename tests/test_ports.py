"""Runs side by side are given no port twice, nor one that a system gives away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.ports import BLOCK_PORTS, END_PORT, FIRST_PORT, free_port

COUNT = BLOCK_PORTS + 50
SCRIPT = f"from tests.ports import free_port; print(*(free_port() for _ in range({COUNT})), flush=True); input()"
ROOT = Path(__file__).parents[1]


def test_runs_side_by_side_have_ports_of_their_own() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    given = [free_port() for _ in range(COUNT)]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        given += map(int, other.stdout.readline().split())
        given += [free_port() for _ in range(COUNT)]
        other.communicate("\n")
    assert len(set(given)) == 3 * COUNT
    assert all(FIRST_PORT < port < END_PORT for port in given)


def test_a_forked_process_has_ports_of_its_own() -> None:
    free_port()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, b"%d" % free_port())
        finally:
            os._exit(0)
    ours = free_port()
    os.close(writing)
    with os.fdopen(reading) as said:
        theirs = int(said.read())
    os.waitpid(child, 0)
    assert (theirs - FIRST_PORT) // BLOCK_PORTS != (ours - FIRST_PORT) // BLOCK_PORTS
