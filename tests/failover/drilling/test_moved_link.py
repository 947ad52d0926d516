"""A drill of a link that was moved: its source's death loses no more along it than stands there alone already."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchRequest
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.drilling.drill import AuditNote, LinkDrill
from failover.drilling.looks import drill_link
from failover.failback.stranding import leave_at_source
from mirror.api import HeartbeatWatch
from tests.broker.faults import Faults, injected
from tests.failover.drilling.test_drill import BLIND, LIVE, drilled, status
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import PARTITIONS, now_ms


async def drilled_there(lost: Lost) -> LinkDrill:
    return await drill_link(lost.there, HeartbeatWatch(lost.stage.target.clock), AuditNote(), now_ms)


def test_no_loss_is_stated_of_it_and_it_is_not_taken_for_one_that_nobody_asked() -> None:
    """A drill stated a loss "if east died now" of what stood at the source alone when it was left."""
    assert drilled().moved is None
    found = drilled(replace(BLIND, link_state="promoted"), replace(LIVE, link_state="promoted"))
    assert (found.loss, found.is_ready) == (None, False)
    assert found.moved is not None
    assert "link_not_running" in [one.kind for one in found.findings]


async def test_it_says_what_stands_at_the_source_alone(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 1, (3, 2), (4, 0)) as lost:
        found = await drilled_there(lost)
        content = [one for where in PARTITIONS for one in await lost.only_at_source(where)]
        assert (found.loss, len(content)) == (None, 5)
        assert found.moved is not None
        assert found.moved.stranded is not None
        assert (found.moved.stranded_records, found.moved.why_not_known) == (5, "")
        tails = found.moved.stranded.undecided
        await leave_at_source(lost.there, lost.stage.target, tails, "by hand")
        left = (await drilled_there(lost)).moved
        assert left is not None
        assert left.stranded_records == 0, "what somebody left there is told apart"


async def test_who_drills_for_ever_does_not_read_what_the_source_has_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monitor read all that a link back had brought there, for three seconds of each minute."""
    async with lost_and_back(tmp_path, 1, (3, 2), (0, 0)) as lost:
        faults, fetched = Faults(), Counter[TopicPartition]()

        def note(request: FetchRequest) -> None:
            if request.isolation_level == IsolationLevel.READ_COMMITTED:  # else it is where the logs are compared
                fetched.update(
                    TopicPartition(one.topic, at.partition) for one in request.topics for at in one.partitions
                )

        faults.moments[ApiKey.FETCH] = note
        watch, asked = HeartbeatWatch(lost.stage.target.clock), list[Counter[TopicPartition]]()
        with injected(monkeypatch, {lost.stage.brokers[0]: faults}):
            for reads in (True, False):
                fetched.clear()
                found = await drill_link(lost.there, watch, AuditNote(), now_ms, reads_stranded=reads)
                asked.append(fetched.copy())
                assert found.moved is not None
                told = (found.moved.stranded_records, found.moved.why_not_known)
                assert told == ((5, "") if reads else (None, "it was not read"))
        assert all(asked[0][at] > asked[1][at] for at in PARTITIONS), "the rest is how a split of both sites is seen"


async def test_a_source_that_does_not_tell_is_not_said_to_have_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lost_and_back(tmp_path, 1, (3, 0), (0, 0)) as lost:
        faults = Faults()
        faults.refuse(PARTITIONS[0], ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.FETCH)
        with injected(monkeypatch, {lost.stage.brokers[0]: faults}):
            moved = (await drilled_there(lost)).moved
        assert moved is not None
        assert (moved.stranded, moved.stranded_records) == (None, None)
        assert "TOPIC_AUTHORIZATION_FAILED" in moved.why_not_known


def test_a_source_that_does_not_answer_is_not_said_to_have_nothing() -> None:
    lost = drilled(replace(BLIND, link_state="promoted"), None, seen=status(answers=(False, True)))
    assert lost.loss is None
    assert lost.moved is not None
    assert (lost.moved.stranded_records, lost.moved.why_not_known) == (None, "east does not answer")
