"""The two ends of a link that is moved, and how they are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.wire.vocabulary import TopicPartition
from failover.limits import DRAIN_POLL_S, LOOK_AGAIN_S, SOURCE_LOOK_MS, WHOLE_LOOK_S
from failover.observing.contact import BrokerAnswer, SiteFinding, call_site, found_stopped_at_ms
from failover.observing.held_silence import HeldSilence
from failover.observing.looking import is_asked
from failover.observing.observe import observe
from failover.observing.readers import Readers
from failover.observing.seen_by_worker import WorkersSight, watching
from failover.observing.snapshot import Lacked, Snapshot
from mirror.api import Link, MirrorError, SourceParting

_Called: TypeAlias = tuple[tuple[BrokerAnswer, ...], tuple[str, ...]]
"""What the source's brokers said when they were called, and the links whose workers saw it meanwhile."""


@dataclass(frozen=True, slots=True)
class DrainStands:
    """What a drain waits for: so many offsets in so many partitions are not mirrored yet. In `seconds_left` it is given
    up. `is_moved`: of a link that was moved before these do not come: they are in transactions that have not ended, or,
    where there are none, offsets of groups are. `is_over`: it waits no more, whatever came of it.
    """

    link: str
    offsets: int = 0
    partitions: int = 0
    seconds_left: float = 0.0
    is_over: bool = False
    is_moved: bool = False


TellDrain: TypeAlias = Callable[[DrainStands], None]


def tell_nobody(_stands: DrainStands) -> None:
    """Whoever waits for the end."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Of an operation that has not ended: for so many `seconds` it is watched whether `who` still carries it on."""

    operation_id: str
    who: str
    seconds: float


TellWatch: TypeAlias = Callable[[Watch], None]


def watch_untold(_watch: Watch) -> None:
    """Nobody sits there and wonders."""


