"""A machine that hangs amid a failback until that is another one's, and ended, changes nothing when it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.base.errors import FarshoreError
from broker.client.connection import Connection
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from broker.wire.messages.produce import ProduceRequest
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from broker.wire.schema import Message
from failover.errors import OperationTakenUp
from failover.failback.aborting import abort_failback, plan_failback_abort
from failover.journal.log import OperationJournal
from failover.journal.values import Event, JournalEntry
from mirror.api import fence_groups, promote_link, read_entries
from mirror.link import Link
from mirror.offsets.operations import pause_link
from tests.failover.failback.returning import (
    ID,
    expected,
    go_back,
    group_at_east,
    log_of,
    ready,
    stands,
)
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR, VICTIM, machine
from tests.failover.stage import GROUP, PARTITIONS

COMMITS = (OffsetCommitRequest, AddOffsetsToTxnRequest)


def writes_state(message: Message, link: Link) -> bool:
    names = [topic.name for topic in message.topic_data] if isinstance(message, ProduceRequest) else []
    return any(name == link.state_topic for name in names)


@contextmanager
def hanging(
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    is_it: Callable[[Message], bool],
    meanwhile: Callable[[], Awaitable[object]],
) -> Iterator[list[Message]]:
    """In this step the machine hangs, with all that it would send, before the first such request, which is given. Where
    it gives up waiting for that, what is done meanwhile goes on: that is others'.
    """
    hung: list[Message] = []
    others: list[asyncio.Future[object]] = []
    steps: list[str] = []
    wakes = asyncio.Event()
    real_send, real_record = Connection.send, OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told = list(noted)
        entries = await real_record(self, told)
        if self.operation_id == ID and not hung:
            steps.extend(detail["step"] for event, detail in told if event == Event.STARTED)
        return entries

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id == VICTIM:
            if hung:
                await wakes.wait()
            elif steps[-1:] == [step] and is_it(message):
                hung.append(message)
                others.append(asyncio.ensure_future(meanwhile()))
                others[0].add_done_callback(lambda _: wakes.set())
                await asyncio.shield(others[0])
        return await real_send(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        patched.setattr(Connection, "send", send)
        patched.setattr("failover.journal.log.LEASE_S", 600.0)  # its clocks stand still meanwhile, and it goes on
        patched.setattr("failover.journal.log.HEARTBEAT_S", 600.0)  # where it hung, before it says that it lives
        yield hung
        for one in others:
            one.result()


async def hangs_and_wakes(
    lost: Lost,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    is_it: Callable[[Message], bool],
    meanwhile: Callable[[], Awaitable[object]],
) -> None:
    with hanging(monkeypatch, step, is_it, meanwhile) as hung, pytest.raises(FarshoreError) as told:
        await go_back(VICTIM, lost, folder)
    assert hung
    assert isinstance(told.value, OperationTakenUp), told.value


@pytest.mark.parametrize(
    "kinds",
    [COMMITS, (TxnOffsetCommitRequest,), (EndTxnRequest,)],
    ids=["before its commits", "before they are staged", "before they count"],
)
@pytest.mark.parametrize("heir", ["comes back", "aborts"])
async def test_it_sets_no_group_of_its_heirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[type[Message], ...], heir: str
) -> None:
    """It committed what it had read before it hung: the group read twice what applications had read on since."""
    async with ready(tmp_path, monkeypatch) as lost:
        groups_id = lost.back.groups_transactional_id

        async def the_heir_and_who_reads_there() -> None:
            if heir == "aborts":
                await abort(lost)
            else:
                await go_back(HEIR, lost, tmp_path / "another")
            await commit_offsets(lost.stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(55)})

        def is_it(message: Message) -> bool:
            return isinstance(message, kinds) and getattr(message, "transactional_id", groups_id) == groups_id

        await hangs_and_wakes(lost, tmp_path, monkeypatch, "set_groups", is_it, the_heir_and_who_reads_there)
        assert await group_at_east(lost) == 55


@pytest.mark.parametrize(
    ("kind", "nth"),
    [(AddOffsetsToTxnRequest, 1), (EndTxnRequest, 1), (EndTxnRequest, 2)],
    ids=["before they are staged", "before they are committed", "before they are known to count"],
)
async def test_a_worker_that_takes_the_groups_meanwhile_ends_no_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Message], nth: int
) -> None:
    """That of the link back runs, and takes its fence with each pass."""
    async with ready(tmp_path, monkeypatch) as lost:
        wanted, seen = await expected(lost), [0]
        fencing = partial(fence_groups, lost.stage.source, lost.back)

        def is_it(message: Message) -> bool:
            groups_id = lost.back.groups_transactional_id
            seen[0] += isinstance(message, kind) and getattr(message, "transactional_id", None) == groups_id
            return seen[0] == nth

        with hanging(monkeypatch, "set_groups", is_it, fencing) as hung:
            came_back = await go_back(VICTIM, lost, tmp_path)
        assert hung
        assert [one.group for one in came_back.groups_set_back] == [GROUP]
        assert await stands(lost) == wanted


async def test_a_group_that_is_carried_on_meanwhile_is_looked_at_anew_and_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the worker of the link back, between the two looks: the failback was cut short by that."""
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)

        async def carried_on() -> None:
            await commit_offsets(lost.stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(54)})

        with hanging(
            monkeypatch, "set_groups", lambda one: isinstance(one, TxnOffsetCommitRequest), carried_on
        ) as hung:
            came_back = await go_back(VICTIM, lost, tmp_path)
        assert hung
        assert [one.group for one in came_back.groups_set_back] == [GROUP]
        assert await stands(lost) == wanted


