"""A machine that hangs amid its commits of groups, until its operation is another one's, moves none when it wakes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.client.errors import ConnectionLost, KafkaError
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from broker.wire.schema import Message
from failover.errors import CutShort, FenceShrank
from failover.planning.plan import plan_failover
from failover.running.moving import promoted_again
from mirror.api import Promotion, fence_groups, promote_link, resume_link
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link
from tests.failover.machines import VICTIM, machine
from tests.failover.stage import GROUP, PARTITIONS, Stage, commit_group, mirrored, two_sites


@contextmanager
def hanging(
    monkeypatch: pytest.MonkeyPatch,
    stage: Stage,
    kinds: tuple[type[Message], ...],
    meanwhile: Callable[[], Awaitable[object]],
) -> Iterator[list[Message]]:
    """The machine hangs before it sends the first of these for groups, which is given; then something comes."""
    groups_id = stage.link.groups_transactional_id
    hung: list[Message] = []
    real = Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        is_of_groups = getattr(message, "transactional_id", groups_id) == groups_id
        if self._client_id == VICTIM and not hung and isinstance(message, kinds) and is_of_groups:
            hung.append(message)
            await meanwhile()
        return await real(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield hung


@pytest.mark.parametrize(
    "kinds",
    [(OffsetCommitRequest, AddOffsetsToTxnRequest), (TxnOffsetCommitRequest,), (EndTxnRequest,)],
    ids=["before its commits", "before they are staged", "before they count"],
)
async def test_a_machine_that_hangs_amid_its_commits_moves_no_group_of_its_heirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[type[Message], ...]
) -> None:
    """Its plain commits came when it woke, and set groups back that applications read on with since."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)

        async def the_heir_and_who_reads_there() -> None:
            await promote_link(stage.link, stage.target, "operation-1")
            await commit_group(stage.target, 47, 48)

        async with machine(VICTIM, stage.link) as (sites,):
            plan = plan_failover(await sites.look(), allow_data_loss=True, even_if_source_answers=True)
            refused = pytest.raises(CutShort, match=r"step move_groups.*another command took")
            with hanging(monkeypatch, stage, kinds, the_heir_and_who_reads_there) as hung, refused:
                await stage.run(plan, sites)
        assert hung
        assert await stage.group_at(stage.target) == dict(zip(PARTITIONS, (47, 48), strict=True))


async def moved_although(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, worker: Callable[[], Awaitable[object]]
) -> None:
    """The groups are moved exactly, whatever the `worker` does before the first of them is in a transaction."""
    async with machine(VICTIM, stage.link) as (sites,):
        plan = plan_failover(await sites.look(), allow_data_loss=True, even_if_source_answers=True)
        with hanging(monkeypatch, stage, (AddOffsetsToTxnRequest,), worker) as hung:
            result = await stage.run(plan, sites)
    assert hung
    assert result.verified, result.differences
    for at in PARTITIONS:
        assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


async def test_a_worker_that_begins_a_pass_when_the_link_is_not_its_own_any_more_ends_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fences the groups before the state refuses it, and the operation was cut short by that."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        fencing = partial(fence_groups, stage.target, stage.link)
        await moved_although(monkeypatch, stage, fencing)


async def test_a_worker_that_fences_the_state_behind_the_promotion_ends_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits when it has read that the link is promoted; but the operation was cut short by its fence."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        claiming = partial(claim_link, stage.target, stage.link, "a worker")
        await moved_although(monkeypatch, stage, claiming)


async def test_what_a_commit_without_answer_may_have_moved_is_not_taken_back_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fenced the groups then: the next try was refused, as the group stood there, and its pair was gone."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        real = Connection.send
        lost: list[Message] = []

        async def send(
            self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
        ) -> Awaitable[Any]:
            answer = await real(self, message, version, timeout_ms=timeout_ms)
            is_end = isinstance(message, EndTxnRequest) and message.transactional_id == groups_id
            if self._client_id == VICTIM and is_end and not lost:
                lost.append(message)
                await answer
                await fence_groups(stage.target, stage.link)
                raise ConnectionLost("a test")
            return answer

        groups_id = stage.link.groups_transactional_id
        async with machine(VICTIM, stage.link) as (sites,):
            plan = plan_failover(await sites.look(), allow_data_loss=True, even_if_source_answers=True)
            monkeypatch.setattr(Connection, "send", send)
            await stage.run(plan, sites)
        assert lost
        stands = await stage.group_at(stage.target)
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
        kept = (await read_entries(stage.link, stage.target)).groups.by_group[GROUP].written
        pairs = {at: (one.source_offset, one.target_offset) for at, one in kept.items()}
        assert pairs == {at: (offset, stands[at]) for at, offset in zip(PARTITIONS, (44, 45), strict=True)}


@pytest.mark.parametrize("has_groups", [True, False])
async def test_a_second_fence_that_reaches_less_than_the_first_is_told_as_that(
    tmp_path: Path, *, has_groups: bool
) -> None:
    """It was called another command's, which nobody could find."""
    left_out = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "a marker")
    async with two_sites(tmp_path) as stage:
        await promote_link(stage.link, stage.target, "operation-0")
        await resume_link(stage.link, stage.target, "resume-0")
        promote = partial(promote_link, stage.link, stage.target, "operation-1")
        first = await promote()
        await claim_link(stage.target, stage.link, "a worker that did not know")

        async def reaches_less() -> Promotion:
            missed = {PARTITIONS[1]: left_out} if has_groups else {}
            return replace(await promote(), left_out=missed, groups_error=None if has_groups else left_out)

        with pytest.raises(FenceShrank, match="does not reach") as told:
            await promoted_again(stage.sites, "operation-1", first, reaches_less)
        assert told.value.left_out == {str(PARTITIONS[1]) if has_groups else "the groups' commits": str(left_out)}
        assert await promoted_again(stage.sites, "another", first, promote) is None
