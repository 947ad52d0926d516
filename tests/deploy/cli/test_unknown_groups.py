"""A name that neither site knows is a typing error; one that is somewhere, or may be, is the gates'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from deploy.cli.terminal import CommandRefused, ExitCode
from deploy.cli.unknown_groups import refuse_unknown_groups, refuse_unknown_partitions
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import OperationPlan, plan_failover
from tests.failover.planning.test_plan import SNAPSHOT, source_gone
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, two_sites
from tests.mirror.harness import make_topic


def not_found(*groups: str) -> list[GateRefusal]:
    return [GateRefusal(RefusalReason.GROUP_NOT_FOUND, group) for group in groups]


def leaving_partition(snapshot: Snapshot, name: str) -> OperationPlan:
    return plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True, left_partitions=(name,))


def test_a_partition_that_no_link_carries_is_a_typing_error_where_the_target_told_of_all_links() -> None:
    """A source that is lost has nothing to say about it: to be left it has to be at the target."""
    for snapshot in (SNAPSHOT, source_gone(SNAPSHOT)):
        plan = leaving_partition(snapshot, "flights:99")
        with pytest.raises(CommandRefused, match="there is no mirrored partition flights:99") as told:
            refuse_unknown_partitions(plan.refusals, ("east-west",), [plan])
        refused = (GateRefusal(RefusalReason.PARTITION_NOT_FOUND, "flights:99"),)
        assert (told.value.exit_code, told.value.refusals) == (ExitCode.USAGE, refused)
        refuse_unknown_partitions(plan.refusals, ("east-west", "not-told"), [plan])
    refuse_unknown_partitions((), ("east-west",), [leaving_partition(SNAPSHOT, "flights:0")])
    nothing = leaving_partition(replace(SNAPSHOT, partitions=()), "flights:99")
    refuse_unknown_partitions(nothing.refusals, ("east-west",), [nothing])


async def test_only_where_both_sites_tell_that_nobody_knows_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        source, target = stage.source, stage.target
        await make_topic(target, TOPIC, len(PARTITIONS))
        await commit_offsets(target, "at west", {PARTITIONS[0]: CommittedOffset(0)})
        await refuse_unknown_groups(not_found(GROUP, "at west"), source, target)
        await refuse_unknown_groups(not_found("nope"), None, target)
        await refuse_unknown_groups([GateRefusal(RefusalReason.NO_CONSENT, "nope")], source, target)
        with pytest.raises(CommandRefused, match="neither east nor west knows the group nope") as told:
            await refuse_unknown_groups(not_found("at west", "nope"), source, target)
        assert (told.value.exit_code, told.value.refusals) == (ExitCode.USAGE, tuple(not_found("nope")))
