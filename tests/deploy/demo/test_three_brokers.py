"""The whole demo with three brokers at each site, of which each loses one that leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.demo.whole import told


@pytest.mark.slow
def test_each_site_loses_a_leader_and_no_record(tmp_path: Path) -> None:
    said = told(tmp_path / "report.html", "--brokers", "3")
    for site in ("east", "west"):
        assert f"  {site}: 336,776 records read, 0 lost, 0 repeated" in said
    assert "A leader of each site was killed meanwhile" in (tmp_path / "report.html").read_text()
