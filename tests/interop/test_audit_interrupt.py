"""Ctrl-C, or the end of the audit, while Spark's Java is being started: an interruption, and Java ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.base.children import die_with_parent
from deploy.cli.terminal import ExitCode
from tests.interop.servers import ROOT, wait_until

SCRIPT = """
import sys
from pathlib import Path
from deploy.cli.terminal import run_async
from monitoring.audit.model import FrozenLink, FrozenPartition, FrozenSite, Span, Step
from monitoring.audit.protocol import ChildRequest
from monitoring.audit.spark_child import run_child

folder = Path(sys.argv[1])
site = FrozenSite("east", "localhost:1", None)
partition = FrozenPartition("t", 0, "t", Span(0, 5), Span(0, 5), (Step(0, 0),), (5, 5))
frozen = FrozenLink("east-west", site, site, 1, (partition,))
request = ChildRequest("run", frozen, "local[1]", ("README.md",), folder, folder / "spark.log", "farshore")
run_async(run_child(request, print))
"""


def processes() -> dict[int, tuple[str, str, int]]:
    """Of each process its name, state and parent."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # ended while we looked
        found[int(status.parent.name)] = (name, rest.split()[0], int(rest.split()[1]))
    return found


def java_of(audit: int) -> list[int]:
    """The Java processes that the audit's child has started; their ids stay with them when the child is gone."""
    known = processes()
    children = {number for number, (_, _, parent) in known.items() if parent == audit}
    return [number for number, (name, _, parent) in known.items() if name == "java" and parent in children]


def has_ended(process: int) -> bool:
    """A zombie has: it is its new parent's to bury."""
    return processes().get(process, ("", "Z", 0))[1] in "ZX"


@contextmanager
def starting_java(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """An audit whose Java is on its way."""
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    scratch = folder / "scratch"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment, preexec_fn=die_with_parent
    ) as audit:
        try:
            wait_until(lambda: bool(java_of(audit.pid)), 180, "Java to be started")
            (java,) = java_of(audit.pid)
            yield audit, java
        finally:
            audit.kill()


def test_an_interrupt_while_java_starts_leaves_no_java(tmp_path: Path) -> None:
    with starting_java(tmp_path) as (audit, java):
        audit.send_signal(signal.SIGINT)
        assert audit.wait(180) == ExitCode.INTERRUPTED
        assert has_ended(java)
        assert not list((tmp_path / "scratch").glob("farshore-*"))


def test_an_audit_that_is_killed_takes_java_with_it(tmp_path: Path) -> None:
    with starting_java(tmp_path) as (audit, java):
        audit.kill()
        wait_until(lambda: has_ended(java), 180, "Java to end")
