"""Runs of several seeds on the clusters of one pair, a line of result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.chaos_runs.clusters import PAIRS, make_cluster
from tests.chaos_runs.content_runs import ContentResult, ContentRun
from tests.chaos_runs.hands_runs import HandsResult, HandsRun, actions_of
from tests.interop.servers import Toxiproxy


def shares(seeds: Sequence[int], pairs: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Which seeds run on which pair: in turn."""
    found = [(pair, [seed for at, seed in enumerate(seeds) if at % len(pairs) == n]) for n, pair in enumerate(pairs)]
    return [(pair, share) for pair, share in found if share]


def run_hands(pair: str, seeds: Sequence[int], actions: Sequence[str], folder: Path) -> list[HandsResult]:
    """Start the pair's clusters and run the seeds on them, one after the other."""
    source_kind, target_kind = PAIRS[pair]
    results = []
    with (
        make_cluster(source_kind, folder / "source") as source,
        make_cluster(target_kind, folder / "target") as target,
    ):
        for seed in seeds:
            own = folder / f"seed-{seed}"
            run = HandsRun(seed, pair, source, target, own, actions_of(seed, pair, actions))
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (own / "result.txt").write_text(results[-1].line())
    return results


def run_content(pair: str, seeds: Sequence[int], length_s: float, folder: Path) -> list[ContentResult]:
    """Start the pair's clusters and run the seeds on them, one after the other."""
    source_kind, target_kind = PAIRS[pair]
    results = []
    with (
        make_cluster(source_kind, folder / "source") as source,
        make_cluster(target_kind, folder / "target") as target,
        Toxiproxy(folder / "toxiproxy") as toxiproxy,
    ):
        for seed in seeds:
            run = ContentRun(seed, pair, source, target, toxiproxy, folder / f"seed-{seed}", length_s)
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (folder / f"seed-{seed}" / "result.txt").write_text(results[-1].line())
    return results
