"""Running links: a session after the other for each, with a growing pause where something fails."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeAlias

from broker.base.address import AddressInvalid
from broker.base.clock import Clock, SystemClock
from broker.base.errors import FarshoreError
from broker.base.garbage import without_looks
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, SiteInvalid
from broker.client.fanout import both
from broker.wire.errors import WireError
from mirror.coordinator.current import Current
from mirror.coordinator.embedded import EmbeddedCoordinator, Unconditional
from mirror.coordinator.model import Coordinator, Member, Meter, Permit, Unit, UnitNotHeld, units_of
from mirror.coordinator.serving import serve_shares
from mirror.errors import LinkFenced, LinkInvalid, LinkPaused, LinkPromoted, MirrorError, StateDamaged
from mirror.link import Link
from mirror.offsets.entries import RunState
from mirror.offsets.state import StateReader
from mirror.offsets.taking_over import is_successor, is_told
from mirror.worker.acls import run_acls
from mirror.worker.ahead import Ahead, prepare, refuse_stopped
from mirror.worker.events import Event, EventSink, line_sink, tell_gap, tell_hold, tell_passed
from mirror.worker.fetching import run_fetcher
from mirror.worker.holds import Attempts, Holds
from mirror.worker.latecomers import run_latecomers
from mirror.worker.limits import WorkerLimits
from mirror.worker.observing import Observer
from mirror.worker.origins import Passage
from mirror.worker.producing import run_producer
from mirror.worker.returning import run_returns
from mirror.worker.session import Session
from mirror.worker.startup import Opened, Restarts, open_link
from mirror.worker.waiting import wait_for_source
from mirror.worker.watching import SessionOutdated, run_checkpoints, run_configs, run_groups, run_heartbeat, run_topics

FINAL_ERRORS = (LinkFenced, LinkInvalid, SiteInvalid, AddressInvalid, LinkPromoted, LinkPaused, StateDamaged)
"""After these, only a person can let the link run again."""
SessionEnd: TypeAlias = FarshoreError | SessionOutdated
SESSION_ENDS = (MirrorError, ClientError, AddressInvalid, WireError, SessionOutdated)
"""What a session may end with; a WireError is records that cannot be read, and so a doubt like a lost connection."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker needs besides its links; the defaults are those of `farshore mirror run`."""

    limits: WorkerLimits = field(default_factory=WorkerLimits)
    clock: Clock = field(default_factory=SystemClock)
    events: Callable[[str], EventSink] | None = None
    """Makes the event sink of a link by its name; None: lines on stderr."""

    def sink(self, link: str) -> EventSink:
        return self.events(link) if self.events else line_sink(sys.stderr, self.clock, link)


async def run_links(
    links: Iterable[Link], settings: WorkerSettings | None = None, coordinator: Coordinator | None = None
) -> None:
    """Run the links that the coordinator assigns to this worker, until cancelled.

    A link that ends for good does not end the others. When none is left, raises the first error (FarshoreError).
    """
    await run_declared(Current({link.name: link for link in links}), settings, coordinator)


async def run_declared(
    declared: Current[Mapping[str, Link]],
    settings: WorkerSettings | None = None,
    coordinator: Coordinator | None = None,
) -> None:
    """As `run_links`, of links by their names that may be declared anew: one that is begins a new session, no other.

    One that is declared with fewer topics, and as it was else, goes on without them.
    """
    settings = settings or WorkerSettings()
    coordinator = coordinator or EmbeddedCoordinator(chain.from_iterable(map(units_of, declared.value.values())))
    ended: list[Exception] = []
    faults: list[Exception] = []

    async with coordinator.member() as member:

        async def run_unit(unit: Unit) -> None:
            sink = settings.sink(str(unit))
            while True:
                error = await _run_while_declared(declared, unit, settings, member)
                if error is None:
                    sink(Event.RENEWED, reason="the file says something else of the link")
                    continue
                if isinstance(error, FarshoreError):
                    sink(Event.STOPPED, reason=type(error).__name__, detail=str(error), hint=error.hint)
                else:
                    sink(Event.STOPPED, reason=type(error).__name__, detail="".join(traceback.format_exception(error)))
                if not await member.goes_on_after(unit, error):
                    (ended if isinstance(error, FarshoreError) else faults).append(error)
                    return

        await serve_shares(member, run_unit)
    if faults:
        raise faults[0]
    if ended:
        raise ended[0]


