"""Ctrl-C while Spark's Java is being started: the audit ends as interrupted, and Java with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.servers import ROOT, wait_until

SCRIPT = """
from monitoring.audit.session import SparkSettings, spark_session
try:
    with spark_session(SparkSettings("local[1]", ("README.md",))):
        print("started", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def java_of(parent: int) -> list[int]:
    """The Java processes that the process has started; their ids stay with them when the parent is gone."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # ended while we looked
        if name == "java" and int(rest.split()[1]) == parent:
            found.append(int(status.parent.name))
    return found


@pytest.mark.timeout(120)
def test_an_interrupt_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        wait_until(lambda: bool(java_of(process.pid)), 60, "Java to be started")
        (java,) = java_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.read() == "interrupted\n"
        assert process.wait(20) == 0
    assert not Path(f"/proc/{java}").exists()
