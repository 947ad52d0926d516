"""`farshore fleet`: the workers that share the links of one file through etcd."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import click

from broker.base.clock import SystemClock
from broker.base.durations import human_seconds
from deploy.cli.parameters import Duration
from deploy.cli.terminal import (
    AppContext,
    CommandRefused,
    ExitCode,
    Output,
    confirm_plan,
    dry_run_option,
    emit,
    output_option,
    run_async,
    yes_option,
)
from mirror.coordinator.model import Unit, units_of
from mirror.fleet.advice import CutAdvice, advise_cuts
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.keys import FleetKeys
from mirror.fleet.leading import units_of as offered_units
from mirror.fleet.leading import workers_of
from mirror.fleet.status import Move, fleet_status, in_between, moves_of
from mirror.fleet.store import ABSENT, Commit, FleetStore, Put
from mirror.fleet.view import FleetView

T = TypeVar("T")

POLL_S: Final = 0.2
STUCK_S: Final = 15.0
"""So long nothing of what is to move does, where it is stuck."""
TAKERS_MAX: Final = 100
"""So many workers that are to take over are held to it; etcd compares no more than 128 keys."""
DRAIN_TRIES: Final = 5
WORKER_COLUMNS = (
    *("worker", "lives", "leads", "drained", "links_held", "weight", "near"),
    *("cpu_cores", "bytes_per_second", "lag_offsets", "started_at"),
)
LINK_COLUMNS = ("link", "state", "worker", "holder", "bytes_per_second", "records_per_second", "lag_offsets")
MOVE_COLUMNS = ("link", "holder", "to", "why")

worker_argument = click.argument("worker")
timeout_option = click.option(
    "--timeout",
    "timeout_ms",
    type=Duration(1),
    default="60s",
    show_default=True,
    help="How long to wait until it is done.",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet, looked at from outside."""

    store: FleetStore
    keys: FleetKeys

    async def look(self) -> FleetView:
        return FleetView(self.keys, await self.store.read(self.keys.prefix))

    async def read(self) -> tuple[FleetKeys, FleetView]:
        return self.keys, await self.look()

    async def wait_until(self, done: Callable[[FleetView], bool], timeout_ms: int) -> bool:
        """Look until it is, or the time is over."""
        clock = SystemClock()
        until = clock.monotonic() + timeout_ms / 1000
        while not done(await self.look()):
            if clock.monotonic() >= until:
                return False
            await clock.sleep(POLL_S)
        return True


@click.group("fleet")
def fleet_group() -> None:
    """The fleet: status, plan, drain, undrain, rebalance."""


@fleet_group.command("status")
@output_option
@click.pass_obj
def status_command(context: AppContext, output: str) -> None:
    """Show the workers, who runs which link, and what needs a decision. Exit code 4 when something does."""
    view, stuck = _in_fleet(context, _look_twice)
    status = fleet_status(view, [unit for link in context.links() for unit in units_of(link)], stuck)
    if output == Output.TABLE:
        emit(list(status.workers), output, columns=WORKER_COLUMNS, title="workers")
        emit(list(status.links), output, columns=LINK_COLUMNS, title="links")
        for finding in status.findings:
            click.echo(f"finding: {finding}")
    else:
        emit(status, output)
    raise SystemExit(ExitCode.FINDINGS if status.findings else ExitCode.DONE)


@fleet_group.command("plan")
@click.option("--without", metavar="WORKER", help="As if this worker were drained.")
@click.option("--rebalance", is_flag=True, help="As `fleet rebalance` would share the links out.")
@output_option
@click.pass_obj
def plan_command(context: AppContext, without: str | None, rebalance: bool, output: str) -> None:
    """Show which links would move if the load were balanced now, and why; nothing is changed."""
    keys, view = _look(context)
    if without is not None:
        _known(view, without)
    _show_moves(moves_of(keys, view, drain=without, rebalance=rebalance), output)
    drained = view.drained | ({without} if without is not None else set())
    for advice in advise_cuts(workers_of(view, drained), offered_units(view, ())):
        click.echo(_in_words(advice), err=True)


