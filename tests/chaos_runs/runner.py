"""Runs of several seeds on the clusters of one pair, a line of result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos_runs.actions import SITE_ACTIONS
from tests.chaos_runs.brokers_runs import BrokersResult, BrokersRun, Mode
from tests.chaos_runs.brokers_stage import BrokersStage
from tests.chaos_runs.circles import CIRCLE_SITES, CIRCLES, Circle, CircleResult
from tests.chaos_runs.clusters import PAIRS, THREES, make_cluster
from tests.chaos_runs.command_runs import AuditRun, FailoverRun, SwitchoverRun
from tests.chaos_runs.content_runs import ContentResult, ContentRun
from tests.chaos_runs.fleet_runs import FleetResult, run_rounds
from tests.chaos_runs.fleet_stage import fleet_stage
from tests.chaos_runs.hands_names import NAMES_ACTIONS, NamesRun
from tests.chaos_runs.hands_runs import HandsRun
from tests.chaos_runs.hands_sites import SitesRun
from tests.chaos_runs.hands_topics import PER_TOPIC, TopicsRun
from tests.chaos_runs.lagging import ThreeBrokers
from tests.chaos_runs.loss_runs import LossResult, LossRun
from tests.chaos_runs.moments import HandsResult
from tests.chaos_runs.replicated_runs import ReplicatedRun
from tests.chaos_runs.trio import two_trios
from tests.chaos_runs.warm_commands import WarmCommands
from tests.interop.servers import ServerFailed, Toxiproxy

RESULT_FILE = "result.json"
COMMANDS_OF_THREES = {"switchover": SwitchoverRun, "failover": FailoverRun, "audit": AuditRun}
"""During which brokers of two clusters of three die."""
ALL_ACTIONS = (*PER_TOPIC, *NAMES_ACTIONS, *SITE_ACTIONS)


def shares(seeds: Sequence[int], pairs: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Which seeds of content runs run on which pair: in turn."""
    found = [(pair, [seed for at, seed in enumerate(seeds) if at % len(pairs) == n]) for n, pair in enumerate(pairs)]
    return [(pair, share) for pair, share in found if share]


def run_hands(pair: str, seeds: Sequence[int], actions: Sequence[str], folder: Path) -> list[HandsResult]:
    """Start the pair's clusters and run the seeds on them, one after the other."""
    source_kind, target_kind = PAIRS[pair]
    results = []
    with (
        make_cluster(source_kind, folder / "source") as source,
        make_cluster(target_kind, folder / "target") as target,
        WarmCommands() as commands,
    ):
        for seed in seeds:
            own = folder / f"seed-{seed}"
            form, chosen = form_of(seed, actions)
            run = form(seed, pair, (source, target), commands, own, chosen)
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (own / RESULT_FILE).write_text(results[-1].to_json())
    return results


def form_of(seed: int, only: Sequence[str]) -> tuple[type[HandsRun], list[str]]:
    """What a seed does; those that follow each other do different things."""
    topics = [action for action in PER_TOPIC if not only or action in only]
    single = [action for action in (*NAMES_ACTIONS, *SITE_ACTIONS) if not only or action in only]
    turn = seed % (bool(topics) + len(single))
    if turn == len(single):
        return TopicsRun, topics
    action = single[turn]
    return NamesRun if action in NAMES_ACTIONS else SitesRun, [action]


