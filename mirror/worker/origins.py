"""What a link lets pass of the batches that it meets at its source, and what it says at its target that it brings.

Every link asks the registry at its source about each producer it meets there, and leaves out what its target has: that
is the loop cut. No header is added to any record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError, LogUnreadable
from broker.client.fanout import both
from broker.client.log import append
from broker.client.topics import describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.errors import LinkFenced, RegistryLost, StateDamaged, TargetTaken
from mirror.heartbeat import Pulse, judge_heartbeat
from mirror.link import STATE_PREFIX, Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.left_out import LeftOut
from mirror.offsets.origin_entries import Way
from mirror.offsets.state import read_entries
from mirror.offsets.state_writer import FENCED_CODES, ensure_own_topics
from mirror.origins import (
    Judgement,
    Registration,
    SiteIdentity,
    Verdict,
    call_sites,
    direct_sites,
    encode_registration,
    judge_batches,
    left_to,
    may_write_one_topic,
    origins_of,
    with_registered,
    writer_of,
)
from mirror.worker.logs import Logs
from mirror.worker.origin_runs import OriginReader
from mirror.worker.registry import REGISTRY, OriginRegistry, identify


class Passage:
    """What one link lets pass: the registry at its source, and what the link said at its target that it brings.

    `link` is the link as both registries complete it, `origins` are the sites whose records it brings. When it has
    registered, `names_origins` says whether the link's state must tell of each batch where it came from.
    """

    def __init__(self, link: Link, source: Cluster, target: Cluster) -> None:
        self._ends = (identify(source), identify(target))
        self.declared = link
        self._source = source
        self._readers: dict[str, OriginReader] = {}
        self.at_source = OriginRegistry(source, self._ends)
        self.at_target = OriginRegistry(target, self._ends)
        self.link = link
        self._sides: tuple[Registration, ...] = ()
        self.silent_sides: tuple[Registration, ...] = ()
        """Links that no file names here, to which records are left, and whose workers give no sign of life."""
        self.origins = frozenset({link.source.name})
        self._topics: tuple[str, ...] = ()
        self._unchanged_at = (-1, -1)
        self.names_origins = False
        self._writer: Writer | None = None
        self._said = 0
        """Records that its writer wrote into the registry at the target."""

    async def look(self, target: Cluster, left_to: frozenset[str] = frozenset()) -> None:
        """Read both registries, and complete the link by them. Raises ClientError, StateDamaged.

        `left_to` are the sites whose records the link left to their direct links, as its state says. Such a link counts
        as long as its state stands, whether it runs or not: that says where it goes on, and nothing is missing then.
        """
        await self.read_registries()
        await self.complete(target, left_to)

    async def read_registries(self) -> None:
        """As far as they go now. Raises ClientError, StateDamaged."""
        await both(self.read_at_source(), self.at_target.refresh())

    async def read_at_source(self) -> None:
        """Of the registries that of the source. Raises ClientError, StateDamaged."""
        await both(self.at_source.check_kept(), self.at_source.refresh())

    async def complete(self, target: Cluster, left_to: frozenset[str]) -> None:
        """As `look` does, by what was read of them."""
        sites = self._site_names()
        for registry in (self.at_source, self.at_target):
            registry.call_sites(sites)
        left_to = frozenset(map(self.called, left_to))
        pulses = await self._pulses(target)
        living = self._of_pulse(pulses, Pulse.ALIVE)
        brought = {side.source.name for side in self.declared.side_links} | {one.source.name for one in living}
        silent = self._of_pulse(pulses, Pulse.SILENT, Pulse.AWAITED, Pulse.UNKNOWN)
        self.silent_sides = tuple(one for one in silent if one.source.name in left_to - brought)
        self._sides = (*living, *self.silent_sides)
        self.link = with_registered(self.declared, self.at_source.registered(), self._sides)

    def _site_names(self) -> tuple[SiteIdentity, ...]:
        """One name for each cluster, whatever the files of others call it: first as this link's own file does.

        What that declares is known by its name alone until it has registered.
        """
        others = (*self.declared.side_links, *self.declared.reverse_links, *self.declared.round_links)
        declared = {other.name for other in others}
        registered = sorted(
            (*self.at_target.as_written(), *self.at_source.as_written()),
            key=lambda one: (one.link not in declared, one.link, one.producer_id),
        )
        told = [one.source for one in registered]
        told += [site for one in registered for site in sorted(one.sites, key=lambda site: site.name)]
        return call_sites((*self._ends, *told))

    def called(self, site: str) -> str:
        """What a site is called now that the link called so when it ran before."""
        known = (*self.at_target.registered(), *self.at_source.registered())
        if any(site == one.source.name or site in one.origins for one in known):
            return site
        return next((name for one in known if (name := one.called(site)) != site), site)

    def left_behind(self, checkpoint: Checkpoint) -> tuple[LeftOut, ...]:
        """What was left, in a partition, to direct links of which none is there any more."""
        direct = direct_sites(self.link, checkpoint.topic)
        return tuple(one for one in checkpoint.left_out if self.called(one.site) not in direct)

    async def _pulses(self, target: Cluster) -> dict[str, Pulse | None]:
        """Of the links at the target that may write the same topics, and are not declared here; None: it has no state.

        One whose state cannot be read does not run: its worker stops at that.
        """
        known = {side.name for side in self.declared.side_links} | {self.declared.name}
        pulses: dict[str, Pulse | None] = {}
        for registered in self.at_target.registered():
            if registered.link not in known | pulses.keys() and registered.topics is not None:
                other = writer_of(registered, target.site)
                if may_write_one_topic(self.declared, other):
                    pulses[registered.link] = await _pulse(other, target)
        return pulses

    def _of_pulse(self, pulses: Mapping[str, Pulse | None], *wanted: Pulse) -> tuple[Registration, ...]:
        return tuple(one for one in self.at_target.registered() if pulses.get(one.link) in wanted)

    async def find_lost_side(self, target: Cluster) -> str | None:
        """Why a session is out of date by which records are left to others. Raises ClientError."""
        names = {f"{STATE_PREFIX}{side.link}": side.link for side in self._sides}
        there = await describe_topics(target, names) if names else {}
        gone = sorted(link for topic, link in names.items() if topic not in there)
        return f"the state of link {gone[0]} is gone, to which records may be left" if gone else None

    async def take(self, target: Cluster, topics: Iterable[str]) -> None:
        """These topics of the source are mirrored; rivals are refused by what was read of the registry at the target.
        Raises TargetTaken, ClientError.
        """
        self._topics = tuple(topics)
        self.origins = origins_of(self.link, self.at_source.registered(), self._topics)
        await self._refuse_known_rivals(target)

    def widen(self, topics: Iterable[str]) -> None:
        """These topics are mirrored from now on; what they bring more shows in `find_change`."""
        self._topics = tuple(topics)
        self._unchanged_at = (-1, -1)

    async def narrow(self, target: Cluster, link: Link) -> None:
        """Declared with fewer topics the link says so at the target. Raises ClientError, LinkFenced, StateDamaged."""
        self.declared = link
        self.link = with_registered(link, self.at_source.registered(), self._sides)
        self.widen(filter(link.selects_topic, self._topics))
        await self.at_target.refresh()
        writer = self._writer
        said = [one for one in self.at_target.as_written() if writer and one.producer_id == writer.producer_id]
        if writer is not None:
            await self._write(target, [replace(one, topics=link.topics) for one in said], writer)

    async def register(
        self, target: Cluster, source: SiteIdentity, writer: Writer, earlier: Iterable[int] = ()
    ) -> dict[int, Registration]:
        """Say at the target what this link's producer id brings, and wait for it -> who was registered there before.

        What it once brought stays said: those records are there. `earlier` are the producer ids that the link wrote
        with before: those that are not registered (any more) are, too. The registry must be fenced for the writer: what
        is read here is what earlier ones said last. Raises ClientError, LinkFenced.
        """
        await self.at_target.refresh()
        return await self.enter(target, source, writer, earlier)

    async def enter(
        self, target: Cluster, source: SiteIdentity, writer: Writer, earlier: Iterable[int]
    ) -> dict[int, Registration]:
        """As `register`, of who has read the registry at the target behind that fence."""
        before = {registered.producer_id: registered for registered in self.at_target.registered()}
        known = before.get(writer.producer_id)
        link = self.declared
        brought = self.origins | (known.origins if known is not None else frozenset())
        registered = Registration(
            writer.producer_id, link.name, source, brought, link.topics, link.topic_names, unit=link.state_partition
        )
        self.names_origins = len(brought) > 1 and link.topic_names == "same"
        if self.names_origins:
            registered = replace(registered, named_from=writer.epoch, sites=self._known_sites())
            if known is not None and known.named_from is None:
                registered = replace(registered, unnamed=known.origins)
            elif known is not None:
                given = {site.name for site in registered.sites}
                sites = registered.sites | {site for site in known.sites if site.name not in given}
                registered = replace(registered, named_from=known.named_from, unnamed=known.unnamed, sites=sites)
        named_from = 0 if self.names_origins else None
        lost = set(earlier) - before.keys() - {writer.producer_id}
        changed = [replace(registered, producer_id=one, named_from=named_from) for one in sorted(lost)]
        if registered != known:
            changed.append(registered)
        if changed:
            await self._write(target, changed, writer)
        self._writer = writer
        return before

    def _known_sites(self) -> frozenset[SiteIdentity]:
        """What all sites where its batches may have been say of themselves, as this link knows from others."""
        theirs = {site for other in self.at_source.registered() for site in (other.source, *other.sites)}
        return frozenset(site for site in theirs if site.name != self.declared.source.name)

    async def _write(self, target: Cluster, registrations: Iterable[Registration], writer: Writer) -> None:
        """In the session's order there: one that was fenced must not take back what its successor said."""
        now_ms = target.clock.now_ms()
        records = [Record(at, now_ms, *encode_registration(one)) for at, one in enumerate(registrations)]
        batch = encode_batch(
            records, producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=self._said
        )
        try:
            await append(target, REGISTRY, batch)
        except KafkaError as error:
            if error.code in FENCED_CODES:
                text = f"link {self.declared.name}: another owner took over"
                raise LinkFenced(text, writer=writer) from error
            raise
        self._said += len(records)

    async def keep_registered(self, target: Cluster) -> None:
        """Look at the registry at the target; one that was deleted is made anew, with all that this link has there.

        Raises RegistryLost then: what stands on it must begin anew. ClientError.
        """
        ours = [registered for registered in self.at_target.registered() if registered.link == self.declared.name]
        try:
            await self.at_target.refresh()
        except RegistryLost:
            await ensure_own_topics(target, self.declared)
            if ours and self._writer is not None:
                self._said = 0
                await self._write(target, ours, self._writer)
            raise

    async def refuse_rivals(self, target: Cluster) -> None:
        """Raise TargetTaken where a link that runs now brings records to the target that this one would bring, too.

        To be called again when this link has said what it brings, and that it lives: of two that start together one
        sees the other.
        """
        await self.at_target.refresh()
        await self._refuse_known_rivals(target)

    async def _refuse_known_rivals(self, target: Cluster) -> None:
        link = self.link
        for registered in self._of_pulse(await self._pulses(target), Pulse.ALIVE):
            twice = sorted(registered.origins & self.origins)
            is_same = registered.topic_names == link.topic_names == "same"
            if twice or not is_same or not link.reverse_links:
                what = f"records of {', '.join(twice)}" if twice else "records of its own"
                text = f"link {link.name}: link {registered.link}, which runs now, brings {what} to the same topics"
                raise TargetTaken(f"{text} of {link.target.name}")

    async def learn(self, where: TopicPartition, records: memoryview, *, is_onward: bool = False) -> None:
        """Make sure that these batches of the source can be judged. What is learned may change what the link brings:
        see `find_change`.

        `is_onward`: what lies before them will not be asked about. Raises ClientError, RegistryLost, StateDamaged.
        """
        await self.at_source.learn(records)
        named: dict[str, list[BatchHeader]] = {}
        if self.at_source.names_origins and self.link.topic_names == "same":
            with suppress(WireError):  # as in the registry's `learn`
                for header, _ in iter_fetched(records):
                    found = None if header.is_control else self.at_source.find(header.producer_id)
                    if found is not None and found.names_origins(header.producer_epoch):
                        named.setdefault(found.link, []).append(header)
        for link, headers in named.items():
            await self._reader(link).learn(where, headers)
            if is_onward:
                self._reader(link).forget_before(where, headers[0])

    def _reader(self, link: str) -> OriginReader:
        return self._readers.setdefault(link, OriginReader(self._source, link))

    def judge(self, where: TopicPartition) -> Callable[[BatchHeader], Judgement]:
        """What becomes of the batches of the source's partition. Call `learn` for them first."""
        direct = direct_sites(self.link, where.topic)
        here = frozenset({self.link.source.name})
        local = Judgement(Verdict.CARRY, Way(here, here))

        def judged(way: Way, untold: str = "") -> Judgement:
            verdict = judge_batches(self.link, way, direct)
            left = left_to(self.link, way) if verdict is Verdict.LEAVE_OUT else frozenset()
            return Judgement(verdict, way, untold, left)

        def judge(header: BatchHeader) -> Judgement:
            found = self.at_source.find(header.producer_id)
            if found is None:
                return local
            been = here | {found.source.name}
            if not found.names_origins(header.producer_epoch):
                return judged(Way(found.origins if found.named_from is None else found.unnamed, been))
            told = self._reader(found.link).find(where, header)
            if told is not None:
                wrote, passed = frozenset(map(found.called, told.wrote)), frozenset(map(found.called, told.been))
                return judged(Way(wrote, been | passed))
            untold = judged(Way(found.origins | found.unnamed, been), found.link)
            if untold.verdict is Verdict.CARRY and self.link.topic_names == "same":
                # Wherever it was written, it may have come by way of the target.
                return replace(untold, verdict=Verdict.UNCLEAR)
            return untold

        return judge

    def find_change(self) -> str | None:
        """Why a session that stands on this is out of date, by what the registries say now as far as they were read.

        Cheap where they say what they said; to be asked in one step with judging batches, since anybody's `learn`, a
        comparison's too, may have read on meanwhile.
        """
        read = (self.at_source.entries_read, self.at_target.entries_read)
        if read == self._unchanged_at:
            return None
        sites = self._site_names()
        for registry in (self.at_source, self.at_target):
            for one in registry.as_written():
                if one.as_seen_by(sites) != registry.find(one.producer_id):
                    return f"link {one.link} calls a cluster otherwise than this one's file"
        now = with_registered(self.declared, self.at_source.registered(), self._sides)
        if len(now.reverse_links) > len(self.link.reverse_links):
            return f"link {now.reverse_links[-1].name} mirrors the same topics back"
        if len(now.round_links) > len(self.link.round_links):
            return f"link {now.round_links[-1].name} brings {now.target.name}'s own records to {now.source.name}"
        if now.known_sites != self.link.known_sites:
            return f"records of {', '.join(sorted(now.known_sites - self.link.known_sites))} come to {now.source.name}"
        more = origins_of(self.link, self.at_source.registered(), self._topics) - self.origins
        if more:
            return f"records of {', '.join(sorted(more))} come along"
        self._unchanged_at = read
        return None


