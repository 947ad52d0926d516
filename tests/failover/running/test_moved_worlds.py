"""Switchovers and failovers under trouble: each that ends with exit code 0 is held against the world by content, and
each that is refused against what the world allows.

FARSHORE_SWITCHOVER_SEEDS=FIRST:COUNT runs others than the fixed worlds (`make chaos` takes 500).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failover.observing.places import group_partitions
from failover.observing.snapshot import GroupPartitionView
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.moves import GroupMove
from mirror.api import GroupMap
from tests.failover.machines import quick
from tests.failover.moved_operator import ahead_of_the_mirror, apart_from_the_mirror, beyond_the_map, play
from tests.failover.moved_refusals import MovedWrongly
from tests.worlds import first_worlds

FIRST, COUNT = map(int, os.environ.get("FARSHORE_SWITCHOVER_SEEDS", f"0:{first_worlds(4, of=20)}").split(":"))
REFUSED = first_worlds(2, of=4)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """How often each thing happened, printed at the end."""
    counts: Counter[str] = Counter()
    yield counts
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join(f"{count:6} {what}" for what, count in sorted(counts.items())))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_each_consumer_of_a_moved_group_goes_on_at_exactly_its_next_record(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    quick(monkeypatch)
    outcomes += await play(seed, tmp_path, monkeypatch)


async def test_an_operator_who_is_refused_by_right_has_a_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    quick(monkeypatch)
    counts = Counter[str]()
    for seed in range(REFUSED):
        counts += await play(seed, tmp_path / str(seed), monkeypatch, beyond_the_map)
    outcomes += counts
    assert counts["refused: group_not_movable"] > 0
    assert counts["failover ended with 0"] == REFUSED


async def test_a_refusal_that_the_world_does_not_allow_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no group is ever known well enough."""

    def none_is(moves: Iterable[GroupMove], left_groups: tuple[str, ...]) -> tuple[GateRefusal, ...]:
        groups = sorted({move.group for move in moves} - set(left_groups))
        return tuple(GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in groups)

    quick(monkeypatch)
    monkeypatch.setattr("failover.planning.plan.not_movable", none_is)
    with pytest.raises(MovedWrongly, match="refused without a reason"):
        await play(0, tmp_path, monkeypatch)


async def test_a_group_that_the_mirror_did_not_bring_stays_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    counts = await play(0, tmp_path, monkeypatch, apart_from_the_mirror)
    assert counts["failover of a dead site ended with 0"] == 1


async def test_a_document_that_says_of_such_a_one_that_the_mirror_brought_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: whatever stands at the target is what the mirror brought."""

    def brought(*args: Any) -> Iterator[GroupPartitionView]:
        return (replace(view, brought_offset=view.target_offset) for view in group_partitions(*args))

    quick(monkeypatch)
    monkeypatch.setattr("failover.observing.observe.group_partitions", brought)
    with pytest.raises(MovedWrongly, match=r"apart .* kept: gets"):
        await play(0, tmp_path, monkeypatch, apart_from_the_mirror)


async def test_a_group_begins_behind_what_it_read_at_the_other_site_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    counts = await play(0, tmp_path, monkeypatch, ahead_of_the_mirror)
    assert counts["failover of a dead site ended with 0"] == 1


async def test_one_that_the_mirror_brought_past_what_it_read_at_either_site_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: whoever is ahead at the target is taken to have read all that is there."""
    translate = GroupMap.to_target

    def to_end(self: GroupMap, topic: str, partition: int, source_offset: int, read_to: int = 0) -> int | None:
        end = self.own.mirrored_end(topic, partition)
        return end.target_next if end and read_to else translate(self, topic, partition, source_offset, read_to)

    quick(monkeypatch)
    monkeypatch.setattr(GroupMap, "to_target", to_end)
    with pytest.raises(MovedWrongly, match=r"ahead .* kept: gets 0 records"):
        await play(0, tmp_path, monkeypatch, ahead_of_the_mirror)
