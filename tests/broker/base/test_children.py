"""Children of ours run our modules, wherever the operator stands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from broker.base.children import module_command, module_environment

PACKAGES = ("broker", "mirror", "failover", "monitoring", "chaos", "deploy")


def folder_with_our_names(folder: Path) -> Path:
    """Packages called as ours, none of which can be imported."""
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise SystemExit('not the {name} you meant')")
    return folder


@pytest.mark.parametrize("python_path", [None, ".", "", ":", "/nowhere"])
def test_a_folder_with_modules_of_our_names_is_not_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str | None
) -> None:
    monkeypatch.chdir(folder_with_our_names(tmp_path))
    if python_path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", python_path)
    # All six packages are imported once; to begin with the wrong `deploy` ends the others just so.
    words, said = (("config", "validate"), "Check the file") if python_path is None else ((), "Keep Kafka clusters")
    command = module_command("deploy.cli", *words, "--help")
    done = subprocess.run(command, env=module_environment(SAID="so"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_the_environment_is_the_operators_with_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    found = module_environment(COLUMNS="77")
    assert (found["KEPT"], found["COLUMNS"]) == ("kept", "77")
