"""What an operation that was cut short would do by now, before a person lets it go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.client.errors import KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.consent_again import _plan_now, _plans_now
from failover.observing.sites import Sites
from failover.planning.gates import RefusalReason
from failover.planning.intent import Intent
from failover.running.link_run import LinkMove
from tests.deploy.cli.test_taking_up import TheseLinks
from tests.failover.machines import quick
from tests.failover.running.test_site_moves import ID, die_between_fences, dying_when_begun, until_death
from tests.failover.running.test_taken_up_anew import answering_in_part
from tests.failover.site_stage import both_mirrored, two_links
from tests.mirror.harness import write


async def test_a_source_that_answers_in_part_by_now_is_a_refusal_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the error of the first partition that did not answer, exit code 1."""
    async with answering_in_part(tmp_path, monkeypatch) as (log, sites):
        shown = await _plan_now(TheseLinks((sites.link,)), log, sites)  # type: ignore[arg-type]
    assert RefusalReason.SOURCE_PARTLY_THERE in {one.reason for one in shown.plan.refusals}


async def test_a_link_that_cannot_be_looked_at_is_said_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was asked, and nothing could be resumed, for the fault of one of them."""
    quick(monkeypatch)
    async with two_links(tmp_path) as stage:
        async with both_mirrored(stage):
            with monkeypatch.context() as patched:
                await until_death(stage, monkeypatch, dying_when_begun(patched, "freeze"))
        log = await stage.log(ID)
        context = TheseLinks(stage.links)
        assert set(await _plans_now(context, log)) == {link.name for link in stage.links}  # type: ignore[arg-type]
        state = TopicPartition(stage.orders.state_topic, 0)
        await write(stage.target, state, [Record(0, 0, b"no key of ours", b"{")])
        assert set(await _plans_now(context, log)) == {stage.flights.name}  # type: ignore[arg-type]
        told = " ".join(capsys.readouterr().err.split())
        assert f"{stage.orders.name}: how it stands cannot be told" in told
        assert told.endswith("no link is gone on with while that is so")


async def test_of_one_that_would_be_given_up_the_question_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one is fenced, and goes on to its end: this one is left for good, which nobody was told."""

    async def untold(intent: Intent, sites: Sites, *asked: Any, **more: Any) -> LinkMove:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "billing")

    quick(monkeypatch)
    async with two_links(tmp_path) as stage, both_mirrored(stage):
        await die_between_fences(stage, monkeypatch)
        log = await stage.log(ID)
        monkeypatch.setattr("deploy.cli.consent_again.plan_or_refuse", untold)
        context = TheseLinks(stage.links)
        assert await _plans_now(context, log) == {}  # type: ignore[arg-type]
        told = " ".join(capsys.readouterr().err.split())
        assert f"of {stage.orders.name}: how it stands cannot be told: " in told
        assert told.endswith("while that is so it is given up, and stays as it is then")
