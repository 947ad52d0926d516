"""A failback waits for what the link back brings, and says what holds that up."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records
from failover.errors import NotDrained, TransactionOpen
from failover.failback.carrying import await_carried
from failover.failback.looking import look_back
from failover.failback.plan import FailbackPlan, FailbackRefusal
from failover.limits import QUIET_S
from mirror.offsets.entries import GapKind
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from tests.failover.failback.returning import ready
from tests.failover.failback.stage import Lost, transaction
from tests.failover.stage import PARTITIONS
from tests.mirror.harness import eventually, read_all, some_records, write


async def test_a_transaction_that_holds_the_link_back_up_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that offsets were missing, and asked whether the link is run, which it was."""
    at = PARTITIONS[1]
    async with ready(tmp_path, monkeypatch) as lost:
        source, target = lost.stage.target, lost.stage.source
        async with transaction(source.site.bootstrap_servers) as producer:
            await producer.send_and_wait(at.topic, b"open", partition=at.partition)
            with pytest.raises(TransactionOpen) as refused:
                await await_carried(lost.back, source, target, QUIET_S + 2, lambda _left, _there: None)
            start = (await read_all(source, at))[-1].offset
            await producer.abort_transaction()
        await await_carried(lost.back, source, target, 20.0, lambda _left, _there: None)
    assert f"flights-1 from offset {start} on" in str(refused.value)
    assert "nothing was changed" not in str(refused.value), "the failback's first steps are done"
    tool = f"kafka-transactions.sh --bootstrap-server {source.site.bootstrap_servers}"
    assert f"{tool} abort --topic flights --partition 1 --start-offset {start}" in refused.value.hint


async def looked(lost: Lost, folder: Path) -> FailbackPlan:
    ends = (lost.stage.source, lost.stage.target)
    return await look_back(lost.there, (lost.there, lost.back), ends, str(folder / "saved"))


async def test_what_a_person_paused_along_the_link_back_is_refused_by_name_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for its whole patience, and asked whether the link is run, which it was."""
    at = PARTITIONS[0]
    async with ready(tmp_path, monkeypatch) as lost:
        west, east = lost.stage.target, lost.stage.source
        await await_carried(lost.back, west, east, 20.0, lambda _left, _there: None)
        await pause_topics(lost.back, east, "pause", [at.topic])
        await eventually(lambda: _is_held(lost), "the worker to pause it")
        await write(west, at, some_records(900_000, 5))
        plan = await looked(lost, tmp_path)
        assert (plan.refusals, plan.paused_topics) == ((FailbackRefusal.LINK_BACK_TOPIC_PAUSED,), (at.topic,))
        with pytest.raises(NotDrained, match=f"the topic {at.topic} of link {lost.back.name} is paused") as refused:
            await await_carried(lost.back, west, east, 600.0, lambda _left, _there: None)
        assert refused.value.hint.endswith(f"farshore topic resume --link {lost.back.name} --topic {at.topic}")
        end = (await log_end_offsets(west, [at]))[at]
        await delete_records(west, {at: end - 2})
        await resume_topics(lost.back, east, [at.topic])
        await eventually(lambda: _is_stopped(lost), "the gap")
        plan = await looked(lost, tmp_path)
        assert plan.refusals == (FailbackRefusal.LINK_BACK_STANDS_STILL,)
        (still,) = plan.stands_still
        assert (still.topic, still.partition, still.is_gap) == (at.topic, at.partition, True)
        assert still.why.startswith(GapKind.TRUNCATED_START.value)
        assert still.command == f"farshore link resume --link {lost.back.name} --gap {at.topic}:{at.partition}"
        gaps = (await read_entries(lost.back, east)).open_gaps()
        await resume_link(lost.back, east, "resume-1", list(gaps.values()))
        await await_carried(lost.back, west, east, 20.0, lambda _left, _there: None)
        assert (await looked(lost, tmp_path)).refusals == ()


async def _is_held(lost: Lost) -> bool:
    holds = (await read_entries(lost.back, lost.stage.source)).holds.values()
    return any(hold.reason is HoldReason.PAUSED for hold in holds)


async def _is_stopped(lost: Lost) -> bool:
    return bool((await read_entries(lost.back, lost.stage.source)).open_gaps())
