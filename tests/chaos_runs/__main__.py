"""`python -m tests.chaos_runs KIND`: seeded runs of clusters of that kind, and a table; `--help` has the kinds."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import click

from broker.base.children import die_with_parent
from broker.base.percentile import percentile
from tests.chaos_runs.brokers_runs import BrokersResult, Mode
from tests.chaos_runs.circles import CIRCLES
from tests.chaos_runs.clusters import CONTENT_PAIRS, FLEET_PAIRS, LOSS_PAIRS, PAIRS, RING
from tests.chaos_runs.content_runs import ContentResult
from tests.chaos_runs.fleet_faults import FAULTS
from tests.chaos_runs.fleet_runs import FleetResult
from tests.chaos_runs.loss_runs import LossResult, totals
from tests.chaos_runs.moments import HandsResult, result_from, table
from tests.chaos_runs.runner import (
    ALL_ACTIONS,
    COMMANDS_OF_THREES,
    RESULT_FILE,
    run_brokers,
    run_circle,
    run_content,
    run_fleet,
    run_hands,
    run_losses,
    run_replicated,
    shares,
)

SEEDS_OF_A_PROCESS = 5
ROUNDS_OF_A_FLEET = 9


class Seeds(click.ParamType[tuple[int, ...]]):
    """`COUNT` for the seeds 1 to COUNT, `FROM:COUNT`, or a list `3,17,20`."""

    name = "seeds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        first, colon, count = str(value).partition(":")
        try:
            if colon:
                return tuple(range(int(first), int(first) + int(count)))
            numbers = tuple(int(number) for number in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not COUNT, FROM:COUNT or N,N,...", param, ctx)
        return numbers if len(numbers) > 1 else tuple(range(1, numbers[0] + 1))


@click.group()
def main() -> None:
    """Long seeded runs against real clusters."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@main.command()
