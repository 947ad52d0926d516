"""The demo with both sites behind TLS and logins: nobody gets in without, and nothing shows what he needs for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.site import Site
from deploy.demo.results import DemoResult
from deploy.demo.stage import LINK, LIVE, stage
from deploy.demo.traffic import read_as_group
from deploy.local.locks import KEY_FILE, PASSWORD_FILE
from tests.deploy.demo.whole import PATIENCE_S, told
from tests.interop.servers import wait_until
from tests.secrets_shown import own_records, shown

ROOT = Path(__file__).parents[3]
QUIET = Console(stderr=True, quiet=True)
READ_RECORDS = 100
QUICK = ClientLimits(bootstrap_timeout_ms=500)


async def test_commands_and_applications_come_in_by_tls_and_a_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with stage(QUIET, DemoResult("now"), is_locked=True) as scene:
        assert scene.east.security.protocol == scene.west.security.protocol == "SASL_SSL"
        await scene.start_site("east")
        await scene.create_topic(LIVE)
        writer = scene.processes.piped("writer", "deploy.demo.live_writer", str(scene.config), "east", LIVE)
        async with writer as acknowledgements:
            for _ in range(READ_RECORDS):
                assert await acknowledgements.readline(), scene.processes.log_tail("writer")
        read = await read_as_group(scene.east, LIVE, "analysts", READ_RECORDS)
        assert len(read.rows) == READ_RECORDS
        with pytest.raises(ClientError):
            async with Cluster(Site("east", scene.east.bootstrap_servers), limits=QUICK):
                pass
        await scene.start_site("west")
        await scene.start_mirror()
        await scene.processes.run("status", "--until", "healthy", "--timeout", "60s")
        folder = scene.config.parent
        secrets = made_in(folder)
        assert len(set(secrets.values())) == len(secrets) == 4
        files = (scene.config, *folder.glob("*.log"))
        records = await own_records([scene.east, scene.west])
        assert f"__farshore-offsets-{LINK} at west" in records
        assert not shown(secrets, {**{file.name: file.read_bytes() for file in files}, **records})


def made_in(folder: Path) -> dict[str, str]:
    """The sites' passwords, and of keys the longest line."""
    files = [file for name in (PASSWORD_FILE, KEY_FILE) for file in folder.glob(f"locks/*/{name}")]
    texts = {f"{file.name} of {file.parent.name}": file.read_text() for file in files}
    return {name: max(text.splitlines(), key=len) for name, text in texts.items() if text}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--brokers", "3"), ("--workers", "3")], ids=" ".join)
def test_the_whole_story_behind_tls_and_logins(tmp_path: Path, options: tuple[str, ...]) -> None:
    scratch, report, secrets = tmp_path / "scratch", tmp_path / "report.html", {}
    scratch.mkdir()
    with ThreadPoolExecutor(1) as pool:
        telling = pool.submit(told, report, "--secure", *options, TMPDIR=str(scratch))

        def are_made() -> bool:
            for folder in scratch.glob("farshore-demo-*"):
                secrets.update(made_in(folder))
            return len(secrets) == 4 or telling.done()

        wait_until(are_made, PATIENCE_S, "the run's secrets")
        said = telling.result()
    assert "behind TLS and logins" in said
    assert "each behind TLS and logins" in report.read_text()
    assert len(secrets) == 4
    assert not shown(secrets, {"what it said": said, "report.html": report.read_text()})
