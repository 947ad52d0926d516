"""How long an after_hook, which turns clients to the target, waits for a source that hangs; on simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from deploy.cli.failover_tables import summary
from failover.freezing.hooks import Hooks
from failover.limits import LATE_LOOK_S, LATE_WRITES_S, STATED_BEFORE_HOOK_S, STATED_S
from failover.losses.statements import Certainty
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.link_run import LinkMove, LinkRun
from failover.running.stating import state_losses
from tests.failover.far_sites import INTENT, FarSites, at_far_sites
from tests.failover.running.test_planned_move import SWITCHOVER
from tests.failover.stage import PARTITIONS, now_ms
from tests.mirror.harness import some_records, write

EVEN_IF = replace(INTENT, even_if_source_answers=True)
LINKS = 3


@pytest.mark.parametrize("intent", [EVEN_IF, SWITCHOVER], ids=["failover", "switchover"])
@pytest.mark.parametrize("hangs", [True, False])
def test_it_does_not_wait_for_the_count_of_a_source_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool, intent: Intent
) -> None:
    """Each question of the count was waited for, 40 s for each link, with DNS or a load balancer unturned; and
    what came late to a switchover's source for a minute and more, and then the operation was cut short.
    """
    ran_s: list[float] = []

    async def act(sites: FarSites) -> None:
        async def program(name: str, _command: tuple[str, ...], told: Mapping[str, str]) -> None:
            if name == "after_hook":
                ran_s.append(sites.loop.time())
                assert told["FARSHORE_VERIFIED"] == "true"

        monkeypatch.setattr("failover.running.operation.run_hook", program)  # no process runs on simulated time
        began_s = sites.loop.time()
        result = await sites.fail_over(intent, Hooks(after=("tell",)), hangs_when_told=hangs)
        told_s, ended_s = began_s + sites.told_s[0], sites.loop.time()
        assert result.verified
        most_s = LATE_WRITES_S + (LATE_LOOK_S + STATED_BEFORE_HOOK_S if hangs else 0)
        assert ran_s[0] - told_s <= most_s + 0.5
        assert ended_s - told_s <= most_s + (STATED_S if hangs else 0) + 0.5
        assert result.loss.certainty is (Certainty.AT_LEAST if hangs else Certainty.EXACT)
        assert (result.is_unwatched, result.has_findings) == (hangs, hangs)
        if hangs:
            assert (result.stranded, result.are_late_records_known) == ((), False)
            unseen = "of every group whether it read on there after the fence"
            if intent == SWITCHOVER:
                unseen = "whether records came there after the fence"
            assert unseen in summary(result)

    at_far_sites(tmp_path, act)


@pytest.mark.parametrize("hangs", [True, False])
def test_the_losses_of_all_links_are_stated_in_one_time(tmp_path: Path, *, hangs: bool) -> None:
    """One link behind the other: three of a source that hung took two minutes."""

    async def act(sites: FarSites) -> None:
        async with Cluster(sites.link.source) as source, Cluster(sites.link.target) as target:
            at = Sites(sites.link, source, target, (), now_ms)
            move = await plan_link(EVEN_IF, at, Hooks())
            await write(source, PARTITIONS[0], some_records(5000, 7))

            async def renew() -> None:
                pass

            links = [LinkRun(LinkMove(move.plan, at), "o", 1.0, move.plan.freezing, renew) for _ in range(LINKS)]
            if hangs:
                sites.hang()
            began_s = sites.loop.time()
            await state_losses(links)
            assert sites.loop.time() - began_s <= (STATED_S + 0.5 if hangs else 1.0)
            for link in links:
                assert link.failure is None
                certainties = {loss.certainty for loss in link.losses}
                assert certainties == {Certainty.AT_LEAST if hangs else Certainty.EXACT}

    at_far_sites(tmp_path, act)
