"""The demo with both sites behind TLS and logins: nobody gets in without, and nothing shows what he needs for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.site import Site
from deploy.demo.results import DemoResult
from deploy.demo.stage import LIVE, stage
from deploy.demo.traffic import read_as_group
from deploy.local.locks import PASSWORD_FILE
from tests.deploy.demo.whole import told

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
        folder = scene.config.parent
        secrets = [(folder / "locks" / site / PASSWORD_FILE).read_text() for site in ("east", "west")]
        assert len(set(secrets)) == len(secrets)
        shown = "".join(file.read_text() for file in (scene.config, *folder.glob("*.log")))
        assert not [secret for secret in secrets if secret in shown]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--brokers", "3"), ("--workers", "3")], ids=" ".join)
def test_the_whole_story_behind_tls_and_logins(tmp_path: Path, options: tuple[str, ...]) -> None:
    said = told(tmp_path / "report.html", "--secure", *options)
    assert "behind TLS and logins" in said
    assert "each behind TLS and logins" in (tmp_path / "report.html").read_text()
