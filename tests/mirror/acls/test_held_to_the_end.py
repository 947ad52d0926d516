"""Rights that were held back, and what ends the finding that they were not given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.acl_bindings import delete_acls
from broker.client.acls import FREEZE_MARK
from broker.client.topics import delete_topics
from mirror.acls.findings import acl_findings
from mirror.acls.sync import apply_acls, look_at_acls, read_record, sync_acls
from mirror.offsets.entries import LinkRun, RunState
from mirror.offsets.state_entries import StateEntries
from tests.mirror.acls.acls import WRITE, allow, deny
from tests.mirror.acls.test_sync import TOPIC, Sites, between, make

HELD = allow("app", WRITE, TOPIC)


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Sites]:
    """The link holds back a right to write."""
    async with AsyncExitStack() as stack:
        found = await between(stack, tmp_path)
        await make(found.source, HELD)
        await found.apply()
        yield found


async def findings(sites: Sites) -> list[str]:
    """What status says of the link, as it is promoted."""
    record = await read_record(sites.link, sites.target)
    entries = StateEntries(sites.link, exists=True, run=LinkRun(RunState.PROMOTED, "failover-1", at_ms=0))
    return [found.kind.value for found in acl_findings(sites.link, entries, record, source_answers=True)]


async def test_one_that_was_given_by_hand_is_given(sites: Sites) -> None:
    await make(sites.target, HELD)
    await sites.apply(promoted=True)
    assert await sites.at_target() == {HELD}
    assert await findings(sites) == []


async def test_one_that_the_source_took_away_waits_no_more(sites: Sites) -> None:
    await delete_acls(sites.source, [HELD])
    await sites.apply(promoted=True)
    assert await sites.at_target() == set()
    assert await findings(sites) == []


async def test_a_source_that_came_back_empty_takes_nothing_away(sites: Sites) -> None:
    await delete_acls(sites.source, [HELD])
    await delete_topics(sites.source, [TOPIC])
    await sites.apply(promoted=True)
    assert await sites.at_target() == {HELD}
    assert await findings(sites) == []


async def test_a_denial_that_only_a_freeze_made_still_waits_when_a_promotion_is_cut_short(sites: Sites) -> None:
    denial = deny("app", WRITE, TOPIC)
    await make(sites.target, denial, denial._replace(principal=f"{FREEZE_MARK}freeze-1/User:app"))
    await make(sites.source, denial)
    await sync_acls(sites.link, sites.source, sites.target, frozenset(), shut_out=[denial])
    seen = await look_at_acls(sites.link, None, sites.target, promoted=True)
    assert seen.plan.create == (denial, HELD)
    await apply_acls(sites.link, sites.target, seen, [], remove=False)
    assert (await read_record(sites.link, sites.target)).held == {denial, HELD}


async def test_no_denial_goes_where_what_it_takes_away_could_not_be_removed(sites: Sites) -> None:
    """What the target does not know it refuses by itself, and does the rest of that request."""
    denial, refused = deny("app", WRITE, TOPIC), HELD._replace(operation=99)
    await make(sites.target, denial, HELD)
    seen = await look_at_acls(sites.link, sites.source, sites.target, promoted=False)
    seen = replace(seen, plan=replace(seen.plan, remove=(refused, HELD, denial)))
    changes = await apply_acls(sites.link, sites.target, seen, [], remove=True)
    assert (changes.removed, [acl for acl, _ in changes.failures]) == ((HELD,), [refused])
    assert await sites.at_target() == {denial}
    seen = replace(seen, plan=replace(seen.plan, remove=(HELD, denial)))
    assert (await apply_acls(sites.link, sites.target, seen, [], remove=True)).removed == (HELD, denial)
