"""The demo's children are ours, also where the operator's folder has packages of the same names."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.processes import services


async def test_the_demos_commands_are_ours_in_a_folder_with_a_deploy_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__init__.py").write_text("raise SystemExit('somebody else')")
    monkeypatch.chdir(tmp_path)
    async with services(tmp_path / "farshore.toml", tmp_path, 80) as processes:
        assert "farshore" in (await processes.run("--version")).stdout
        async with processes.piped("help", "deploy.cli", "--version") as output:
            assert b"farshore" in await output.read()
