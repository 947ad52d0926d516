"""Taking up an operation: what it came to is told, also where its target goes away behind the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.wire.vocabulary import TopicPartition
from deploy.cli import taking_up
from deploy.cli.moving import exit_code
from deploy.cli.taking_up import UNREAD_REASON, _ended, refuse_other_file, take_up
from deploy.cli.terminal import ExitCode
from failover.errors import OtherFile
from failover.freezing.hooks import NO_HOOKS, Hooks
from failover.running.result import OperationResult
from failover.running.taking_up import planned, resume
from mirror.link import Link
from tests.broker.faults import Faults, injected
from tests.failover.machines import quick
from tests.failover.running.test_taking_up import ID, die_in, ready


@dataclass
class TheseLinks:
    """As much of a command's context as who takes an operation up looks at."""

    all: tuple[Link, ...]
    own_hooks: Hooks = NO_HOOKS

    def links(self) -> tuple[Link, ...]:
        return self.all

    def link(self, name: str) -> Link:
        return next(link for link in self.all if link.name == name)

    def hooks(self) -> Hooks:
        return self.own_hooks


def goes_behind_the_end(monkeypatch: pytest.MonkeyPatch, west: Faults) -> None:
    """Of the target's topics none has a leader as soon as the operation has ended."""

    async def and_gone(*asked: Any) -> Sequence[OperationResult]:
        results = await resume(*asked)
        west.leaderless.add(TopicPartition("__farshore-operations", 0))
        return results

    monkeypatch.setattr(taking_up, "resume", and_gone)
    monkeypatch.setattr(taking_up, "REASONS_S", 0.5)


async def test_a_target_that_goes_away_behind_the_end_takes_no_result_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was verified, and the command ended with that site's error, exit code 1, and told nothing of it."""
    quick(monkeypatch)
    west = Faults()
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "verify")
        log = await stage.log(ID)
        with injected(monkeypatch, {stage.brokers[1]: west}):
            goes_behind_the_end(monkeypatch, west)
            ended = await take_up(TheseLinks((stage.link,)), log)  # type: ignore[arg-type]
            west.heal()
    assert [(one.operation_id, one.verified) for one in ended.results] == [(ID, True)]
    assert exit_code(ended.intent, ended.results) is ExitCode.DONE
    assert ended.said["stays"] == []
    planned = log.entries[0]
    of_two = {**planned.detail, "intent": {**planned.detail["intent"], "links": [ended.results[0].link, "orders"]}}
    began_two = replace(log, entries=(replace(planned, detail=of_two), *log.entries[1:]))
    ended = _ended(began_two, {}, ended.results)
    assert [(one["subject"], one["detail"]) for one in ended.said["stays"]] == [("orders", f"{UNREAD_REASON}: {ID}")]
    assert exit_code(ended.intent, ended.results) is ExitCode.REFUSED, "it was left in this run, whatever the reason"


@pytest.mark.parametrize("taken_up_by", ["", "failback-1"])
async def test_a_failbacks_step_that_an_earlier_version_began_is_not_asked_for_its_before_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_up_by: str
) -> None:
    """Its plan has a before_hook, which the failback has asked: a resume said that this file has none, though it has,
    and a dry run of it that all is well.
    """

    def of_step(*asked: Any) -> dict[str, Any]:
        return {**planned(*asked), "within": "failback-1"}

    quick(monkeypatch)
    says_no = Hooks(before=("false",), after=("true",))
    async with ready(tmp_path) as stage:
        with monkeypatch.context() as patched:
            patched.setattr("failover.running.taking_up.planned", of_step)
            await die_in(stage, monkeypatch, "before_hook", hooks=says_no)
        log = await stage.log(ID)
        context = TheseLinks((stage.link,), says_no)
        refuse_other_file(context, log)  # type: ignore[arg-type]
        ended = await take_up(context, log, taken_up_by)  # type: ignore[arg-type]
        assert [one.verified for one in ended.results] == [True]
        with pytest.raises(OtherFile, match="after_hook"):
            refuse_other_file(TheseLinks((stage.link,)), log)  # type: ignore[arg-type]


async def test_a_switchover_that_a_failback_finds_cut_short_is_asked_for_its_own_before_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken up without one, as if the failback had begun it, and refused for that by a file that has it."""
    quick(monkeypatch)
    hooks = Hooks(before=("true",))
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "before_hook", hooks=hooks)
        ended = await take_up(TheseLinks((stage.link,), hooks), await stage.log(ID), "failback-1")  # type: ignore[arg-type]
        assert [one.verified for one in ended.results] == [True]
