"""`switchover --max-audit-age`: exit code 3, before a site is asked anything, unless the copies were proved equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deploy.cli.failover import switchover
from deploy.cli.moving import now_ms
from deploy.cli.terminal import audit_directory
from monitoring.audit.model import AuditVerdict
from monitoring.audit.outcome import AuditResult
from monitoring.audit.store import write_summary
from tests.deploy.cli.test_monitoring import Context, context
from tests.monitoring.audit.test_report import DIFFERS, EQUAL

__all__ = ["context"]


def move(context: Context) -> Result:
    return CliRunner().invoke(switchover, ["--link", "east-west", "--max-audit-age", "2h", "--yes"], obj=context)


def audited(context: Context, result: AuditResult, age_ms: int) -> None:
    frozen = replace(result.frozen, frozen_at_ms=now_ms() - age_ms)
    write_summary(replace(result, frozen=frozen), audit_directory(context))  # type: ignore[arg-type]  # has its part


@pytest.mark.parametrize(
    ("result", "age_ms", "said"),
    [
        (None, 0, "there was no audit of it"),
        (DIFFERS, 0, "said differs"),
        (EQUAL, 7_300_000, "is of "),
    ],
)
def test_it_is_refused(context: Context, result: AuditResult | None, age_ms: int, said: str) -> None:
    if result is not None:
        audited(context, result, age_ms)
    refused = move(context)
    assert refused.exit_code == 3
    assert "nothing was changed: link east-west is not proved to be equal" in refused.stderr
    assert said in refused.stderr
    assert "hint: farshore audit run --link east-west" in refused.stderr


def test_one_that_cannot_be_read_is_refused(context: Context) -> None:
    audited(context, EQUAL, 0)
    (Path(context.state_dir) / "audit" / "last" / "east-west.json").write_text("{")
    refused = move(context)
    assert refused.exit_code == 3
    assert "is not the summary of an audit" in refused.stderr


def test_a_good_audit_opens_the_gate(context: Context) -> None:
    """What is behind it finds that no site answers here."""
    assert EQUAL.verdict is AuditVerdict.EQUAL
    audited(context, EQUAL, 7_100_000)
    beyond = move(context)
    assert "not proved to be equal" not in beyond.stderr
    assert beyond.exit_code not in (0, 3)