def run_circle(kind: str, seeds: Sequence[int], length_s: float, folder: Path) -> list[CircleResult]:
    """Start a cluster of each kind and run the seeds on them, one after the other; a mirror is killed each 8 s."""
    results = []
    with ExitStack() as stack:
        sites = {}
        for name, of in CIRCLE_SITES.items():
            server = make_cluster(of, folder / name)
            stack.enter_context(server)
            sites[name] = server.bootstrap
        for seed in seeds:
            own = folder / f"seed-{seed}"
            circle = Circle(sites, CIRCLES[kind], own, seed)
            results.append(asyncio.run(circle.run(max(2, int(length_s // 8)), length_s)))
            print(f"{kind} seed {seed} {results[-1].line()}", flush=True)
            (own / "result.txt").write_text(results[-1].line())
    return results


def run_content(pair: str, seeds: Sequence[int], length_s: float, folder: Path) -> list[ContentResult]:
    """Start the pair's clusters and run the seeds on them, one after the other."""
    if pair == THREES:
        return run_replicated(seeds, length_s, folder)
    source_kind, target_kind = PAIRS[pair]
    results = []
    with (
        make_cluster(source_kind, folder / "source") as source,
        make_cluster(target_kind, folder / "target") as target,
        Toxiproxy(folder / "toxiproxy") as toxiproxy,
        WarmCommands() as commands,
    ):
        for seed in seeds:
            run = ContentRun(seed, pair, source, target, toxiproxy, commands, folder / f"seed-{seed}", length_s)
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (folder / f"seed-{seed}" / "result.txt").write_text(results[-1].line())
    return results


def run_losses(pair: str, seeds: Sequence[int], folder: Path, *, two_ways: bool = False) -> list[LossResult]:
    """The same for sites that are lost while they are written to; with `two_ways` the other site is, too."""
    source_kind, target_kind = PAIRS.get(pair, ("", "ours"))
    results = []
    with (
        make_cluster(source_kind, folder / "source") if source_kind else ThreeBrokers(folder / "source") as source,
        make_cluster(target_kind, folder / "target") as target,
        Toxiproxy(folder / "toxiproxy") as toxiproxy,
        WarmCommands() as commands,
    ):
        for seed in seeds:
            own = folder / f"seed-{seed}"
            run = LossRun(seed, pair, (source, target), toxiproxy, commands, own, two_ways=two_ways)
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (own / "result.txt").write_text(results[-1].line())
    return results


def run_fleet(pair: str, seeds: Sequence[int], length_s: float, folder: Path) -> list[FleetResult]:
    """Rounds on one fleet; behind one that failed its folder is kept, and a new fleet begins."""
    results: list[FleetResult] = []
    left = list(seeds)
    while left:
        own = folder / f"fleet-{left[0]}"
        with fleet_stage(pair, own) as stage:
            results += run_rounds(pair, left, length_s, stage, own)
        done = {result.seed for result in results}
        left = [seed for seed in left if seed not in done]
    return results


def run_replicated(
    seeds: Sequence[int], length_s: float, folder: Path, form: type[ReplicatedRun] = ReplicatedRun
) -> list[ContentResult]:
    """The same between two clusters of three of farshore's brokers."""
    results = []
    with two_trios(folder) as (east, west), Toxiproxy(folder / "toxiproxy") as toxiproxy, WarmCommands() as commands:
        for seed in seeds:
            own = folder / f"seed-{seed}"
            run = form(seed, THREES, east, west, toxiproxy, commands, own, length_s)
            results.append(asyncio.run(run.run()))
            print(results[-1].line(), flush=True)
            (own / "result.txt").write_text(results[-1].line())
            east.start_all()
            west.start_all()
    return results


def run_brokers(seeds: Sequence[int], length_s: float, mode: Mode, folder: Path) -> list[BrokersResult]:
    """The seeds one after the other on one cluster of three; after one that failed its folder is kept, and a new
    cluster begins.
    """
    results: list[BrokersResult] = []
    left = list(seeds)
    while left:
        try:
            with BrokersStage(folder / f"cluster-{left[0]}") as stage:
                while left:
                    seed = left.pop(0)
                    results.append(BrokersRun(seed, stage, folder / f"seed-{seed}", length_s, mode).run())
                    print(results[-1].line(), flush=True)
                    if not results[-1].is_good:
                        break
        except ServerFailed as failed:
            # Of that seed alone: the next ones have servers of their own.
            results.append(BrokersResult(left.pop(0), problems=[f"the cluster did not start: {failed}"]))
            print(results[-1].line(), flush=True)
    return results