@fleet_group.command("drain")
@worker_argument
@click.option("--even-if-links-stop", is_flag=True, help="Also where no other worker can run what it runs.")
@dry_run_option("what would move")
@timeout_option
@yes_option
@click.pass_obj
def drain_command(
    context: AppContext, worker: str, even_if_links_stop: bool, dry_run: bool, timeout_ms: int, yes: bool
) -> None:
    """Move everything away from a worker, and give it nothing until it is undrained. Returns when it runs nothing."""
    keys, view = _look(context)
    _known(view, worker)
    moves = moves_of(keys, view, drain=worker)
    if not even_if_links_stop and not dry_run:
        _refuse_stops(moves)
    if not _consented(moves, dry_run, yes, f"Drain {worker}?"):
        return

    def is_empty(view: FleetView) -> bool:
        runs = {holder.worker for holder in view.held.values()}
        return worker not in runs and worker not in view.planned.values()

    async def drain_and_wait(fleet: Fleet) -> bool:
        await drain_worker(fleet, worker, even_if_links_stop=even_if_links_stop)
        return await fleet.wait_until(is_empty, timeout_ms)

    _finish(_in_fleet(context, drain_and_wait), timeout_ms, f"{worker} to run nothing")
    click.echo(f"{worker} is drained; to use it again: farshore fleet undrain {worker}", err=True)
    if worker.rpartition(":")[2].isdecimal():
        text = "its name has its process id in it: started anew it has another one, and is not drained"
        click.echo(f"{text}; farshore mirror run --worker NAME keeps one", err=True)


async def drain_worker(fleet: Fleet, worker: str, *, even_if_links_stop: bool) -> None:
    """Only while nobody else drained meanwhile, and those that are to take over live: two at once might stop a link."""
    keys = fleet.keys
    for _ in range(DRAIN_TRIES):
        snapshot = await fleet.store.read(keys.prefix)
        view = FleetView(keys, snapshot)
        moves = moves_of(keys, view, drain=worker)
        if not even_if_links_stop:
            _refuse_stops(moves)
        takers = sorted({move.to for move in moves if move.to in view.workers})[:TAKERS_MAX]
        held_to = {keys.worker(name): view.workers[name].joined for name in takers}
        last = snapshot.items.get(keys.last_drain)
        if last is None:
            held_to[keys.last_drain] = ABSENT
        puts = {keys.drained(worker): Put(""), keys.last_drain: Put(f"{worker} behind {view.revision}")}
        values = {} if last is None else {keys.last_drain: last.value}
        if await fleet.store.commit(Commit(held_to, puts, values)) is not None:
            return
    raise CommandRefused("the fleet's workers come and go", "see: farshore fleet status", ExitCode.REFUSED)


def _refuse_stops(moves: Iterable[Move]) -> None:
    if stops := [move.link for move in moves if move.to is None]:
        text = f"nobody else can run {', '.join(stops)}"
        hint = "start another worker first, or let them stop: --even-if-links-stop"
        raise CommandRefused(text, hint, ExitCode.REFUSED)


@fleet_group.command("undrain")
@worker_argument
@dry_run_option("what would move")
@yes_option
@click.pass_obj
def undrain_command(context: AppContext, worker: str, dry_run: bool, yes: bool) -> None:
    """Let a drained worker have links again; they come some seconds later."""
    keys, view = _look(context)
    if worker not in view.drained:
        drained = ", ".join(sorted(view.drained)) or "none"
        code = ExitCode.ERROR if worker in view.workers else ExitCode.USAGE
        raise CommandRefused(f"{worker} is not drained; drained are: {drained}", "see: farshore fleet status", code)
    if not _consented(moves_of(keys, view, undrain=worker), dry_run, yes, f"Give links to {worker} again?"):
        return
    _change(context, Commit({}, {keys.drained(worker): None}), lambda view: worker not in view.drained, 60_000, "")


