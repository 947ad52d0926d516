"""A machine that hangs amid its commits of groups, until its operation is another one's, moves none when it wakes."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from broker.wire.schema import Message
from failover.errors import CutShort
from failover.plan import plan_failover
from mirror.api import fence_groups, promote_link
from tests.failover.machines import VICTIM, machine
from tests.failover.stage import PARTITIONS, Stage, commit_group, mirrored, two_sites


class Hanging:
    """The machine hangs before it sends the first of these for groups; then comes the heir, and who reads there."""

    def __init__(self, stage: Stage, kinds: tuple[type[Message], ...]) -> None:
        self._stage = stage
        self._kinds = kinds
        self.hung = False

    def is_it(self, message: Message) -> bool:
        if self.hung or not isinstance(message, self._kinds):
            return False
        return getattr(message, "transactional_id", self._groups_id) == self._groups_id

    @property
    def _groups_id(self) -> str:
        return self._stage.link.groups_transactional_id

    async def what_came_meanwhile(self) -> None:
        self.hung = True
        await promote_link(self._stage.link, self._stage.target, "operation-1")
        await commit_group(self._stage.target, 47, 48)


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
        hanging = Hanging(stage, kinds)
        real = Connection.send

        async def send(
            self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
        ) -> Awaitable[Any]:
            if self._client_id == VICTIM and hanging.is_it(message):
                await hanging.what_came_meanwhile()
            return await real(self, message, version, timeout_ms=timeout_ms)

        async with machine(VICTIM, stage.link) as (sites,):
            plan = plan_failover(await sites.look(), allow_data_loss=True, even_if_source_answers=True)
            monkeypatch.setattr(Connection, "send", send)
            with pytest.raises(CutShort, match=r"step move_groups.*another command took"):
                await stage.run(plan, sites)
        assert hanging.hung
        assert await stage.group_at(stage.target) == dict(zip(PARTITIONS, (47, 48), strict=True))


async def test_a_worker_that_begins_a_pass_when_the_link_is_not_its_own_any_more_ends_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fences the groups before the state refuses it, and the operation was cut short by that."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 44, 45)
        hanging = Hanging(stage, (AddOffsetsToTxnRequest,))
        real = Connection.send

        async def send(
            self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
        ) -> Awaitable[Any]:
            if self._client_id == VICTIM and hanging.is_it(message):
                hanging.hung = True
                await fence_groups(stage.target, stage.link)
            return await real(self, message, version, timeout_ms=timeout_ms)

        async with machine(VICTIM, stage.link) as (sites,):
            plan = plan_failover(await sites.look(), allow_data_loss=True, even_if_source_answers=True)
            monkeypatch.setattr(Connection, "send", send)
            result = await stage.run(plan, sites)
        assert hanging.hung
        assert result.verified, result.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
