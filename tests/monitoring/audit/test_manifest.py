"""Digests of two sites' own jobs are compared only where they are all of one plan's, and only in ranges that held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from monitoring import limits
from monitoring.audit.manifest import (
    MANIFEST,
    DigestedPartition,
    SiteManifest,
    Sums,
    is_held,
    parsed,
    require_complete,
    require_of_plan,
    settled,
)
from monitoring.audit.model import FrozenLink, FrozenPartition, FrozenSite, NotCompared, Side, Span, Step
from monitoring.audit.plans import KeptPlan, Plan, reached, read_plan, side_of, write_plan
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason
from monitoring.audit.rounds import LogStarts
from monitoring.audit.sample import Sample
from monitoring.errors import AuditError, DigestsUnusable

LOCKED = Security(sasl=Sasl(Mechanism.SCRAM_SHA_256, "mirror-user", Secret(environment="EAST_PASSWORD")))
EAST = FrozenSite("east", "east:9092", "cluster-a", {"a:1": "b:1"}, LOCKED)
PARTITION = FrozenPartition("t", 0, "east.t", Span(0, 100), Span(0, 101), (Step(0, 0), Step(40, 41)), (100, 101))
FROZEN = FrozenLink("east-west", EAST, replace(EAST, name="west", cluster_id="cluster-b"), 1_000, (PARTITION,))


@pytest.fixture(autouse=True)
def narrow_ranges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "AUDIT_RANGE_OFFSETS", 10)
        yield


@pytest.fixture
def kept(tmp_path: Path) -> KeptPlan:
    write_plan(Plan("run-1", FROZEN, "farshore audit freeze", Sample(5, "run-1")), tmp_path)
    return read_plan(tmp_path, "run-1")


def manifest(side: Side, log_start: int | None = 0, left_out: Reason | None = None, plan_id: str = "") -> SiteManifest:
    site = "east" if side is Side.SOURCE else "west"
    told = DigestedPartition("t", 0, log_start, left_out, Sums(10, 100, 1_000, 7))
    return SiteManifest("run-1", plan_id, site, side, 2_000, (told,))


def test_a_plan_comes_back_as_it_was_but_for_how_its_sites_are_reached(kept: KeptPlan, tmp_path: Path) -> None:
    text = kept.path.read_text()
    assert "EAST_PASSWORD" not in text
    assert "mirror-user" not in text
    assert "b:1" not in text
    assert kept.size_bytes == len(text)
    assert kept.plan.frozen.partitions == FROZEN.partitions
    here = Site("west", "10.0.0.1:9092", {"c:1": "d:1"}, LOCKED)
    frozen = reached(kept.plan.frozen, {Side.TARGET: here})
    assert frozen.target == FrozenSite("west", "10.0.0.1:9092", "cluster-b", {"c:1": "d:1"}, LOCKED)
    assert frozen.source == kept.plan.frozen.source
    assert [side_of(kept.plan, name) for name in ("east", "west")] == list(Side)
    with pytest.raises(AuditError, match="does not compare site north"):
        side_of(kept.plan, "north")
    again = write_plan(replace(kept.plan, frozen=replace(FROZEN, frozen_at_ms=1_001)), tmp_path)
    assert again.plan_id != kept.plan_id


def test_a_plan_that_is_not_there_or_not_ours_is_an_error(
    kept: KeptPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AuditError, match="there is no plan of run run-2") as refused:
        read_plan(tmp_path, "run-2")
    assert "farshore audit freeze" in refused.value.hint
    (tmp_path / "plans" / "run-2.json").write_text(kept.path.read_text())
    with pytest.raises(DigestsUnusable, match="is of run run-1"):
        read_plan(tmp_path, "run-2")
    monkeypatch.setattr(limits, "AUDIT_RANGE_OFFSETS", 20)
    with pytest.raises(DigestsUnusable, match="ranges of 10 offsets"):
        read_plan(tmp_path, "run-1")
    kept.path.write_text(kept.path.read_text()[:100])
    with pytest.raises(DigestsUnusable, match="is not the plan of an audit"):
        read_plan(tmp_path, "run-1")


def test_digests_of_another_run_site_or_plan_or_without_a_partition_are_none(kept: KeptPlan) -> None:
    mine = manifest(Side.TARGET, plan_id=kept.plan_id)
    require_of_plan(mine, kept, "west", Side.TARGET)
    for other, words in (
        (replace(mine, run_id="run-0"), "are of run run-0, not run-1"),
        (manifest(Side.SOURCE, plan_id=kept.plan_id), "the digests of target west are those of source east"),
        (replace(mine, plan_id="other"), "were made by another plan of run run-1"),
        (replace(mine, partitions=()), "do not have t:0"),
    ):
        with pytest.raises(DigestsUnusable, match=words) as refused:
            require_of_plan(other, kept, "west", Side.TARGET)
        assert refused.value.hint.endswith("farshore audit digest --site west --run run-1")


@pytest.mark.parametrize(
    "found",
    [
        {},
        {("t", 0): Sums(9, 100, 1_000, 7)},
        {("t", 0): Sums(10, 100, 1_000, 8)},
        {("t", 0): Sums(10, 100, 1_000, 7), ("t", 1): Sums(1, 1, 1, 1)},
    ],
)
def test_digests_that_are_not_as_they_were_written_are_none(found: dict[tuple[str, int], Sums]) -> None:
    require_complete(manifest(Side.TARGET), {("t", 0): Sums(10, 100, 1_000, 7)})
    with pytest.raises(DigestsUnusable, match="the digests of site west are not as they were written: of t:"):
        require_complete(manifest(Side.TARGET), found)


def test_a_manifest_is_one_and_of_this_version() -> None:
    mine = manifest(Side.TARGET)
    text = MANIFEST.dump_json(mine).decode()
    assert parsed([text], "west", "here") == mine
    for texts in ([], [text, text], [text[:20]], [text.replace('"version":1', '"version":2')]):
        with pytest.raises(DigestsUnusable, match="manifest"):
            parsed(texts, "west", "here")


def after(source: int | None, target: int | None, later: LogStarts | None = None) -> FrozenPartition:
    manifests = {Side.SOURCE: manifest(Side.SOURCE, source), Side.TARGET: manifest(Side.TARGET, target)}
    (found,) = settled(FROZEN, manifests, later).partitions
    return found


def expired(item: FrozenPartition) -> dict[Side, Span]:
    _, left_out = comparable(item)
    return {told.side: told.span for told in left_out if told.reason is Reason.EXPIRED_WHILE_READ}


def test_where_nothing_went_all_is_compared() -> None:
    assert after(0, 0) == PARTITION
    # A site that told nothing of the log's beginning has left the partition out itself.
    assert after(None, None) == PARTITION


@pytest.mark.parametrize(
    ("source", "target", "first", "gone"),
    [
        (25, 0, 30, {Side.SOURCE: Span(25, 30), Side.TARGET: Span(25, 30)}),
        (0, 46, 50, {Side.SOURCE: Span(45, 50), Side.TARGET: Span(46, 51)}),
        (30, 0, 30, {}),
        # The map has a marker at the target's offset 40.
        (40, 0, 40, {}),
        (0, 40, 40, {}),
        (89, 0, 90, {Side.SOURCE: Span(89, 90), Side.TARGET: Span(90, 91)}),
    ],
)
def test_a_range_that_has_begun_to_go_is_left_out_at_both_sites(
    source: int, target: int, first: int, gone: dict[Side, Span]
) -> None:
    item = after(source, target)
    rest, left_out = comparable(item)
    assert rest is not None
    assert rest.source == Span(first, 100)
    assert expired(item) == gone
    assert not any(told.reason.is_finding for told in left_out)
    by_place = {("t", 0): item}
    assert [start for start in range(0, 100, 10) if is_held(by_place, ("t", 0), start)] == list(range(first, 100, 10))
    assert _offsets(item, left_out, rest.source, Side.SOURCE) == set(range(item.source.start, 100))


def _offsets(item: FrozenPartition, left_out: tuple[NotCompared, ...], compared: Span, side: Side) -> set[int]:
    spans = [compared, *(told.span for told in left_out if told.side is side)]
    return {offset for span in spans for offset in range(span.start, span.end)}


def test_where_the_last_range_has_begun_to_go_nothing_is_compared() -> None:
    """Also not what the target has behind its last mirrored record: it is in that range."""
    item = after(93, 0)
    assert item.left_out is Reason.EXPIRED_WHILE_READ
    assert comparable(item)[0] is None
    assert not is_held({("t", 0): item}, ("t", 0), 90)


def test_what_goes_before_a_range_is_opened_counts_too() -> None:
    assert after(25, 0, {(Side.TARGET, "east.t", 0): 62}).read_from == 70
    assert after(25, 0, {(Side.TARGET, "east.t", 0): 3}).read_from == 30


def test_what_a_site_could_not_digest_is_left_out_with_its_reason() -> None:
    manifests = {
        Side.SOURCE: manifest(Side.SOURCE),
        Side.TARGET: manifest(Side.TARGET, None, Reason.NOT_READABLE),
    }
    (item,) = settled(FROZEN, manifests).partitions
    assert item.left_out is Reason.NOT_READABLE
    compacted = replace(FROZEN, partitions=(replace(PARTITION, compacted=True),))
    assert settled(compacted, manifests) == compacted
