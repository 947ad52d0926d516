"""A machine whose target falls silent at the end of its operation: what stands in the journal is what it says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from failover.errors import JournalUnanswered
from failover.journal.log import OperationJournal, claim
from failover.journal.silence import told_who_went_on
from failover.journal.values import Event
from failover.observing.sites import Sites
from tests.failover.machines import VICTIM, Death, mortal
from tests.failover.running.test_taking_up import ID, SWITCHOVER
from tests.failover.stage import now_ms, two_sites

BETWEEN = ("east", "west")
WHO = "a victim"
RESULTS = {"verified": True, "has_findings": False, "results": []}


@pytest.mark.parametrize("is_heard", [True, False], ids=["then it fell silent", "its answer was lost"])
@pytest.mark.parametrize(
    ("event", "detail", "said"),
    [
        (Event.FINISHED, RESULTS, "has ended: verified"),
        (Event.GIVEN_UP, {"step": "drain", "error": "not drained"}, "has ended: given up (not drained)"),
    ],
)
async def test_an_operation_that_ended_by_this_machines_word_is_not_to_be_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_heard: bool,
    event: Event,
    detail: dict[str, object],
    said: str,
) -> None:
    """It said that it may not go on, and to resume it; `operation resume` then said that it had ended."""
    async with two_sites(tmp_path) as stage, Cluster(stage.link.target, client_id=VICTIM) as target:
        journal = await begun(target)
        await last_word(monkeypatch, journal, event, detail, is_heard=is_heard)
        lost = JournalUnanswered(ID, "west")
        told = await told_who_went_on(lost, journal, Sites(stage.link, None, target, (), now_ms))
    assert str(told) == f"{ID} {said}, as its journal at west says; this machine lost sight of it at the end"
    assert told.hint == f"`farshore operation show {ID}` says what it did"


@pytest.mark.parametrize("is_heard", [True, False])
async def test_one_that_was_cut_short_by_this_machines_word_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_heard: bool
) -> None:
    async with two_sites(tmp_path) as stage, Cluster(stage.link.target, client_id=VICTIM) as target:
        journal = await begun(target)
        said = {"step": "verify", "error": "silence"}
        await last_word(monkeypatch, journal, Event.CUT_SHORT, said, is_heard=is_heard)
        lost = JournalUnanswered(ID, "west")
        assert await told_who_went_on(lost, journal, Sites(stage.link, None, target, (), now_ms)) is lost


async def begun(target: Cluster) -> OperationJournal:
    """Of an operation that this machine carries on."""
    writer, _ = await claim(target, BETWEEN, lambda _: None)
    journal = OperationJournal(target, ID, WHO, writer, BETWEEN)
    await journal.record(Event.PLANNED, {"intent": SWITCHOVER.document(), "who": WHO})
    return journal


async def last_word(
    monkeypatch: pytest.MonkeyPatch,
    journal: OperationJournal,
    event: Event,
    detail: Mapping[str, object],
    *,
    is_heard: bool,
) -> None:
    """It lands; where it is not heard, the line is cut before the answer."""
    cuts = iter([False, not is_heard])
    lost = nullcontext() if is_heard else pytest.raises(ClientError)
    with monkeypatch.context() as patched, mortal(monkeypatch, Death(cuts=lambda: next(cuts, False))), lost:
        patched.setattr("failover.journal.log.TAKEN_OVER_S", 0.0)
        await journal.record(event, detail)
