"""A machine dies between the word that applications may start and its end: whoever takes the operation up finds them
reading on, and says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.groups_stand import GroupsStand
from failover.running.result import OperationResult
from failover.running.steps import Operation, OperationStep
from failover.running.taking_up import begin, resume
from failover.running.verification import DifferenceKind
from tests.failover.machines import HEIR, VICTIM, Death, is_death, machine, mortal, quick
from tests.failover.running.test_taking_up import ID, SWITCHOVER, ready
from tests.failover.stage import GROUP, PARTITIONS, RARE, Stage, now_ms
from tests.mirror.harness import some_records, write

FAILOVER = replace(SWITCHOVER, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True)
REQUESTS = 60
"""At least so many follow the beginning of the last step, of both kinds."""


@dataclass
class Told:
    """What operators heard, in turn."""

    stands: list[GroupsStand] = field(default_factory=list)

    def __call__(self, stand: GroupsStand) -> None:
        self.stands.append(stand)


async def die_behind_verify(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    intent: Intent,
    after_requests: int,
    told: Told,
    since: Event = Event.STARTED,
) -> None:
    """The machine dies at this request, counted from the beginning of the check, or from the word."""
    death, real = Death(), OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        entries = await real(self, noted)
        if any((event, detail.get("step")) == (since, OperationStep.VERIFY) for event, detail in noted):
            death.at = death.requests + after_requests
        return entries

    with mortal(monkeypatch, death), monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        async with machine(VICTIM, stage.link) as sites:
            moves = [await plan_link(intent, one, Hooks()) for one in sites]
            try:
                await begin(moves, intent, ID, "a victim", {}, told)
            except BaseException as error:  # a death is no Exception, so that nothing in between handles it
                if not is_death(error):
                    raise


async def read_on(stage: Stage) -> dict[TopicPartition, int]:
    """An application writes at the target, reads three records, or all that there are, and stops."""
    await write(stage.target, PARTITIONS[1], some_records(9_000, 2))
    moved = await stage.group_at(stage.target)
    there = {at: offset + 3 for at, offset in moved.items() if at == PARTITIONS[0]}
    await commit_offsets(stage.target, GROUP, {at: CommittedOffset(offset) for at, offset in there.items()})
    return {**moved, **there}


async def taken_up(stage: Stage, told: Told, *, source_lives: bool = True) -> OperationResult | None:
    """None: there is nothing to be taken up."""
    log = await stage.log(ID)
    if log.is_ended:
        return None
    async with machine(HEIR, stage.link) as sites:
        sites = sites if source_lives else [replace(one, source=None) for one in sites]
        (result,) = await resume(log, sites, Hooks(), "an heir", told)
    return result


async def die_and_end_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, intent: Intent, after_requests: int
) -> None:
    """Applications start as soon as anybody says that they may."""
    quick(monkeypatch)
    async with ready(folder) as stage:
        first, second = Told(), Told()
        await die_behind_verify(stage, monkeypatch, intent, after_requests, first)
        moved = await stage.group_at(stage.target)
        stand = await read_on(stage) if first.stands else moved
        result = await taken_up(stage, second)
        assert await stage.group_at(stage.target) == stand, "nobody moved it again"
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.VERIFIED
        if result is not None:
            assert second.stands[:1] == (first.stands or second.stands)[:1]
            assert (result.verified, result.differences) == (True, ())
            at = PARTITIONS[0]
            found = [(one.group, one.verified_offset, one.found_offset) for one in result.read_on]
            assert found == ([(GROUP, moved[at], stand[at])] if stand != moved else [])


@pytest.mark.parametrize("after_requests", range(1, REQUESTS, 20))
@pytest.mark.parametrize("intent", [SWITCHOVER, FAILOVER], ids=lambda intent: intent.operation.value)
async def test_killed_around_the_word_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intent: Intent, after_requests: int
) -> None:
    await die_and_end_the_same(tmp_path, monkeypatch, intent, after_requests)


@pytest.mark.slow
@pytest.mark.parametrize("after_requests", range(1, REQUESTS))
@pytest.mark.parametrize("intent", [SWITCHOVER, FAILOVER], ids=lambda intent: intent.operation.value)
async def test_killed_at_each_request_around_the_word_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intent: Intent, after_requests: int
) -> None:
    await die_and_end_the_same(tmp_path, monkeypatch, intent, after_requests)


async def test_who_stands_further_on_where_nobody_had_verified_it_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        told = Told()
        await die_behind_verify(stage, monkeypatch, SWITCHOVER, 1, told)
        assert told.stands == []
        await read_on(stage)
        result = await taken_up(stage, told)
        assert result is not None
        assert [one.kind for one in result.differences] == [DifferenceKind.GROUP_OFFSET]
        assert (result.read_on, told.stands) == ((), [])


@pytest.mark.parametrize("has_read_on", [False, True])
async def test_a_source_that_died_behind_the_word_was_compared_before_it_and_what_came_late_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_read_on: bool
) -> None:
    """It was said not to have been compared, with exit code 1, and applications that had been let in were to wait."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        first, second = Told(), Told()
        await die_behind_verify(stage, monkeypatch, SWITCHOVER, 1, first, Event.GROUPS_VERIFIED)
        assert [(stand.source, stand.is_watched) for stand in first.stands] == [("east", True)]
        if has_read_on:
            await read_on(stage)
        result = await taken_up(stage, second, source_lives=False)
        assert result is not None
        assert (result.verified, result.differences) == (True, ())
        assert (result.is_unwatched, result.has_findings) == (True, True)
        assert len(result.read_on) == has_read_on
        assert [(stand.target, stand.is_watched) for stand in second.stands] == [("west", False)]
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.FINDINGS
