"""A group that neither site knows is a typing error; one that is somewhere, or may be, is the gates'."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from deploy.cli.terminal import CommandRefused, ExitCode
from deploy.cli.unknown_groups import refuse_unknown_groups
from failover.planning.gates import GateRefusal, RefusalReason
from tests.failover.stage import GROUP, PARTITIONS, TOPIC, two_sites
from tests.mirror.harness import make_topic


def not_found(*groups: str) -> list[GateRefusal]:
    return [GateRefusal(RefusalReason.GROUP_NOT_FOUND, group) for group in groups]


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