async def _run_while_declared(
    declared: Current[Mapping[str, Link]], unit: Unit, settings: WorkerSettings, member: Member
) -> Exception | None:
    """Run a unit until it ends -> the error; None: its file says something that no session can take."""
    await declared.until(lambda links: unit.of(links.get(unit.link)) is not None)
    own = unit.of(declared.value[unit.link])
    assert own is not None, "nothing is declared between two awaits"
    current = Current(own)

    async def run() -> Exception | None:
        try:
            await run_link(current, settings, member.permit(unit), member.meter(unit))
        except Exception as error:  # noqa: BLE001 a fault of ours in one link must not end the others; raised when all ended
            return error
        finally:
            looking.cancel()
        return None

    async def look() -> None:
        while True:
            await declared.until(lambda links: unit.of(links.get(unit.link)) != current.value)
            now = unit.of(declared.value.get(unit.link))
            if now is None or not now.is_narrower(current.value):
                running.cancel()
                return
            current.replace(now)

    async with asyncio.TaskGroup() as tasks:
        running, looking = tasks.create_task(run()), tasks.create_task(look())
    return None if running.cancelled() else running.result()


async def run_link(
    declared: Current[Link], settings: WorkerSettings, permit: Permit | None = None, meter: Meter | None = None
) -> None:
    """Run one link, or one unit of it, until another worker fences it (raises LinkFenced), its state is damaged, or it
    is cancelled. It may be declared narrower meanwhile, and nothing else.

    No session begins without the `permit` (None: of who is alone); all of them count with the `meter`.

    While the target is promoted, or the link paused, it waits: a service that ended then would be restarted in a loop
    by its supervisor, and would be gone when an operator resumes the link. Of a paused one it goes on seeing where the
    source's logs end, which a failover may need.
    """
    link = declared.value
    tell = settings.sink(link.unit_name)
    interval_ms = settings.limits.observe_interval_ms if link.is_lead_unit else 0
    observer = Observer(declared, interval_ms, settings.clock, tell)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(observer.run())
        place = _Place(permit or Unconditional(), meter or Meter(), observer.owns)
        sessions = tasks.create_task(_run_sessions(declared, settings, tell, place))
        # Where all is cancelled it is already, and a second time would cut short how it closes its connections.
        sessions.add_done_callback(lambda done: None if done.cancelled() else looking.cancel())
    raise sessions.result()


@dataclass(slots=True)
class _Place:
    """What all sessions of a link share here. `owns` is set while the link's source is this worker's to look at: the
    link is its own to mirror, or would be if it were not paused. `opened_s`: when the newest session was opened, None
    where it was not.
    """

    permit: Permit
    meter: Meter
    owns: asyncio.Event
    opened_s: float | None = None


async def _run_sessions(declared: Current[Link], settings: WorkerSettings, tell: EventSink, place: _Place) -> Exception:
    """One after the other -> why there is none any more."""
    try:
        await _sessions(declared, settings, tell, place)
    except Exception as error:  # noqa: BLE001 a task group would raise it as a part of a group
        return error
    raise AssertionError("sessions end only by an error")


