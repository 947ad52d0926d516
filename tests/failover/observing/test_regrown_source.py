"""A source that came back with an older disk and has grown past that since, while no worker ran: its offsets alone say
nothing of what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.freezing.choice import Freezing
from failover.freezing.hooks import Hooks
from failover.journal.noted_lacks import as_noted
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, OperationLog
from failover.losses.stated_losses import stated_losses
from failover.losses.statements import Certainty
from failover.planning.gates import RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from failover.running.taking_up import planned
from tests.broker.running import running_server
from tests.failover.stage import GROUP, Stage, now_ms
from tests.mirror.harness import link_between, make_topic, running, some_records, wait_for_records, write

AT = TopicPartition("flights", 0)
OLDER, LOST = 40, 10


@asynccontextmanager
async def up(folder: Path) -> AsyncIterator[Stage]:
    async with running_server(folder / "east") as east, running_server(folder / "west") as west:
        link = replace(link_between(east.address, west.address, [AT.topic], name="east-west"), groups=(".*",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            yield Stage(link, source, target, brokers=(east.broker, west.broker))


async def come_back_older(folder: Path) -> None:
    async with up(folder) as stage:
        await make_topic(stage.source, AT.topic, 1)
        await write(stage.source, AT, some_records(0, OLDER))
        async with running(stage.link):
            await wait_for_records(stage.target, AT, OLDER)
    shutil.copytree(folder / "east", folder / "kept")
    async with up(folder) as stage:
        await write(stage.source, AT, some_records(1_000, LOST))
        async with running(stage.link):
            await wait_for_records(stage.target, AT, OLDER + LOST)
    shutil.rmtree(folder / "east")
    shutil.move(folder / "kept", folder / "east")


@pytest.mark.parametrize("written", [LOST, LOST + 5])
async def test_a_failover_from_it_does_not_say_that_all_of_it_is_at_the_target(tmp_path: Path, written: int) -> None:
    """It said that 0 records (or 5) are lost, exactly, and of 0 no consent was asked for; the group went on where the
    lost records of the target say.
    """
    await come_back_older(tmp_path)
    async with up(tmp_path) as stage:
        await write(stage.source, AT, some_records(70_000, written))
        await commit_offsets(stage.source, GROUP, {AT: CommittedOffset(OLDER + 3)})
        intent = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", even_if_source_answers=True)
        move = await plan_link(intent, stage.sites, Hooks())
        (behind_fence,) = await stated_losses(move.sites, await move.sites.look_past_source())
    refused = {(one.reason, one.subject) for one in move.plan.refusals}
    assert (RefusalReason.DATA_LOSS_NOT_ALLOWED, "east") in refused
    assert (RefusalReason.GROUP_NOT_MOVABLE, GROUP) in refused
    assert [loss.certainty for loss in (*move.plan.losses, behind_fence)] == [Certainty.UNKNOWN] * 2


async def test_what_was_found_so_counts_when_it_is_gone(tmp_path: Path) -> None:
    """It died before the fence, or another machine went on: the result stated a number of an unknown loss."""
    await come_back_older(tmp_path)
    async with up(tmp_path) as stage:
        await write(stage.source, AT, some_records(70_000, LOST))
        intent = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", even_if_source_answers=True)
        move = await plan_link(intent, stage.sites, Hooks())
        detail = to_document(planned([move], intent, "a test", Freezing(), {}))
        entry = JournalEntry(0, now_ms(), "failover-1", Event.PLANNED, detail, GENESIS_HASH)
        elsewhere = as_noted(OperationLog("failover-1", (entry,)), stage.sites)
        for sites in (replace(move.sites, source=None), replace(elsewhere, source=None)):
            seen = await sites.look_past_source()
            assert [loss.certainty for loss in await stated_losses(sites, seen)] == [Certainty.UNKNOWN]
        again = await plan_link(intent, elsewhere, Hooks())
    assert again.sites.parted == elsewhere.parted == {AT}


async def test_a_switchover_from_it_is_refused_before_anything_is_moved(tmp_path: Path) -> None:
    """Groups were moved by offsets that mean other records, and behind the fence it was not verified."""
    await come_back_older(tmp_path)
    async with up(tmp_path) as stage:
        await write(stage.source, AT, some_records(70_000, LOST))
        await commit_offsets(stage.source, GROUP, {AT: CommittedOffset(OLDER + 3)})
        intent = Intent(Operation.SWITCHOVER, (stage.link.name,), "east", "west")
        move = await plan_link(intent, stage.sites, Hooks())
    assert (RefusalReason.OFFSETS_IN_DOUBT, f"{AT.topic}-0") in {
        (one.reason, one.subject) for one in move.plan.refusals
    }