@click.option("--seeds", type=Seeds(), default="4", show_default=True, help="COUNT, FROM:COUNT or N,N,...")
@click.option("--pair", "pairs", multiple=True, type=click.Choice(CONTENT_PAIRS), help="Only this pair of clusters.")
@click.option("--length", "length_s", default=60.0, show_default=True, metavar="SECONDS", help="Of each run.")
@click.option("--jobs", default=1, show_default=True, help="Pairs of clusters at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def content(seeds: tuple[int, ...], pairs: tuple[str, ...], length_s: float, jobs: int, keep: Path | None) -> None:
    """Every record compared after kills, pauses and latency. A seed belongs to one pair, in turn."""
    pairs = pairs or CONTENT_PAIRS
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    results: list[ContentResult] = []
    with ProcessPoolExecutor(jobs, initializer=die_with_parent) as pool:
        runs = [pool.submit(run_content, pair, share, length_s, folder / pair) for pair, share in shares(seeds, pairs)]
        for done in as_completed(runs):
            results += done.result()
    for pair in pairs:
        of_pair = [result for result in results if result.pair == pair]
        click.echo(summary(pair, of_pair))
    click.echo(summary("all", results))
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command()
@click.option("--seeds", type=Seeds(), default="4", show_default=True, help="COUNT, FROM:COUNT or N,N,...")
@click.option("--length", "length_s", default=20.0, show_default=True, metavar="SECONDS", help="Of each run's faults.")
@click.option("--jobs", default=1, show_default=True, help="Clusters at the same time.")
@click.option(
    "--acks", type=click.Choice(["all", "1"]), default="all", show_default=True, help="With 1 records are lost."
)
@click.option("--unclean", is_flag=True, help="min.insync.replicas 1 and unclean leader election: records are lost.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def brokers(seeds: tuple[int, ...], length_s: float, jobs: int, acks: str, unclean: bool, keep: Path | None) -> None:
    """Three brokers under faults of processes, network, ZooKeeper and disks; what clients saw is judged."""
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    if os.geteuid() != 0:
        click.echo("disks are not filled: only root may mount small ones", err=True)
    mode = Mode(acks_all=acks == "all", unclean=unclean)
    results: list[BrokersResult] = []
    # Clients that hang, or do not end, stay in their process, and starve those of later seeds.
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=die_with_parent, max_tasks_per_child=1) as pool:
        parts = [seeds[at : at + SEEDS_OF_A_PROCESS] for at in range(0, len(seeds), SEEDS_OF_A_PROCESS)]
        runs = [pool.submit(run_brokers, part, length_s, mode, folder / str(n)) for n, part in enumerate(parts)]
        for done in as_completed(runs):
            results += done.result()
    click.echo(BrokersResult.total(results))
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command()
@click.option("--seeds", type=Seeds(), default="4", show_default=True, help="COUNT, FROM:COUNT or N,N,...")
@click.option("--pair", "pairs", multiple=True, type=click.Choice(list(PAIRS)), help="Only this pair of clusters.")
@click.option("--length", "length_s", default=6.0, show_default=True, metavar="SECONDS", help="Of each round's faults.")
@click.option("--jobs", default=1, show_default=True, help="Fleets, each with its clusters, at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def fleet(seeds: tuple[int, ...], pairs: tuple[str, ...], length_s: float, jobs: int, keep: Path | None) -> None:
    """Three workers on an etcd of three: killed, asleep past their leases, cut off, fenced in mid-produce, two that
    lead for a moment, here and in etcd; every record compared; how long takeovers take. A seed belongs to one pair, in
    turn.
    """
    pairs = pairs or FLEET_PAIRS
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    parts = [
        (pair, share[at : at + ROUNDS_OF_A_FLEET])
        for pair, share in shares(seeds, pairs)
        for at in range(0, len(share), ROUNDS_OF_A_FLEET)
    ]
    results: list[FleetResult] = []
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=die_with_parent, max_tasks_per_child=1) as pool:
        runs = [pool.submit(run_fleet, pair, part, length_s, folder / pair) for pair, part in parts]
        for done in as_completed(runs):
            results += done.result()
    for pair in pairs:
        click.echo(summary(pair, [result for result in results if result.pair == pair]))
    click.echo(summary("all", results))
    met = sum((Counter(result.faults) for result in results), Counter[str]())
    click.echo(", ".join(f"{name} {met[name]}" for name in FAULTS))
    waits = [wait for result in results for wait in result.takeovers_s]
    middle, late = (percentile(waits, share) or 0.0 for share in (0.5, 0.95))
    click.echo(f"{len(waits)} takeovers from kill -9 to the next record: p50 {middle:.2f} s, p95 {late:.2f} s")
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command()
@click.option("--seeds", type=Seeds(), default="4", show_default=True, help="COUNT, FROM:COUNT or N,N,...; of each.")
@click.option("--command", "names", multiple=True, type=click.Choice(list(COMMANDS_OF_THREES)), help="Only this one.")
@click.option("--length", "length_s", default=5.0, show_default=True, metavar="SECONDS", help="Of writing before it.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def commands(seeds: tuple[int, ...], names: tuple[str, ...], length_s: float, keep: Path | None) -> None:
    """Brokers of two clusters of three die while a command runs; what it says is held against both sites."""
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    results: list[ContentResult] = []
    for name in names or COMMANDS_OF_THREES:
        of_name = run_replicated(seeds, length_s, folder / name, COMMANDS_OF_THREES[name])
        click.echo(summary(name, of_name))
        results += of_name
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command()
@click.option("--seeds", type=Seeds(), default="1", show_default=True, help="COUNT, FROM:COUNT or N,N,...")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(CIRCLES)), help="Only this kind of circle.")
@click.option("--length", "length_s", default=60.0, show_default=True, metavar="SECONDS", help="Of each run.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def circles(seeds: tuple[int, ...], kinds: tuple[str, ...], length_s: float, keep: Path | None) -> None:
    """Writers at each site of a pair, a mesh and a ring; mirrors killed; each record once at every site."""
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    results = [result for kind in kinds or CIRCLES for result in run_circle(kind, seeds, length_s, folder / kind)]
    sys.exit(1 if any(result.problems for result in results) else 0)


@main.command()
@click.option(
    "--seeds", type=Seeds(), default="10", show_default=True, help="COUNT, FROM:COUNT or N,N,...; on each pair."
)
@click.option("--pair", "pairs", multiple=True, type=click.Choice(list(PAIRS)), help="Default: each kind at each side.")
@click.option(
    "--action", "actions", multiple=True, type=click.Choice(ALL_ACTIONS), help="Only this (default: by seed)."
)
@click.option("--jobs", default=1, show_default=True, help="Pairs of clusters at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def hands(
    seeds: tuple[int, ...], pairs: tuple[str, ...], actions: tuple[str, ...], jobs: int, keep: Path | None
) -> None:
    """Delete, recreate, cut, rename, refill, restore, at random moments; consent as printed; every record compared.

    Of 40 seeds in turn each action meets each kind of cluster twenty times and more.
    """
    pairs = pairs or RING
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    results: list[HandsResult] = []
    with ProcessPoolExecutor(jobs, initializer=die_with_parent) as pool:
        runs = [pool.submit(run_hands, pair, seeds, actions, folder / pair) for pair in pairs]
        for done in as_completed(runs):
            results += done.result()
    click.echo(table(results))
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command()
@click.option("--seeds", type=Seeds(), default="12", show_default=True, help="COUNT, FROM:COUNT or N,N,...")
@click.option("--pair", "pairs", multiple=True, type=click.Choice(LOSS_PAIRS), help="Default: each kind at each side.")
@click.option("--two-ways", is_flag=True, help="The other site is written to, too, and a link back runs.")
@click.option("--jobs", default=1, show_default=True, help="Pairs of clusters at the same time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where evidence is kept (default: a new folder).")
def losses(seeds: tuple[int, ...], pairs: tuple[str, ...], two_ways: bool, jobs: int, keep: Path | None) -> None:
    """Sites are lost amid writes; the loss that a failover states is held against the lost site's disk.

    Plain, transactional and compacted topics, some born late, partitions that grow; the mirror healthy, throttled,
    stalled or dead. A seed belongs to one pair, in turn; twelve in a row have each mirror on each pair. Of three
    brokers (threes-ours) one sleeps at the end, and a leader has records that nobody is shown.
    """
    pairs = pairs or RING
    folder = keep or Path(tempfile.mkdtemp(prefix="farshore-chaos-"))
    click.echo(f"evidence in {folder}", err=True)
    results: list[LossResult] = []
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=die_with_parent) as pool:
        runs = [
            pool.submit(run_losses, pair, share, folder / pair, two_ways=two_ways)
            for pair, share in shares(seeds, pairs)
        ]
        for done in as_completed(runs):
            results += done.result()
    click.echo(totals(results))
    sys.exit(0 if all(result.is_good for result in results) else 1)


@main.command("table")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True), required=True)
def table_command(folders: tuple[Path, ...]) -> None:
    """The table of all runs of hands that keep their evidence in these folders."""
    files = [file for folder in folders for file in folder.glob(f"**/{RESULT_FILE}")]
    click.echo(table(result_from(file.read_text()) for file in files))


def summary(name: str, results: Sequence[ContentResult]) -> str:
    def total(field: str) -> int:
        return sum(getattr(result, field) for result in results)

    faults = sum(sum(result.faults.values()) for result in results)
    return (
        f"{name:12} {len(results):3} seeds, {sum(not result.is_good for result in results)} failed; "
        f"{total('records')} records, {total('aborts')} aborts, {faults} faults; lost {total('lost')}, "
        f"twice {total('twice')}, extra {total('extra')}, reordered {total('reordered')}, gaps {total('gaps')}"
    )


if __name__ == "__main__":
    main()
