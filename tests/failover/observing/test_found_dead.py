"""Since when it is known that nobody listened at a source, and that this is kept with the operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.address import parse_address
from broker.base.documents import to_document
from broker.client.cluster import Cluster
from broker.client.errors import ConnectionLost
from broker.client.security.settings import Access
from broker.client.site import Site
from failover.journal.noted_lacks import as_noted
from failover.journal.values import GENESIS_HASH, Event, JournalEntry, OperationLog
from failover.observing import contact
from failover.observing.contact import SiteFinding, call_brokers
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.plan import plan_failover
from failover.planning.plan_file import read_plan, write_plan
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.link import Link
from tests.failover.observing.test_contact import MUTE_MS, link_with_groups, looked, mute, now_ms
from tests.failover.planning.test_plan import SNAPSHOT, source_gone


async def test_when_nobody_listened_is_kept_and_silence_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """A source that is only silent to this machine may have gone on writing."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    monkeypatch.setattr(contact, "REFUSED_MS", 0)
    nobody = f"127.0.0.1:{unused_tcp_port}"
    async with link_with_groups(tmp_path) as link, mute() as silent:
        before_ms = now_ms()
        dead = await looked(link, Site("east", nobody))
        assert dead.found_dead_at_ms is not None
        assert before_ms <= dead.found_dead_at_ms == dead.evidence[0].asked_at_ms <= now_ms()
        part = await looked(link, Site("east", f"{silent},{nobody}"))
        assert (part.source_finding, part.found_dead_at_ms) == (SiteFinding.DEAD, None)
        assert {answer.address: answer.refused for answer in part.evidence} == {silent: False, nobody: True}
        async with Cluster(link.target) as target, Cluster(link.source) as source:
            first = Sites(link, None, target, (), now_ms, part.evidence).as_found(dead)
            later = replace(first, answers=part.evidence)
            assert (await later.look_past_source()).found_dead_at_ms == dead.found_dead_at_ms, "it was found before"
            entry = JournalEntry(0, 1, "o", Event.PLANNED, {"plans": [{"snapshot": to_document(dead)}]}, GENESIS_HASH)
            noted = as_noted(OperationLog("o", (entry,)), replace(later, found_dead_at_ms=None))
            assert (await noted.look_past_source()).found_dead_at_ms == dead.found_dead_at_ms
            there = await replace(noted, source=source).look_past_source()
            assert (there.source_finding, there.found_dead_at_ms) == (SiteFinding.ALIVE, None)
            assert noted.as_found(there).found_dead_at_ms is None, "it was running since"


def test_a_plan_that_is_carried_out_later_keeps_when_the_source_was_found_dead(tmp_path: Path) -> None:
    link = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), ("flights",))
    sites = Sites(link, None, Cluster(link.target), (), now_ms)
    gone = replace(source_gone(SNAPSHOT), found_dead_at_ms=1_700_000_000_123)
    plan = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False)
    write_plan(tmp_path / "plan", Intent(Operation.FAILOVER, (link.name,), "east", "west"), [LinkMove(plan, sites)])
    (again,) = read_plan(tmp_path / "plan").as_found([sites])
    assert again == replace(sites, found_dead_at_ms=1_700_000_000_123)


async def test_a_name_of_two_addresses_is_refused_at_both(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """asyncio says so in words alone."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", MUTE_MS)
    (refused,) = await call_brokers({parse_address(f"localhost:{unused_tcp_port}"): Access()}, now_ms)
    assert refused.refused
    for errors, said in (("[Errno 111] a, [Errno 111] b", True), ("[Errno 111] a, [Errno 113] b", False)):
        lost = ConnectionLost("east cannot be reached")
        lost.__cause__ = OSError(f"Multiple exceptions: {errors}")
        assert contact.is_refused(lost) is said
