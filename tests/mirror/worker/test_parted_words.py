"""Why it is not known whether a source has what was mirrored: in words that are true at whichever end one asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from mirror.worker.parted import PartingKind, source_partings
from tests.broker.faults import Faults, injected
from tests.failover.observing.test_leaderless_source import IMPATIENT
from tests.failover.stage import PARTITIONS, mirrored, two_sites


@pytest.mark.parametrize(("number", "site"), [(0, "east"), (1, "west")])
async def test_a_partition_without_a_leader_is_said_with_its_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, site: str
) -> None:
    """ "no_leader_at_target" was read as the move's target, where it was that of the link back."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        faults = Faults()
        faults.leaderless.add(PARTITIONS[1])
        async with (
            Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source,
            Cluster(stage.link.target, client_id="farshore-test", limits=IMPATIENT) as target,
        ):
            with injected(monkeypatch, {stage.brokers[number]: faults}):
                (parting,) = await source_partings(stage.link, source, target)
    assert (parting.where, parting.kind) == (PARTITIONS[1], PartingKind.NOT_COMPARED)
    assert "no_leader" not in parting.detail
    assert parting.in_words("east").endswith(f" is not known: it has no leader at {site}"), parting.detail
