"""A bug that ends a command in the midst of a login: its traceback has lines of code, and nothing of what they held."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.cli.locked_site import PASSWORD, LockedSite
from tests.forking import FARSHORE
from tests.secrets_shown import CRASHES, LOGS_ALL, python_path, shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSite]:
    with LockedSite(tmp_path_factory.mktemp("locked")) as site:
        yield site


@pytest.mark.parametrize(
    ("file", "function"), [("security/settings.py", "read"), ("security/login.py", "exchange_of"), ("scram.py", "step")]
)
def test_a_crash_shows_no_secret(file: str, function: str, site: LockedSite, tmp_path: Path) -> None:
    ours = site.configure_client(tmp_path)
    crashing = python_path(tmp_path / "crashing", LOGS_ALL, CRASHES.format(file=file, function=function))
    done = subprocess.run(
        [*FARSHORE, "--config", str(ours), "topic", "list", "--site", "east"],
        env={**os.environ, "PYTHONPATH": crashing},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    for told in ("all is logged", "Current thread", f"in {function}", "RuntimeError: a crash that was asked for"):
        assert told in done.stderr, done.stderr
    assert not shown({"the password": PASSWORD}, {"stdout": done.stdout, "stderr": done.stderr})