async def _sessions(declared: Current[Link], settings: WorkerSettings, tell: EventSink, place: _Place) -> None:
    """Raises what `run_link` raises."""
    link, limits, clock = declared.value, settings.limits, settings.clock
    fresh = limits.restart_backoff_ms, Restarts(), limits.fence_reason_wait_ms
    pause_ms, restarts, fence_wait_ms = fresh
    attempts = Attempts(limits, clock)
    while True:
        await place.permit.begin()
        place.opened_s = None
        # In a task of its own: when a session that is ending by itself is stopped, its task group raises only its own
        # errors, and in Python 3.11 it leaves `cancelling()` raised without any stop. This group raises the stop.
        async with asyncio.TaskGroup() as tasks:
            session = tasks.create_task(_run_session(declared, settings, tell, restarts, attempts, place))
        error = session.result()
        lived_ms = None if place.opened_s is None else round(1000 * (clock.monotonic() - place.opened_s))
        if has_lasted := lived_ms is not None and lived_ms > limits.healthy_after_ms:
            pause_ms, restarts, fence_wait_ms = fresh
        if isinstance(error, LinkFenced):
            error = await _reason_of_fence(link, error, settings, fence_wait_ms)
            fence_wait_ms = min(2 * fence_wait_ms, limits.fence_reason_wait_max_ms)
        if isinstance(error, (LinkPromoted, LinkPaused)):
            place.meter.ended(failed=False)
            place.meter.failed_sessions = 0  # the state that says so was read
            tell(Event.PAUSED, reason=str(error), hint=error.hint)
            stopped = RunState.PAUSED if isinstance(error, LinkPaused) else RunState.PROMOTED
            await _until_resumed(link, settings, place, stopped)
            pause_ms, restarts, fence_wait_ms = fresh  # what ended those before is long over
            continue
        if isinstance(error, FINAL_ERRORS):
            raise error
        if isinstance(error, SessionOutdated):
            place.meter.ended(failed=False)
            tell(Event.RENEWED, reason=str(error))
            continue
        place.meter.ended(failed=not isinstance(error, UnitNotHeld))
        restarts = restarts.after(error, None if has_lasted else lived_ms)
        tell(Event.RESTARTING, error=type(error).__name__, detail=str(error), pause_ms=pause_ms)
        await clock.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, limits.restart_backoff_max_ms)


async def _run_session(
    declared: Current[Link],
    settings: WorkerSettings,
    tell: EventSink,
    restarts: Restarts,
    attempts: Attempts,
    place: _Place,
) -> SessionEnd:
    """One session -> why it ended. Anything but SESSION_ENDS is a fault of ours, and raised."""
    link = declared.value
    try:
        async with AsyncExitStack() as sites:
            source, target = (
                Cluster(site, client_id=f"farshore-{link.name}", clock=settings.clock)
                for site in (link.source, link.target)
            )
            if restarts.count:
                await sites.enter_async_context(target)
                await wait_for_source(link, target, restarts, settings.limits.heartbeat_interval_ms, place.permit)
                await sites.enter_async_context(source)
            else:
                await both(sites.enter_async_context(target), sites.enter_async_context(source))
            passage = Passage(link, source, target)
            holds, patience_ms = Holds(attempts, settings.clock), settings.limits.compare_patience_ms
            ahead = Ahead(StateReader(link))
            if not place.permit.is_given:
                await _prepare(link, (source, target), passage, ahead)
                await place.permit.wait(is_prepared=ahead.topics is not None)
            beat_ms = settings.limits.heartbeat_interval_ms
            with without_looks():
                opened = await open_link(
                    link, source, target, passage, tell, restarts, holds, patience_ms, place.permit, ahead, beat_ms
                )
            place.owns.set()
            place.meter.opened()
            place.opened_s = settings.clock.monotonic()
            session = Session(passage, (source, target), opened, settings.limits, tell, place.meter)
            session.outlived_after_ms = restarts.outlived_after_ms(settings.limits)
            _tell_start(session, opened)
            for gap in opened.passed:
                tell_passed(tell, gap)
            await _run_tasks(session, declared)
    except SESSION_ENDS as error:
        return error
    except BaseExceptionGroup as group:
        return _reason(group)
    raise AssertionError("a session ends only by an error")


async def _prepare(link: Link, clusters: tuple[Cluster, Cluster], passage: Passage, ahead: Ahead) -> None:
    """What keeps a link from being prepared the opening meets in its turn, and says why."""
    with suppress(FarshoreError):
        await prepare(link, clusters, passage, ahead)


