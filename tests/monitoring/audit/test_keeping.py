"""What a run that has ended leaves to the next one, where several of one link end in another order than they began."""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from monitoring.audit import child
from monitoring.audit.model import LogMark, Marks, Span
from monitoring.audit.outcome import AuditResult
from monitoring.audit.proof import read_proof
from monitoring.audit.protocol import ChildRequest
from monitoring.audit.sample import Sampled
from monitoring.audit.store import read_summaries
from tests.monitoring.audit.test_report import DIFFERS, EQUAL

MARKS = Marks(LogMark("a", 0, 0), LogMark("b", 0, 0), "s")


def kept_run(result: AuditResult, directory: Path, frozen_at_ms: int) -> None:
    """It was frozen then, and goes on from what was proved then."""
    proved = {place: item.parts for place, item in read_proof(directory, "east-west").by_place().items()}
    partitions = tuple(
        replace(item, marks=MARKS, proved=proved.get((item.topic, item.partition), ()))
        for item in result.frozen.partitions
    )
    ended(replace(result, frozen=replace(result.frozen, frozen_at_ms=frozen_at_ms, partitions=partitions)), directory)


def ended(result: AuditResult, directory: Path) -> None:
    child.keep(result, ChildRequest(result.run_id, result.frozen, "", (), directory, directory / "log", "farshore"))


@pytest.mark.parametrize("sampled", [None, Sampled(50, "s", 4, 2, 1)])
def test_what_differs_is_proved_no_more_also_where_later_runs_have_ended_before(
    tmp_path: Path, sampled: Sampled | None
) -> None:
    """As beside a watch: one run of it has ended since, another one is under way and carries on what was taken back."""
    kept_run(EQUAL, tmp_path, 1_000)
    kept_run(EQUAL, tmp_path, 3_000)
    (proof,) = read_proof(tmp_path, "east-west").partitions
    (item,), (part,) = EQUAL.frozen.partitions, EQUAL.partitions
    under_way = replace(
        EQUAL,
        frozen=replace(EQUAL.frozen, frozen_at_ms=4_000, partitions=(replace(item, marks=MARKS, proved=proof.parts),)),
        partitions=(replace(part, source=Span(5, 9), target=Span(5, 9), proved=proof.parts),),
    )
    kept_run(replace(DIFFERS, run_id="older", sampled=sampled), tmp_path, 2_000)
    assert [summary.frozen_at_ms for summary in read_summaries(tmp_path)] == [3_000]
    assert read_proof(tmp_path, "east-west").partitions == ()
    ended(under_way, tmp_path)
    assert [summary.frozen_at_ms for summary in read_summaries(tmp_path)] == [4_000]
    assert read_proof(tmp_path, "east-west").partitions == ()
    kept_run(EQUAL, tmp_path, 5_000)
    assert [item.end for item in read_proof(tmp_path, "east-west").partitions] == [(5, 5)]


def test_runs_that_end_at_once_take_turns_with_the_proof(tmp_path: Path) -> None:
    """Whatever a run reads of it is still so when it writes: held up amid its reading, it has the lock."""
    proof = tmp_path / "proofs" / "east-west.json"
    proof.parent.mkdir()
    os.mkfifo(proof)
    run = threading.Thread(target=ended, args=(EQUAL, tmp_path))
    run.start()
    with proof.open("w") as told, proof.with_suffix(".lock").open("w") as lock:  # opened as soon as the run reads
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        told.write("{}")
    run.join()
    assert read_proof(tmp_path, "east-west").partitions == ()