@dataclass(frozen=True, slots=True)
class Sites:
    """The two ends of the link; `source` is None when it does not answer, `answers` what its brokers said at first.

    `in_part`: the source was found to be there in part, and is not asked for the whole again. `links`: all of the file.
    `ahead`: what the target told while the source was called in vain, which serves for the first look. `seen_by`: links
    whose workers saw the source meanwhile. `within`: the failback that the move is a step of. `lacks`: what was found
    that the target lacks of its own, which a source that is gone by now tells no more; `lacked`: how much that is, as
    each look is to tell. `parted`: where the source's log is another one than was mirrored, as it was seen at first.
    `silence`: of a source that is called in vain still. `found_dead_at_ms`: as of the snapshots. `tell_drain` hears how
    a drain of the link stands, `tell_watch` whom is waited for before an operation is taken up.
    """

    link: Link
    source: Cluster | None
    target: Cluster
    groups: tuple[str, ...]
    now_ms: Callable[[], int]
    answers: tuple[BrokerAnswer, ...] = ()
    in_part: bool = False
    links: tuple[Link, ...] = ()
    readers: Readers = field(default_factory=Readers, compare=False)
    ahead: Snapshot | None = None
    within: str = ""
    seen_by: tuple[str, ...] = ()
    lacks: tuple[SourceParting, ...] = ()
    lacked: tuple[Lacked, ...] = ()
    parted: frozenset[TopicPartition] = frozenset()
    silence: HeldSilence | None = None
    found_dead_at_ms: int | None = None
    tell_drain: TellDrain = field(default=tell_nobody, compare=False)
    tell_watch: TellWatch = field(default=watch_untold, compare=False)

    async def still_silent(self) -> Sites:
        """With what its brokers say by now, of a source that was found dead. Raises SourceHeard."""
        if self.silence is None:
            return self
        now = {answer.address: answer for answer in await self.silence.hold()}
        answers = tuple(now.get(answer.address, answer) for answer in self.answers)
        since_ms = self.found_dead_at_ms if found_stopped_at_ms(answers) is not None else None
        return replace(self, answers=answers, found_dead_at_ms=since_ms)

    def selects_group(self, name: str) -> bool:
        """Whether it is looked at."""
        return is_asked(self.link, name, self.groups)

    async def look(self) -> Snapshot:
        """Both sites as they are. Raises ClientError when one of them does not answer wholly."""
        return self._with_evidence(
            await observe(
                self.link,
                self.source,
                self.target,
                self.groups,
                self.now_ms(),
                readers=self.readers,
                parted=self.parted,
            ),
            self.answers,
        )

    async def look_past_source(
        self, unanswered: Collection[tuple[str, str]] = (), patience_s: float | None = None
    ) -> Snapshot:
        """The same for a failover, which a source that answers slowly, in part or not at all does not hold up, nor does
        a part of the target.

        What a part of the source still tells is used; what cannot be read there is a part that does not. It is dead
        only where none of its brokers answers anything, and farshore had all that it needs to ask; in part only where
        it is the source that left out something. Partitions and groups of the target that do not answer are looked at
        again for `patience_s` (None: LOOK_AGAIN_S), but for those that were `unanswered` before. Raises ClientError,
        MirrorError for what the target does.
        """
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + (LOOK_AGAIN_S if patience_s is None else patience_s)
        while True:
            seen = await self._look_past_source()
            if seen.unanswered <= set(unanswered) or loop.time() >= give_up_at_s:
                return seen
            await asyncio.sleep(DRAIN_POLL_S)

    async def _look_past_source(self) -> Snapshot:
        answers, seen_by = self.answers, self.seen_by
        if self.source is not None:
            if self.in_part:  # who was silent then is waited for no more
                answers, seen_by = await self._call(self.source, answers)
            else:
                self.source.set_aside(())
                whole, called = await self._wholly_or_called(self.source)
                if whole is not None:
                    return self._with_evidence(whole, answers)
                answers, seen_by = called
            if any(answer.may_live for answer in answers):
                self.source.set_aside(answer.address for answer in answers if not answer.may_live)
                if seen := await self._observed(self.source, in_part=True):
                    return self._with_evidence(seen, answers)
        seen = self.ahead or await self._observe(None, in_part=False)
        return replace(self, seen_by=seen_by)._with_evidence(seen, answers)

    async def _wholly_or_called(self, source: Cluster) -> tuple[Snapshot | None, _Called]:
        """A look at all of it, or, where it does not tell all, what its brokers say when they are called, which begins
        while the look takes long.
        """
        seen: Snapshot | None = None
        async with asyncio.TaskGroup() as tasks:
            looked = asyncio.Event()
            calling = tasks.create_task(self._called(source, looked))
            with suppress(ClientError, MirrorError):  # of either site: the looks that follow tell them apart
                seen = await self._observed(source, in_part=False)
            looked.set()
            if seen is not None:
                calling.cancel()
        return seen, ((), ()) if seen is not None else calling.result()

    async def _called(self, source: Cluster, looked: asyncio.Event) -> _Called:
        with suppress(TimeoutError):
            await asyncio.wait_for(looked.wait(), WHOLE_LOOK_S)
        return await self._call(source)

    async def _call(self, source: Cluster, before: Iterable[BrokerAnswer] = ()) -> _Called:
        """It may be this machine's way to it that is gone since it was entered."""
        sight = WorkersSight((self.link,), self.target)
        async with watching(sight):
            answers = await call_site(source, self.now_ms, before)
        return answers, sight.links

    async def _observed(self, source: Cluster, *, in_part: bool) -> Snapshot | None:
        """None where it takes too long. Raises ClientError and MirrorError, as `observe` does."""
        with suppress(TimeoutError):
            async with timeout(SOURCE_LOOK_MS / 1000):
                return await self._observe(source, in_part=in_part)
        return None

    async def _observe(self, source: Cluster | None, *, in_part: bool) -> Snapshot:
        return await observe(
            self.link,
            source,
            self.target,
            self.groups,
            self.now_ms(),
            in_part=in_part,
            target_in_part=True,
            with_pace=True,
            readers=self.readers,
            parted=self.parted,
        )

    def as_found(self, snapshot: Snapshot) -> Sites:
        """The sites as the looks that follow may rely on them."""
        found = snapshot.source_finding
        if found.is_gone:  # another cluster in its place told nothing of it
            answers = () if found is SiteFinding.REPLACED else snapshot.evidence
            found_at_ms = snapshot.found_dead_at_ms
            return replace(
                self, source=None, ahead=None, answers=answers, seen_by=snapshot.seen_by, found_dead_at_ms=found_at_ms
            )
        in_part = found is SiteFinding.PARTLY_THERE
        answers = snapshot.evidence if in_part else self.answers
        return replace(self, in_part=in_part, answers=answers, ahead=None, found_dead_at_ms=None)

    def _with_evidence(self, snapshot: Snapshot, answers: tuple[BrokerAnswer, ...]) -> Snapshot:
        """A source of which nothing but a first word came is not dead, nor one that others see."""
        finding = snapshot.source_finding
        if finding is SiteFinding.DEAD and any(answer.may_live for answer in answers):
            finding = SiteFinding.PARTLY_THERE
        if finding is SiteFinding.DEAD and self.seen_by:
            finding = SiteFinding.UNREACHABLE
        found_at_ms = None
        if finding is SiteFinding.DEAD:
            found_at_ms = self.found_dead_at_ms if self.found_dead_at_ms is not None else found_stopped_at_ms(answers)
        seen = replace(snapshot, source_finding=finding, evidence=answers, seen_by=self.seen_by, lacked=self.lacked)
        return replace(seen, found_dead_at_ms=found_at_ms)