@fleet_group.command("rebalance")
@dry_run_option("what would move")
@timeout_option
@yes_option
@click.pass_obj
def rebalance_command(context: AppContext, dry_run: bool, timeout_ms: int, yes: bool) -> None:
    """Share the load out anew, as evenly as it goes, whatever small difference would be left alone otherwise."""
    keys, view = _look(context)
    if not view.workers:
        raise CommandRefused("no worker lives: there is nobody to share anything with", "run: farshore mirror run")
    moves = moves_of(keys, view, rebalance=True)
    if not _consented(moves, dry_run or not moves, yes, "Move these?"):
        return

    def is_done(view: FleetView) -> bool:
        held = {unit: holder.worker for unit, holder in view.held.items()}
        return view.rebalance is None and held == view.planned

    commit = Commit({keys.rebalance: ABSENT}, {keys.rebalance: Put("")})
    _change(context, commit, is_done, timeout_ms, "every link to be where it is to run")


async def _look_twice(fleet: Fleet) -> tuple[FleetView, frozenset[tuple[Unit, str, int]]]:
    """The fleet, and what was to move where nothing of that did for all of STUCK_S."""
    view = await fleet.look()
    before, clock = in_between(view), SystemClock()
    until = clock.monotonic() + STUCK_S
    while before and clock.monotonic() < until:
        await clock.sleep(POLL_S)
        view = await fleet.look()
        if before - in_between(view):
            return view, frozenset()
    return view, before


def _in_fleet(context: AppContext, look: Callable[[Fleet], Awaitable[T]]) -> T:
    """Ask or do something at the fleet's etcd. Raises click.UsageError where the file has no fleet."""
    access = context.fleet()
    if access is None:
        raise click.UsageError("there is no [fleet] table in farshore.toml: add one with `etcd`")

    async def with_store() -> T:
        async with open_etcd(access, SystemClock()) as store:
            return await look(Fleet(store, FleetKeys(access.settings.prefix)))

    return run_async(with_store())


def _look(context: AppContext) -> tuple[FleetKeys, FleetView]:
    return _in_fleet(context, lambda fleet: fleet.read())


def _change(context: AppContext, commit: Commit, done: Callable[[FleetView], bool], timeout_ms: int, what: str) -> None:
    """Write it, and wait until the fleet has done it. Exit code 4 where that takes too long."""

    async def write_and_wait(fleet: Fleet) -> bool:
        await fleet.store.commit(commit)
        return await fleet.wait_until(done, timeout_ms)

    _finish(_in_fleet(context, write_and_wait), timeout_ms, what)


def _finish(is_done: bool, timeout_ms: int, what: str) -> None:
    if not is_done:
        text = f"waited {human_seconds(timeout_ms / 1000)} for {what}; the fleet was told, and may still do it"
        raise CommandRefused(text, "see: farshore fleet status", ExitCode.FINDINGS)


def _known(view: FleetView, worker: str) -> None:
    if worker not in view.workers:
        known = ", ".join(sorted(view.workers)) or "none"
        text = f"the fleet has no worker {worker}; its workers: {known}"
        raise CommandRefused(text, "see: farshore fleet status", ExitCode.USAGE)


def _in_words(advice: CutAdvice) -> str:
    text = f"{advice.unit} keeps {advice.load:.2f} of a core busy, where a worker's part is {advice.share:.2f}"
    if advice.units is None:
        return f"{text}; a partition of it is hot, and could have a unit of its own: farshore link cut, with --pin"
    cut = f"farshore link cut --link {advice.unit.link} --units {advice.units}"
    return f"{text}; if it has as many partitions it could be cut: {cut}"


def _show_moves(moves: list[Move], output: str) -> None:
    if not moves and output == Output.TABLE:
        click.echo("nothing moves", err=True)
        return
    emit(moves, output, columns=MOVE_COLUMNS)


def _consented(moves: list[Move], dry_run: bool, yes: bool, question: str) -> bool:
    """Show the moves; False where that was all that was asked for. Raises CommandRefused where the answer is no."""
    if dry_run:
        _show_moves(moves, Output.TABLE)
        return False
    confirm_plan(moves or "nothing moves", yes, question=question, columns=MOVE_COLUMNS)
    return True
