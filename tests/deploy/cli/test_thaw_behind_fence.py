"""A site that a move had frozen, and whose links are promoted by it, is not let in without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from deploy.cli.site_roles import changed
from failover.errors import GateRefused
from mirror.offsets.operations import promote_link
from tests.failover.stage import RARE, mirrored, two_sites

MOVE = "switchover-east-west-1"


async def test_a_freeze_of_a_move_that_was_cut_short_behind_its_fence_is_not_just_thawed(tmp_path: Path) -> None:
    """Its producers wait, so that somebody types `site thaw`. Then both sites take writes, no mirror carries any of
    them, and nothing says so: only what is closed for good asks for --even-if-other-active.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        known = await site_standing(stage.source)
        assert known is not None
        await set_site_role(stage.source, SiteRole.FROZEN, MOVE, known)
        await promote_link(stage.link, stage.target, MOVE)
        west = await site_standing(stage.target)
        assert west is not None
        assert west.takes_writes
        with pytest.raises(GateRefused, match="both would take writes"):
            await changed(stage.link.source, SiteRole.ACTIVE, "", dry_run=False, yes=True, others=(stage.link.target,))
