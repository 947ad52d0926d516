"""`farshore mirror`: the service that mirrors."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import chain

import click

from broker.base.clock import SystemClock
from broker.wire.buffers import keep_freed_memory
from deploy.cli.mirror_file import FollowedFile, replace_links, stamp_of
from deploy.cli.terminal import AppContext, run_async
from mirror.coordinator.current import Current
from mirror.fleet.keys import WorkerRecord
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetAccess
from mirror.worker.events import lines_of
from mirror.worker.limits import WorkerLimits
from mirror.worker.service import run_declared, run_links
from mirror.worker.startup import worker_name


@click.group("mirror")
def mirror_group() -> None:
    """The mirror: run."""


@mirror_group.command("run")
@click.option("--link", "link_names", metavar="LINK", multiple=True, help="Only this link; may be given again.")
@click.option("--worker", metavar="NAME", help="In a fleet: this worker's name (default: HOST:PID).")
@click.option(
    "--weight",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="In a fleet: 2 takes twice the load.",
)
@click.option(
    "--near",
    metavar="SITE[/RACK]",
    multiple=True,
    help="In a fleet: links to this site run here rather than elsewhere, and first of all those to this rack of it.",
)
@click.option("--max-links", type=click.IntRange(1), metavar="NUMBER", help="In a fleet: run no more links than this.")
@click.pass_obj
def run_command(
    context: AppContext,
    link_names: tuple[str, ...],
    worker: str | None,
    weight: float | None,
    near: tuple[str, ...],
    max_links: int | None,
) -> None:
    """Mirror until stopped (SIGTERM, Ctrl-C): all links of farshore.toml, or those named.

    With a [fleet] table in the file, any number of these share the links: each link is run by one of them, and by
    another when that one is gone; what changes in the file is taken while they run.
    """
    stamp = stamp_of(context.file)
    links = tuple(context.link(name) for name in dict.fromkeys(link_names)) or context.links()
    if not links:
        raise click.UsageError("there is no link in farshore.toml: add a [[links]] table")
    fleet = context.fleet()
    if fleet is None and any(option is not None for option in (worker, weight, max_links, near or None)):
        text = "there is no [fleet] table in farshore.toml: leave out --worker, --weight, --near and --max-links"
        raise click.UsageError(text)
    keep_freed_memory(WorkerLimits().in_flight_max_bytes)
    if fleet is None:
        run_async(run_links(links), service=True)
        return
    for place in near:
        site, slash, rack = place.partition("/")
        context.site(site)
        if slash and not rack:
            raise click.UsageError(f"--near {place} names no rack: write {site}, or {site}/RACK")
    by_name = {link.name: link for link in links}
    blank = WorkerRecord(
        links={},
        weight=weight or 1.0,
        near=places_of(near),
        max_links=max_links,
        since_ms=SystemClock().now_ms(),
        prepares=True,
    )
    offer = replace_links(blank, by_name, stamp.at_ms if stamp is not None else 0)
    followed = FollowedFile(context, link_names, Current(by_name), Current(offer), stamp)
    run_async(_run_in_fleet(followed, fleet, worker or worker_name()), service=True)


def places_of(near: Sequence[str]) -> tuple[str, ...]:
    """Who is near a rack of a site, SITE/RACK, is near the site."""
    return tuple(dict.fromkeys(chain.from_iterable((place.partition("/")[0], place) for place in near)))


async def _run_in_fleet(followed: FollowedFile, fleet: FleetAccess, name: str) -> None:
    from mirror.fleet.etcd.store import open_etcd

    clock = SystemClock()
    tell = lines_of(sys.stderr, clock, worker=name)
    async with open_etcd(fleet, clock) as store, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(followed.follow(clock, tell))
        coordinator = FleetCoordinator(store, name, followed.offer, clock, tell, fleet.settings)
        running = tasks.create_task(run_declared(followed.links, coordinator=coordinator))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:  # by a signal: the next one is not waited for
            following.cancel()
            coordinator.stopping.set()
            await asyncio.wait([running])
            raise
        finally:
            following.cancel()
