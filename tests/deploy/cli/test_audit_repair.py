"""What `farshore audit repair` shows and refuses, and what `audit show` tells of it afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.cli.audit import audit_group
from deploy.cli.audit_repair import question_of, refuse, rows_of
from deploy.cli.terminal import CommandRefused, ExitCode
from monitoring.audit.document import as_document
from monitoring.audit.repair import GroupPlace, GroupStays, PartitionRepair, RepairBlocker, RepairPlan, RepairStage
from monitoring.audit.store import add_repair, read_repairs, write_document
from tests.monitoring.audit.test_report import DIFFERS

ONE = PartitionRepair(
    topic="flights",
    partition=3,
    target_topic="flights",
    found={"changed": 1, "lost": 1_200},
    found_is_whole=True,
    source_offsets=None,
    target_offsets=None,
    stage=RepairStage.NOT_ASKED,
    source_start=0,
    mirrored_to=9_000,
    records_again=9_000,
    target_moves_by=9_001,
    deleted_to=9_001,
    only_at_target=0,
    groups=(GroupPlace("analysts", 5, 5, None), GroupPlace("reports", 5, 5, GroupStays.ACTIVE_AT_TARGET)),
    blockers=(),
    is_retriable=False,
    asked_at_ms=-1,
)
PLAN = RepairPlan("run-1", "east-west", (ONE, replace(ONE, partition=4, records_again=1)))
NAMED = {("flights", 3)}


def with_blockers(*blockers: RepairBlocker, stage: RepairStage = RepairStage.NOT_ASKED) -> RepairPlan:
    return replace(PLAN, partitions=(replace(ONE, blockers=blockers, stage=stage),))


def test_the_plan_is_a_row_for_each_partition() -> None:
    unknown = replace(ONE, found={}, found_is_whole=False, only_at_target=None, blockers=(RepairBlocker.GROUPS_STAY,))
    first, second = rows_of(replace(PLAN, partitions=(ONE, unknown)))
    assert (first["found"], first["groups"], first["blockers"]) == ("1 changed, 1,200 lost", 2, "")
    assert (second["found"], second["only_at_target"], second["blockers"]) == (
        "at least one range",
        "not known",
        "groups stay",
    )
    assert question_of(PLAN, "west").startswith("Send up to 9,001 records again, and then delete what west has")


def test_what_is_in_the_way_is_refused_with_what_to_do() -> None:
    refuse(PLAN, NAMED)
    refuse(with_blockers(RepairBlocker.HELD, stage=RepairStage.COPYING), NAMED)
    with pytest.raises(
        CommandRefused, match=r"flights:3 is not repaired: groups stay: reports \(active at target\)"
    ) as on:
        refuse(with_blockers(RepairBlocker.GROUPS_STAY), NAMED)
    assert (on.value.exit_code, "--leave-group" in on.value.hint) == (ExitCode.REFUSED, True)
    with pytest.raises(CommandRefused, match="nothing that differs in flights:7"):
        refuse(PLAN, {("flights", 7)})


def test_a_run_tells_what_was_repaired_since(tmp_path: Path) -> None:
    write_document(as_document(DIFFERS), tmp_path)
    begun: dict[str, object] = {"begun_at": "2026-01-01T00:00:00.000Z", "by": "me on here", "reason": "a disk"}
    begun |= {"partitions": [{"topic": "t", "partition": 0}]}
    add_repair(tmp_path, "run-1", begun | {"audit": None, "verdict": None})
    assert "not ended" in _shown(tmp_path)
    add_repair(tmp_path, "run-1", begun | {"audit": "run-2", "verdict": "equal"})
    assert [one["verdict"] for one in read_repairs(tmp_path, "run-1")] == ["equal"]
    told = _shown(tmp_path)
    assert "repaired" in told
    assert "run-2" in told
    assert "not ended" not in told
    assert read_repairs(tmp_path, "run-2") == []


def test_repairs_that_end_at_once_are_all_kept(tmp_path: Path) -> None:
    numbers = range(40)
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda number: add_repair(tmp_path, "run-1", {"begun_at": number}), numbers):
            pass
    assert sorted(one["begun_at"] for one in read_repairs(tmp_path, "run-1")) == list(numbers)


def _shown(folder: Path) -> str:
    result = CliRunner().invoke(audit_group, ["show", "run-1", "--output-dir", str(folder)])
    assert result.exit_code == 0, result.output
    return result.stdout
