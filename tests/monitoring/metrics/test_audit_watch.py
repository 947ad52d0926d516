"""farshore_audit_watch_* as Prometheus gets them."""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client import CollectorRegistry

from monitoring.audit.model import AuditVerdict
from monitoring.audit.store import write_summary
from monitoring.audit.watch import Watched
from monitoring.metrics.audit_watch import WatchBoard, watch_registry
from tests.monitoring.audit.test_report import DIFFERS


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"farshore_audit_{name}", {"link": "east-west", **labels})


def test_the_age_of_the_proof_grows_by_itself_and_is_endless_where_there_is_none(tmp_path: Path) -> None:
    now_ms = 60_000
    board = WatchBoard()
    registry = watch_registry(board, tmp_path, lambda: now_ms)
    assert value(registry, "watch_proof_age_seconds") is None
    board.post(Watched("east-west"))
    assert value(registry, "watch_proof_age_seconds") == math.inf
    board.post(Watched("east-west", 20_000, failed=3, failed_in_a_row=2))
    assert value(registry, "watch_proof_age_seconds") == 40
    now_ms += 30_000
    assert value(registry, "watch_proof_age_seconds") == 70
    assert value(registry, "watch_failed_in_a_row") == 2
    assert value(registry, "watch_last_audit_seconds") is None


def test_what_is_not_proved_and_what_differs_stand_beside_each_other(tmp_path: Path) -> None:
    write_summary(DIFFERS, tmp_path)
    board = WatchBoard()
    board.post(Watched("east-west", 1, AuditVerdict.DIFFERS, 5, 1, 0, 2.5, {"t": 7, "(others)": 9}, True))
    registry = watch_registry(board, tmp_path, lambda: 1)
    assert value(registry, "watch_unproved_offsets", topic="t") == 7
    assert value(registry, "watch_unproved_offsets", topic="(others)") == 9
    assert value(registry, "watch_audits_total", result="ended") == 5
    assert value(registry, "watch_audits_total", result="failed") == 1
    assert value(registry, "watch_last_audit_seconds") == 2.5
    assert value(registry, "last_verdict", verdict="differs") == 1
    assert value(registry, "last_ranges_differing") == 1
