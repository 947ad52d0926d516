"""One seed: two sites, their writers, workers that are killed and started again, and the oracle at the end."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from deploy.topology import connect
from mirror.coordinator.model import Coordinator
from mirror.errors import LinkFenced
from mirror.link import Link
from mirror.offsets import map_ledger
from mirror.offsets.operations import resume_link
from mirror.offsets.pages import Page, pack_page
from mirror.offsets.state import LinkState
from mirror.worker.events import Event, EventSink
from mirror.worker.service import WorkerSettings, run_links
from tests.mirror.simulation.answers import SimulatedNode
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.disasters import Disaster, strike
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop
from tests.mirror.simulation.network import PROCESS, Network
from tests.mirror.simulation.oracle import LinkOracle, PartitionOracle
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.repairs import Operator
from tests.mirror.simulation.trace import Found, Trace
from tests.mirror.simulation.writing import SiteLife

PATIENCE_S = 600.0
"""Simulated time within which everything must be mirrored once the faults are over: all time-outs one after another."""
LOOK_EVERY_S = 0.5
ACCEPTED_AT_ONCE = 0.1
"""How often an operator accepts, between two actions of the others, what the link stands at."""
TOPICS = "(flights|quiet|later-.*)"
PAIR = (("east", "west"), ("west", "east"))


class World:
    """Made for one seed; `run` does all."""

    def __init__(self, seed: int, choose: Callable[[random.Random], Profile] = choose_profile) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.trace = Trace(self.loop.time)
        self.profile = choose(self.rng)
        self.network = Network(self.loop, self.rng, self.trace, self.profile.weather)
        self.counts: Counter[str] = Counter()
        names = {name: None for way in self.profile.ways or PAIR for name in way}
        self.sites = {name: self._site(name) for name in names}
        self.lives = {name: SiteLife(site, self.rng) for name, site in self.sites.items()}
        self.links = self._links()
        self.oracles = [LinkOracle(link, self.trace) for link in [*self.links, *self._detours()]]
        for name, site in self.sites.items():
            site.on_partition = partial(self._watch, name)
        self.operator = Operator(seed, self.clock, self.trace)
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._maimed: set[str] = set()
        self._kills_left = self.profile.kills
        self._faults = True
        self._judged = False

    def _site(self, name: str) -> SimulatedCluster:
        site = SimulatedCluster(name, self.loop, self.rng, self.trace, self.profile.node_count)
        site.fetches_by_id = self.profile.fetches_by_id
        for node_id in site.node_ids:
            self.network.nodes[site.address(node_id)] = SimulatedNode(site, node_id)
        return site

    def _detours(self) -> list[Link]:
        """Of each site's records the way to each other that no link goes directly, as if one did."""
        direct = {(link.source.name, link.target.name) for link in self.links} if self.profile.ways else set(PAIR)
        ways = [way for way in itertools.permutations(self.sites, 2) if way not in direct]
        ends = {name: Site(name, site.bootstrap) for name, site in self.sites.items()}
        return [Link(f"{a}-...-{b}", ends[a], ends[b], (TOPICS,)) for a, b in ways]

    def _links(self) -> list[Link]:
        if self.profile.ways:
            ends = {name: Site(name, site.bootstrap) for name, site in self.sites.items()}
            groups = ("group-.*",) if self.profile.groups else ()
            ways = self.profile.ways
            cut = partial(Link, topics=(TOPICS,), groups=groups, units=self.profile.units)
            return list(connect([cut(f"{a}-{b}", ends[a], ends[b]) for a, b in ways]))
        shared, groups = self.profile.shared, ("group-.*",) if self.profile.groups else ()
        east, west = (Site(name, site.bootstrap) for name, site in self.sites.items())

        def link(source: Site, target: Site, *backs: Link) -> Link:
            name = f"{source.name}-{target.name}"
            link = Link(name, source, target, (TOPICS,), groups=groups, shared_targets=shared, reverse_links=backs)
            return replace(link, units=self.profile.units)

        if not shared:
            return [link(east, west)]
        there, back = link(east, west), link(west, east)
        return [link(east, west, back), link(west, east, there)]

    def _watch(self, site: str, made: SimulatedPartition) -> None:
        """A partition was made somewhere: whoever judges it hears of every batch."""
        for oracle in self.oracles:
            link = oracle.link
            if link.target.name == site and made.where.topic == link.state_topic:
                made.watchers.append(oracle.watch_state)
            if link.target.name == site and link.source_topic(made.where.topic) is not None:
                made.watchers.append(self._oracle(oracle, made.where).see)
            if link.source.name == site and link.selects_topic(made.where.topic):
                self._oracle(oracle, made.where)

    def _oracle(self, oracle: LinkOracle, where: TopicPartition) -> PartitionOracle:
        found = oracle.partitions.get(where)
        if found is None:
            books = self.lives[oracle.link.source.name].books(where)
            found = oracle.partitions[where] = PartitionOracle(oracle.link, where, books, self.trace)
        return found

    # -- the course of a seed

    def run(self) -> None:
        """Raises Found (or whatever else should not have been raised)."""
        random.seed(self.seed)  # what spreads the client's retries
        with pytest.MonkeyPatch.context() as patch:
            if self.seed % 2:
                # No world lives long enough for a page of the map by the real limit.
                patch.setattr(map_ledger, "PACKED_BLOCKS_MIN", 1)
            patch.setattr(map_ledger, "pack_page", partial(self._packed, pack_page))
            self.loop.run(self._main())

    def _packed(self, pack: Callable[..., Page], *given: Any) -> Page:
        self.counts["pages"] += 1
        return pack(*given)

    async def _main(self) -> None:
        for name in {link.source.name: None for link in self.links}:
            life = self.lives[name]
            life.make_topic("flights", self.profile.partitions)
            life.make_topic("quiet", 1)
            for _ in range(self.rng.randrange(6)):
                life.write()
        self._start_worker()
        await self._live()
        while any(life.away for life in self.lives.values()):
            await asyncio.sleep(LOOK_EVERY_S)
        self._faults = False
        self.network.calm()
        for life in self.lives.values():
            life.end_transactions()
        if self.profile.disaster is Disaster.TARGET_CUT:
            for task in self._workers.values():
                task.cancel()  # what only a start looks at
        await self._wait_until_mirrored()
        if self.profile.words:
            await self._judge()
        self._judged = True
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _live(self) -> None:
        lives = [self.lives[link.source.name] for link in self.links]
        profile = self.profile
        rival_at = self.rng.randrange(profile.actions) if profile.rival is Rival.LATER else -1
        disaster_at = self.rng.randrange(profile.actions) if profile.disaster and not profile.shared else -1
        hold_at = self.rng.randrange(profile.actions) if profile.held else -1
        for number in range(profile.actions):
            await asyncio.sleep(self.rng.random() * profile.action_pause_max_s)
            if number == hold_at and self._workers:
                self._hold_packets()
            if number == disaster_at and profile.disaster is not None:
                self.counts[profile.disaster.name] += 1
                strike(profile.disaster, self.lives["east"], self.sites["west"], self.oracles[0])
            if number == rival_at:
                self._start_rival()
            if profile.disaster and not profile.shared and self.rng.random() < ACCEPTED_AT_ONCE:
                await self._accept(self.oracles[0])
            if profile.repairs and self.operator.rng.random() < profile.repairs:
                self.counts["repairs"] += await self.operator.repair(self.oracles[0], self.sites["west"])
            life = self.rng.choice(lives)
            if self.rng.random() < profile.births:
                self._bear(life)
            else:
                self._act(life)

    def _act(self, life: SiteLife) -> None:
        chance = self.rng.random()
        if chance < 0.43:
            life.write()
        elif chance < 0.75:
            life.transact()
        elif chance < 0.84:
            life.compact()
        elif chance < 0.90:
            self.rng.choice(list(self.lives.values())).move_leader()
        elif chance < 0.92:
            self.rng.choice(list(self.lives.values())).move_coordinator()
        else:
            life.commit_group()

    def _bear(self, life: SiteLife) -> None:
        chance = self.rng.random()
        if chance < 0.6 and len(life.topics) < self.profile.topics_max:
            life.make_topic(f"later-{len(life.topics) + len(life.away)}", 1)
        else:
            life.grow()
        life.write()

    def _hold_packets(self) -> None:
        process = self.rng.choice(list(self._workers))
        self.trace("all packets stand still:", process)
        self.network.hold(process, self.rng.random() * 60)

    # -- workers

    def _start_worker(self) -> None:
        process = f"worker-{len(self._workers) + self.counts['workers ended']}"
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        settings = WorkerSettings(self.profile.limits, self.clock, lambda link: self._sink(process, link))
        self.trace("start", process)
        self.counts["workers"] += 1
        task = self.loop.create_task(run_links(self.links, settings, self._share_of(process)), context=context)
        self._workers[process] = task
        task.add_done_callback(lambda ended: self._ended(process, ended))
        if self._kills_left and self._faults:
            self._kills_left -= 1
            steps = 1 + self.rng.randrange(self.profile.kill_steps_max)
            self.loop.after_steps(steps, lambda: self._kill(process))
        if self.profile.rival is Rival.AT_START and not self.counts["rivals"]:
            self.counts["rivals"] += 1
            self.loop.after_steps(1 + self.rng.randrange(self.profile.kill_steps_max), self._start_rival)

    def _share_of(self, _process: str) -> Coordinator | None:
        """What a worker runs; None: all."""
        return None

    def _start_rival(self) -> None:
        if self._faults:
            self._start_worker()

    def _kill(self, process: str) -> None:
        task = self._workers.get(process)
        if task is None or not self._faults:
            return
        hard = self.rng.random() < 0.5
        self.trace("kill" if hard else "stop", process)
        self.counts["kills"] += 1
        if hard:
            self.network.kill(process)
        task.cancel()

    def _ended(self, process: str, task: asyncio.Task[None]) -> None:
        del self._workers[process]
        self.counts["workers ended"] += 1
        error = None if task.cancelled() else task.exception()
        self.trace("ended", process, repr(error))
        if error is not None and not isinstance(error, LinkFenced):
            self.loop.stop_at(error)
        if isinstance(error, LinkFenced):
            self.counts["fenced"] += 1
        self._restart_maimed()
        if not self._workers and not self._judged:
            self.loop.call_later(self.rng.random() * 2, self._start_if_none)

    def _start_if_none(self) -> None:
        if not self._workers and not self._judged:
            self._start_worker()

    def _restart_maimed(self) -> None:
        """A worker goes on without a link that was fenced: where no other one serves that, an operator starts anew."""
        if self._maimed >= self._workers.keys():
            for task in self._workers.values():
                task.cancel()

    def _sink(self, process: str, link: str) -> EventSink:
        def tell(event: Event, /, **fields: object) -> None:
            self.counts[event.value] += 1
            if event is Event.STOPPED:
                self._maimed.add(process)
                self.loop.call_later(self.rng.random() * 2, self._restart_maimed)
            self.trace(f"{link}: {event.value}", *(f"{name}={value}" for name, value in fields.items()))

        return tell

    # -- the end

    async def _wait_until_mirrored(self) -> None:
        await self._until_complete()
        if any(partition.struck for oracle in self.oracles for partition in oracle.partitions.values()):
            # A target that was made anew may fit by chance, until somebody looks at its id.
            await asyncio.sleep(2 * self.profile.limits.topic_refresh_interval_ms / 1000)
            await self._until_complete()
        for oracle in self.oracles:
            oracle.verify_content()

    async def _until_complete(self) -> None:
        deadline = self.loop.now + PATIENCE_S
        while not all(oracle.is_complete for oracle in self.oracles):
            if self.loop.now > deadline:
                raise Found("not mirrored in time: " + "; ".join(oracle.missing() for oracle in self.oracles))
            await asyncio.sleep(LOOK_EVERY_S)
            for oracle in self.oracles:
                if not oracle.is_complete and oracle.is_at_rest:
                    await self._accept_gaps(oracle)

    async def _accept_gaps(self, oracle: LinkOracle) -> None:
        """What an operator does who was told of them; again where a worker is just starting."""
        await self._accept(oracle)
        await asyncio.sleep(10 * LOOK_EVERY_S)

    async def _accept(self, oracle: LinkOracle) -> None:
        gaps = [gap for partition in oracle.partitions.values() for gap in partition.stopped_at]
        if not gaps:
            return
        self.counts["accepted"] += 1
        with suppress(FarshoreError):
            async with Cluster(oracle.link.target, client_id="operator", clock=self.clock) as target:
                await resume_link(oracle.link, target, f"operation-{self.counts['accepted']}", gaps)

    async def _judge(self) -> None:
        """What the links say of themselves, once they had the time to say it."""
        limits = self.profile.limits
        settled_s = 2 * limits.checkpoint_interval_ms / 1000 + 1
        await asyncio.sleep(settled_s)
        async with AsyncExitStack() as stack:
            seen = {
                name: await stack.enter_async_context(
                    Cluster(Site(name, site.bootstrap), client_id="observer", clock=self.clock)
                )
                for name, site in self.sites.items()
            }
            for oracle in self.oracles[: len(self.links)]:
                source, target = seen[oracle.link.source.name], seen[oracle.link.target.name]
                state = await self._until_agreed(oracle, source, target)
                oracle.verify_content()
                oracle.verify_carried(state.map, self.sites)
                if self.profile.groups and not self.profile.shared:
                    await self._judge_groups(oracle, state)

    async def _until_agreed(self, oracle: LinkOracle, source: Cluster, target: Cluster) -> LinkState:
        """A worker may be between two sessions: what the link says is asked again for a while."""
        deadline = self.loop.now + PATIENCE_S
        while True:
            try:
                return await oracle.verify_words(source, target, self.sites[oracle.link.target.name])
            except (Found, FarshoreError) as found:
                if self.loop.now > deadline:
                    raise
                self.trace("asked again:", found)
                if any(partition.stopped_at for partition in oracle.partitions.values()):
                    await self._accept_gaps(oracle)
            await asyncio.sleep(5 * LOOK_EVERY_S)

    async def _judge_groups(self, oracle: LinkOracle, state: LinkState) -> None:
        """A group goes on at the target with the record that it would have read next at the source."""
        deadline = self.loop.now + PATIENCE_S
        while wrong := self._wrong_group(oracle, state):
            if self.loop.now > deadline:
                raise Found(wrong)
            await asyncio.sleep(LOOK_EVERY_S)

    def _wrong_group(self, oracle: LinkOracle, state: LinkState) -> str:
        here, there = (self.sites[site.name].groups for site in (oracle.link.source, oracle.link.target))
        for group, committed in here.items():
            for where, (offset, _) in committed.offsets.items():
                end = state.map.mirrored_end(*where)
                if state.map.to_target(*where, offset) is None and (end is None or offset != end.source_next):
                    continue
                found = there[group].offsets.get(where) if group in there else None
                partition = oracle.partitions[where]
                copies = [copy.target_offset for copy in partition.copies if copy.source_offset >= offset]
                if found is None:
                    return f"{group} has no offset in {where} at the target"
                if partition.next_copy(found[0]) != (copies[0] if copies else partition.next_copy(1 << 62)):
                    return f"{group} is at {found[0]} in {where} at the target, at the source at {offset}"
        return ""