async def abort(lost: Lost) -> None:
    async with machine(HEIR, lost.there) as (sites,):
        log = await log_of(lost)
        planned = await plan_failback_abort(log, sites, lost.back)
        assert await abort_failback(log, sites, lost.back, "an heir") == planned


@pytest.mark.parametrize("step", ["leave", "resume"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_it_writes_nothing_into_the_links_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, nth: int
) -> None:
    """Nor does it let the link run that was promoted since, or decide anything of what its source has by then."""
    async with ready(tmp_path, monkeypatch) as lost:
        wanted, seen, stood = await expected(lost), [0], list[object]()

        def is_it(message: Message) -> bool:
            seen[0] += writes_state(message, lost.there)
            return seen[0] == nth

        async def the_heir_and_the_next_failover() -> None:
            await go_back(HEIR, lost, tmp_path / "another")
            assert await stands(lost) == wanted
            await promote_link(lost.there, lost.stage.target, "failover-2")
            stood.append(await state_of(lost))

        await hangs_and_wakes(lost, tmp_path, monkeypatch, step, is_it, the_heir_and_the_next_failover)
        assert [await state_of(lost)] == stood


@pytest.mark.parametrize("nth", [1, 2])
async def test_given_up_it_leaves_no_record_of_which_another_one_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """What had been asked for came behind the abort, and they were left, although nobody had decided so by then."""
    async with ready(tmp_path, monkeypatch) as lost:
        seen, undecided = [0], (await lost.stranded()).undecided

        def is_it(message: Message) -> bool:
            seen[0] += writes_state(message, lost.there)
            return seen[0] == nth

        await hangs_and_wakes(lost, tmp_path, monkeypatch, "leave", is_it, partial(abort, lost))
        assert (await lost.stranded()).undecided == undecided != ()


async def state_of(lost: Lost) -> tuple[object, ...]:
    entries = await read_entries(lost.there, lost.stage.target)
    return (entries.run, entries.owner, dict(entries.gaps))


@pytest.mark.parametrize("nth", [1, 2])
async def test_it_does_not_let_the_link_back_run_along_which_applications_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await pause_link(lost.back, lost.stage.source, "pause-1")
        wanted, seen = await expected(lost), [0]

        def is_it(message: Message) -> bool:
            seen[0] += writes_state(message, lost.back)
            return seen[0] == nth

        async def the_heir() -> None:
            await go_back(HEIR, lost, tmp_path / "another")
            assert await stands(lost) == wanted

        await hangs_and_wakes(lost, tmp_path, monkeypatch, "resume_back", is_it, the_heir)
        assert await stands(lost) == wanted


async def test_it_begins_no_switchover_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind its look, and its claim of the other site's journal: the site that had been left was made active again."""
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)

        def is_it(message: Message) -> bool:
            return isinstance(message, InitProducerIdRequest) and "operations" in (message.transactional_id or "")

        async def the_heir() -> None:
            await go_back(HEIR, lost, tmp_path / "another")
            assert await stands(lost) == wanted

        await hangs_and_wakes(lost, tmp_path, monkeypatch, "switch_over", is_it, the_heir)
        assert await stands(lost) == wanted
