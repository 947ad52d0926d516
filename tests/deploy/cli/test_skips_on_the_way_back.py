"""The consent to a failback is to groups that go on where they would have at the other site, and to no skip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from broker.base.documents import to_document
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.topics import delete_records
from deploy.cli import way_back
from deploy.cli.moving import LinkMoved
from deploy.cli.terminal import AppContext, ExitCode
from failover.errors import SkipsMore
from failover.failback.foreseen import SkipsLost
from failover.failback.looking import look_back
from failover.failback.operation import Beginning, come_back, first_entry, open_failback
from failover.failback.way_back import Hands, SwitchoverEnd, WayBack
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal
from failover.journal.values import OperationLog
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.staying import NONE_AWAY
from failover.running.steps import Operation
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction
from mirror.offsets.state import read_entries
from tests.failover.failback.returning import ID, group_at_east, ready
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR, machine
from tests.failover.stage import GROUP, PARTITIONS, TOPIC
from tests.mirror.harness import eventually


@dataclass(frozen=True)
class File:
    """What of a configuration file the way back asks for."""

    lost: Lost

    def links(self) -> tuple[Link, ...]:
        return self.lost.there, self.lost.back

    def link(self, name: str) -> Link:
        return next(link for link in self.links() if link.name == name)

    def hooks(self) -> Hooks:
        return Hooks()

    def runs_brokers(self, _site: str) -> bool:
        return True


async def is_seen(lost: Lost) -> bool:
    """By a pass of the link back, which carries it on to the first record behind both that the group has not read; or
    that had already seen it there when the group was set back: then it stands where somebody put it.
    """
    (group,) = (await read_entries(lost.back, lost.stage.source)).groups.by_group.values()
    return await group_at_east(lost) > 53 or GroupAction.SKIP_SET_BACK in group.waiting.values()


async def test_a_group_that_a_reader_at_the_old_source_puts_forward_again_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer there that joins no group commits where it stands every few seconds, also behind the step that has set
    the group back. It skipped what it had not read at the other site: verified, exit code 0, and the plan said nothing.
    """
    moved: list[LinkMoved] = []

    async def switch_over(lost: Lost, journal: OperationJournal) -> SwitchoverEnd:
        if not moved:
            await commit_offsets(lost.stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(53)})
            await eventually(lambda: is_seen(lost), "a pass of the link back")
        app = cast(AppContext, File(lost))
        moved.append(await way_back._switch_over(app, lost.there, lost.back, journal, NONE_AWAY))
        if (refused := moved[-1].refused) is not None:
            raise refused
        return SwitchoverEnd.VERIFIED

    async def come(sites: Sites, log: OperationLog | None = None) -> None:
        assert sites.source is not None
        ends = sites.source, sites.target
        plan = await look_back(lost.there, (lost.there, lost.back), ends, str(tmp_path / "saved"), ID if log else "")
        intent = Intent(Operation.FAILBACK, (lost.there.name,), "east", "west")
        detail = first_entry(intent.document(), "tests", lost.back.name, to_document(plan))
        way = WayBack(lost.there, lost.back, ends, plan, Hands(partial(switch_over, lost), 20.0))
        await come_back(sites, lost.back, way, Beginning(ID, "tests", detail, log))

    async with ready(tmp_path, monkeypatch) as lost, machine(HEIR, lost.there) as (sites,):
        reads_next = await lost.stage.next_record(lost.stage.target, PARTITIONS[0])
        with pytest.raises(SkipsMore, match=rf"{GROUP} on {TOPIC}-0 \(at most (14|19)\)") as refused:
            await come(sites)
        assert refused.value.hint.endswith("then the same command goes on, and sets them back")
        assert moved[0].exit_code is ExitCode.REFUSED
        await come(sites, await open_failback(sites))
        assert moved[1].exit_code is ExitCode.DONE
        assert await lost.stage.next_record(lost.stage.source, PARTITIONS[0]) == reads_next


@pytest.mark.parametrize("is_before_the_plan", [True, False])
async def test_what_the_retention_of_the_lost_site_took_is_told_before_a_group_skips_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_before_the_plan: bool
) -> None:
    """East was away for longer than it keeps records, and the other site has them still: the group skipped them,
    verified, exit code 0, and only the plan of the switchover said so, which nobody is shown.
    """
    moved: list[LinkMoved] = []

    async with ready(tmp_path, monkeypatch) as lost, machine(HEIR, lost.there) as (sites,):
        assert sites.source is not None
        if is_before_the_plan:
            await delete_records(lost.stage.source, {PARTITIONS[0]: 48})
        ends = sites.source, sites.target
        plan = await look_back(lost.there, (lost.there, lost.back), ends, str(tmp_path / "saved"))
        assert plan.refusals == ()
        assert plan.foreseen.skips == ((SkipsLost(GROUP, TOPIC, 0, 9),) if is_before_the_plan else ())
        if not is_before_the_plan:
            await delete_records(lost.stage.source, {PARTITIONS[0]: 48})

        async def switch_over(journal: OperationJournal) -> SwitchoverEnd:
            asked = (cast(AppContext, File(lost)), lost.there, lost.back, journal, NONE_AWAY, plan.foreseen.skips)
            moved.append(await way_back._switch_over(*asked))
            if (refused := moved[-1].refused) is not None:
                raise refused
            return SwitchoverEnd.VERIFIED

        intent = Intent(Operation.FAILBACK, (lost.there.name,), "east", "west")
        detail = first_entry(intent.document(), "tests", lost.back.name, to_document(plan))
        way = WayBack(lost.there, lost.back, ends, plan, Hands(switch_over, 20.0))
        if is_before_the_plan:
            await come_back(sites, lost.back, way, Beginning(ID, "tests", detail))
            assert moved[0].exit_code is ExitCode.DONE
            return
        with pytest.raises(SkipsMore, match=rf"{GROUP} on {TOPIC}-0 \(at most 9\)"):
            await come_back(sites, lost.back, way, Beginning(ID, "tests", detail))
        again = await look_back(lost.there, (lost.there, lost.back), ends, str(tmp_path / "saved"), ID)
        assert again.foreseen.skips == (SkipsLost(GROUP, TOPIC, 0, 9),), "it is shown when it is gone on with"