async def _run_tasks(session: Session, declared: Current[Link]) -> None:
    await session.begin(session.replicators.values())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.state_writer.run())
        tasks.create_task(session.produced.run(partial(run_producer, session)))
        tasks.create_task(session.fetched.run(partial(run_fetcher, session)))
        tasks.create_task(run_latecomers(session))
        tasks.create_task(run_checkpoints(session))
        tasks.create_task(run_heartbeat(session))
        if session.link.is_lead_unit:
            tasks.create_task(run_configs(session))
            if session.link.sync_acls:
                tasks.create_task(run_acls(session))
        tasks.create_task(run_topics(session, declared))
        tasks.create_task(run_returns(session))
        if session.link.is_lead_unit:
            tasks.create_task(run_groups(session))


def _tell_start(session: Session, opened: Opened) -> None:
    session.tell_topics(opened.topics)
    stopped = [replicator.gap for replicator in session.replicators.values() if replicator.gap is not None]
    stopped += opened.deleted
    for gap in stopped:
        tell_gap(session.tell, session.link.name, gap)
    for hold in session.holds.current.values():
        tell_hold(session.tell, hold)
    session.tell(
        Event.STARTED,
        source=session.link.source.name,
        target=session.link.target.name,
        partitions=len(session.replicators),
        stopped=len(stopped),
        held=len(session.holds.current),
    )


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _reason(group: BaseExceptionGroup[BaseException]) -> SessionEnd:
    """The error that decides, of several at once: final ones before passing ones. Raises the group for our faults."""
    leaves = list(_leaves(group))
    known = [error for error in leaves if isinstance(error, SESSION_ENDS)]
    if len(known) < len(leaves):
        raise group
    final = [error for error in known if isinstance(error, FINAL_ERRORS)]
    doubts = [error for error in known if not isinstance(error, SessionOutdated)]
    return (final or doubts or known)[0]


async def _reason_of_fence(link: Link, fenced: LinkFenced, settings: WorkerSettings, wait_ms: int) -> SessionEnd:
    """A successor that is a worker: stop. A promotion: wait. An operator's command, or nobody: start anew.

    Who fences says so in the link's state as the first entry behind the fence. Where there is none for `wait_ms`, a
    command was cut short there, and a worker that ended for it would leave the link without one.
    """
    clock, limits = settings.clock, settings.limits
    deadline, reader = clock.monotonic() + wait_ms / 1000, StateReader(link)
    try:
        async with Cluster(link.target, client_id=f"farshore-{link.name}", clock=clock) as target:
            entries = await reader.read(target)
            known = fenced.writer or (entries.owner.writer if entries.owner else None)
            while not is_told(entries.owner, entries.run, known) and clock.monotonic() < deadline:
                await clock.sleep(limits.fence_reason_poll_ms / 1000)
                entries = await reader.read(target)
        refuse_stopped(entries)
    except FarshoreError as error:
        return error
    owner = entries.owner
    if owner is None or not is_successor(owner, known):
        return SessionOutdated("the link was fenced, and nobody has taken it over")
    return fenced if owner.is_worker else SessionOutdated(f"{owner.worker} took the link over, and left it to go on")


async def _until_resumed(link: Link, settings: WorkerSettings, place: _Place, stopped: RunState) -> None:
    """Return when the link's state says neither that its target is promoted nor that it is paused: as which it is
    `stopped` now.
    """
    reader = StateReader(link)
    while True:
        if stopped is RunState.PROMOTED:
            place.owns.clear()  # what is stated of the source since then is the operation's
        elif place.permit.is_given:  # one that was here before stays: who is cut off from the fleet mirrors on as well
            place.owns.set()
        await settings.clock.sleep(settings.limits.paused_poll_ms / 1000)
        with suppress(ClientError):
            async with Cluster(link.target, client_id=f"farshore-{link.name}", clock=settings.clock) as target:
                entries = await reader.read(target)
            if entries.run is None or entries.run.state is RunState.RUNNING:
                return
            stopped = entries.run.state