async def read_carried(
    passage: Passage, logs: Logs, where: TopicPartition, start: int, end: int
) -> AsyncIterator[tuple[BatchHeader, Record]]:
    """What there is to mirror of [start, end): the committed records of the source that the link carries, in order.

    Each comes with the header of its batch. Raises CorruptBatch, ClientError.
    """
    judge = passage.judge(where)
    async for header, batch in logs.read_batches(where, start, end, IsolationLevel.READ_COMMITTED):
        await passage.learn(where, batch)
        if judge(header).verdict is Verdict.CARRY:
            for record in decode_records(batch):
                if start <= record.offset < end:
                    yield header, record


async def _pulse(link: Link, target: Cluster) -> Pulse | None:
    """Whether another link's worker lives; None: nothing stands in its state. Raises ClientError."""
    try:
        entries = await read_entries(link, target, only=())
        if entries.owner is None:
            entries = await read_entries(link, target)
    except (StateDamaged, LogUnreadable):  # as its worker does, which stops at that
        return Pulse.SILENT
    if entries.owner is None and not entries.checkpoints:
        return None
    pulses = {judge_heartbeat(owner, target.clock.now_ms()).pulse for owner in entries.owners().values()}
    return next(pulse for pulse in (Pulse.ALIVE, Pulse.UNKNOWN, Pulse.AWAITED, Pulse.SILENT) if pulse in pulses)
