"""Whether a site lives: which of its brokers answered, and when. Slow is not dead, and neither is a part of it."""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from broker.base.address import Address, parse_address
from broker.base.errors import first_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.connection import connect
from broker.client.errors import NOT_LET_IN, ClientError, ConnectionLost, NotConnected
from broker.client.limits import ClientLimits
from broker.client.security.settings import Access
from broker.client.site import Site
from failover.limits import (
    RECONNECT_PAUSE_S,
    REFUSED_AWAITED_MS,
    REFUSED_MS,
    SOURCE_ANSWER_MS,
    SOURCE_AWAITED_MS,
    SOURCE_PROBE_MS,
    SOURCE_SILENT_MS,
)
from mirror.api import SourceBrokers

CLIENT_ID = "farshore-failover"
SOURCE_LIMITS = ClientLimits(
    connect_timeout_ms=SOURCE_ANSWER_MS,
    request_timeout_ms=SOURCE_ANSWER_MS,
    delivery_timeout_ms=SOURCE_ANSWER_MS,
    retry_timeout_ms=SOURCE_ANSWER_MS,
)


class SiteFinding(StrEnum):
    """What was found of a site."""

    ALIVE = "alive"
    PARTLY_THERE = "partly_there"
    """Something of it answered, and something that was asked of it did not."""
    DEAD = "dead"
    """No broker of it answered anything within SOURCE_SILENT_MS of being called, or the hosts of all refused each
    connection for REFUSED_MS.
    """
    UNREACHABLE = "unreachable_from_here"
    """No broker of it answered this machine anything, and meanwhile some answered a link's worker."""
    REPLACED = "replaced"
    """Another cluster answers in its place than the mirrored records came from."""

    @property
    def is_gone(self) -> bool:
        """Nothing of it can be asked for any more, from here."""
        return self in (SiteFinding.DEAD, SiteFinding.UNREACHABLE, SiteFinding.REPLACED)


class Patience(NamedTuple):
    """How long brokers are called before it is gone on, where none of them says anything: they are silent for
    `silent_ms`, or connections of the first `refused_ms` are refused or closed.
    """

    silent_ms: float
    refused_ms: float


TO_THE_END: Final = Patience(math.inf, math.inf)
UNTIL_DEAD: Final = Patience(SOURCE_SILENT_MS, math.inf)
AHEAD_OF_FENCE: Final = Patience(SOURCE_AWAITED_MS, REFUSED_AWAITED_MS)
"""Where the fence is held until they are found dead."""


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What came of calling a broker at `asked_at_ms` (Unix time); `error` is "" where it answered within `seconds`.

    `inconclusive`: it answered and does not let farshore in, or farshore lacks what it needs to ask. Neither says that
    the broker is dead. `refused`: its host refused each connection, from then on: nobody listened there. `taken`:
    something took connections, and none of them came to anything: a proxy with nobody behind it does that, and so does
    a broker that has as many from this machine as it may.
    """

    address: str
    asked_at_ms: int
    seconds: float
    error: str = ""
    inconclusive: bool = False
    refused: bool = False
    taken: bool = False

    @property
    def answered(self) -> bool:
        return not self.error

    @property
    def may_live(self) -> bool:
        return self.answered or self.inconclusive


def found_stopped_at_ms(answers: Collection[BrokerAnswer]) -> int | None:
    """Since when it is known that nobody listened at any of these. None: one of them was silent alone, and may have
    gone on writing; or answered.
    """
    is_known = bool(answers) and all(one.refused and not one.may_live for one in answers)
    return max(one.asked_at_ms for one in answers) if is_known else None


class _Call:
    """A broker that is called until it has answered, or SOURCE_PROBE_MS have passed.

    A connection that is refused or closed is tried again, for a broker that is being started; silence is waited for.
    `settled`: it is known what came of it, though such a one is called further.
    """

    def __init__(self, address: Address, access: Access, now_ms: Callable[[], int], heard: Callable[[], None]) -> None:
        self.settled = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.started_s, self._ended_s = self.loop.time(), math.inf
        self._address, self._access, self._asked_at_ms = address, access, now_ms()
        self._tell_heard = heard
        self._error, self._answered, self._inconclusive, self._refused = "", False, False, True
        self._words, self._spoke, self._taken, self._trying_since_s = 0, False, False, self.started_s

    def _heard(self) -> None:
        self._words += 1
        self._tell_heard()

    @property
    def called_ms(self) -> float:
        return (self.loop.time() - self.started_s) * 1000

    @property
    def answer(self) -> BrokerAnswer:
        """As far as it has come. Who has begun to answer lives, also where he broke off; a proxy in front of a broker
        that is gone may shake hands. A host that refused, and does not any more, has let somebody listen: a refusal
        comes in a round trip.
        """
        until_s = min(self._ended_s, self.loop.time())
        seconds = until_s - self.started_s
        error = "" if self._answered else self._error or f"no answer within {math.floor(seconds * 10) / 10:g} s"
        is_slow = (self._has_spoken or self._spoke) and not self._answered
        is_waited_for = until_s - self._trying_since_s > REFUSED_AWAITED_MS / 1000
        is_refused = self._refused and bool(self._error) and not (self._answered or is_waited_for)
        is_taken = self._taken and not self._answered
        may_live = self._inconclusive or is_slow
        return BrokerAnswer(str(self._address), self._asked_at_ms, seconds, error, may_live, is_refused, is_taken)

    @property
    def _has_spoken(self) -> bool:
        """In the try that goes on: more than hands shaken by TLS."""
        return self._words > (self._access.security.tls is not None)

    async def foreseen(self, refused_ms: float) -> None:
        """Returns when it is settled, or as good as that: what was tried in the first `refused_ms` came to an end at
        once, by its host, or by a proxy that has nobody behind it.
        """
        with suppress(TimeoutError):
            async with timeout(None if math.isinf(refused_ms) else refused_ms / 1000):
                await self.settled.wait()
        if not self._error:
            await self.settled.wait()

    async def run(self) -> None:
        try:
            with suppress(TimeoutError):
                async with timeout(SOURCE_PROBE_MS / 1000):
                    await self._until_answered()
        except ClientError as failure:
            self._error, self._inconclusive = str(failure), isinstance(failure, NOT_LET_IN)
            if self._inconclusive:
                self._tell_heard()
        finally:
            self._ended_s = self.loop.time()
            self.settled.set()

    async def _until_answered(self) -> None:
        calling = partial(connect, self._address, client_id=CLIENT_ID, limits=SOURCE_LIMITS, access=self._access)
        while True:
            self._trying_since_s = self.loop.time()
            try:
                connection = await calling(heard=self._heard)
            except ConnectionLost as lost:
                self._note(lost)
                if self.called_ms >= (REFUSED_MS if self._refused else SOURCE_SILENT_MS):
                    self.settled.set()
            else:
                self._answered = True
                await connection.close()
                return
            await asyncio.sleep(RECONNECT_PAUSE_S)

    def _note(self, lost: ConnectionLost) -> None:
        """Who spoke and broke off lives, and who took a connection may, until the host says that nobody listens there
        any more.
        """
        refused = is_refused(lost)
        self._spoke = not refused and (self._spoke or self._has_spoken)
        self._taken = not refused and (self._taken or not isinstance(lost, NotConnected))
        self._error, self._words = str(lost), 0
        self._refused &= refused


def is_refused(lost: ConnectionLost) -> bool:
    """By its host, at each address of a name: of several asyncio says so in words."""
    why = lost.__cause__
    said = str(why)
    refusals = said.count(f"[Errno {errno.ECONNREFUSED}]")
    are_several = isinstance(why, OSError) and 0 < refusals == said.count("[Errno ")
    return isinstance(why, ConnectionRefusedError) or are_several


class SourceCalls:
    """Calls to the brokers of one site, which go on until `aclose`: who was silent may say something yet."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._calls: list[_Call] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = asyncio.Event()
        self._known: set[str] = set()
        """Those that were told to live."""

    async def answers(
        self, brokers: Mapping[Address, Access], patience: Patience = TO_THE_END
    ) -> tuple[BrokerAnswer, ...]:
        """Call each of these, all at the same time -> what came of it, in the order of their addresses. Where none of
        the site says anything they are not waited for beyond `patience`.
        """
        calls = [_Call(at, brokers[at], self._now_ms, self._heard.set) for at in sorted(brokers)]
        self._calls += calls
        self._tasks += [asyncio.create_task(call.run()) for call in calls]
        await self._settled(calls, patience)
        found = tuple(call.answer for call in calls)
        self._known |= {answer.address for answer in found if answer.may_live}
        return found

    async def _settled(self, calls: Sequence[_Call], patience: Patience) -> None:
        """As long as that, or where any says something until it is known of each."""
        with suppress(TimeoutError):
            async with timeout(min(patience.silent_ms, SOURCE_PROBE_MS) / 1000):
                for call in calls:
                    await call.foreseen(max(0.0, patience.refused_ms - call.called_ms))
        if self._heard.is_set():
            for call in calls:
                await call.settled.wait()
        for task in self._tasks:
            if task.done():
                task.result()

    async def heard_since(self) -> tuple[BrokerAnswer, ...]:
        """Those that may live, and were silent when `answers` returned. Returns when each that is silent still has been
        called for SOURCE_SILENT_MS, or it is known what came of it where any has begun to speak.
        """
        silent_until_s = self._last_began_s + SOURCE_SILENT_MS / 1000
        left_ms = max(0.0, silent_until_s - asyncio.get_running_loop().time()) * 1000
        await self._settled(self._calls, Patience(left_ms, math.inf))
        return tuple(one for one in self.so_far if one.may_live and one.address not in self._known)

    @property
    def _last_began_s(self) -> float:
        return max((call.started_s for call in self._calls), default=0.0)

    @property
    def last_call_ends_s(self) -> float:
        """When the last of them ends at the latest, as a time of the event loop."""
        return self._last_began_s + SOURCE_PROBE_MS / 1000

    @property
    def so_far(self) -> tuple[BrokerAnswer, ...]:
        """What came of each call by now."""
        return tuple(call.answer for call in self._calls)

    async def aclose(self) -> None:
        """Call nobody any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def call_brokers(brokers: Mapping[Address, Access], now_ms: Callable[[], int]) -> tuple[BrokerAnswer, ...]:
    """Call each of these, all at the same time -> what came of it, in the order of their addresses."""
    async with aclosing(SourceCalls(now_ms)) as calls:
        return await calls.answers(brokers)


async def reach(
    stack: AsyncExitStack,
    site: Site,
    now_ms: Callable[[], int],
    kept_brokers: Callable[[], Awaitable[SourceBrokers]] | None = None,
    patience: Patience = UNTIL_DEAD,
) -> tuple[Cluster | None, tuple[BrokerAnswer, ...], SourceCalls]:
    """The site's cluster, entered by a bootstrap server that answers, and what each said; None where none does, and
    it was gone on with `patience`. The calls go on until the stack is left.

    Those that are in the file may be gone, or be starting, and the site be alive: then it is entered by what was kept
    of its brokers.
    """
    calls = await stack.enter_async_context(aclosing(SourceCalls(now_ms)))
    try:
        async with asyncio.TaskGroup() as tasks:
            others = tasks.create_task(_call_kept(site, calls, kept_brokers, patience)) if kept_brokers else None
            answers = await calls.answers(site.bootstrap(), patience)
            living = _living(site, site.servers(), answers)
            if others is not None and living:
                others.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    cluster = await _enter(stack, site, living)
    # Who does not let in is no other than those whom the mirror knew; who broke off may be.
    is_refused = living and not any(answer.answered or answer.taken for answer in answers)
    if cluster is not None or kept_brokers is None or others is None or is_refused:
        return cluster, answers, calls
    found = _call_kept(site, calls, kept_brokers, patience) if others.cancelled() else others
    kept, more = await found
    cluster, elsewhere = await _enter_kept(stack, site, kept, more)
    return cluster, (*answers, *(answer for answer in more if answer.address not in elsewhere)), calls


def _living(site: Site, servers: Iterable[Address], answers: Iterable[BrokerAnswer]) -> list[Address]:
    found = {answer.address for answer in answers if answer.may_live}
    return [server for server in servers if str(site.dial(*server)) in found]


async def _enter(stack: AsyncExitStack, site: Site, living: Sequence[Address]) -> Cluster | None:
    if not living:
        return None
    reached = replace(site, bootstrap_servers=",".join(map(str, living)))
    try:
        return await stack.enter_async_context(Cluster(reached, client_id=CLIENT_ID, limits=SOURCE_LIMITS))
    except ClientError:
        return None


async def _enter_kept(
    stack: AsyncExitStack, site: Site, kept: SourceBrokers, answers: Iterable[BrokerAnswer]
) -> tuple[Cluster | None, set[str]]:
    """By whichever lets it be entered, and is of the cluster still; and the addresses at which others are by now."""
    elsewhere: set[str] = set()
    living = _living(site, map(parse_address, kept.addresses), answers)
    for servers in (living, *([server] for server in living)):  # by itself where another cluster's is among them
        cluster = await _enter(stack, site, servers)
        if cluster is not None and cluster.cluster_id == kept.cluster_id:
            return cluster, elsewhere
        if cluster is not None:
            await cluster.close()
            elsewhere |= {str(site.dial(*server)) for server in servers if len(servers) == 1}
        elif servers is living:
            break
    return None, elsewhere


async def _call_kept(
    site: Site, calls: SourceCalls, kept_brokers: Callable[[], Awaitable[SourceBrokers]], patience: Patience
) -> tuple[SourceBrokers, tuple[BrokerAnswer, ...]]:
    kept = await kept_brokers()
    named = site.bootstrap()
    brokers = {site.dial(*server): site.access(server.host) for server in map(parse_address, kept.addresses)}
    return kept, await calls.answers({at: access for at, access in brokers.items() if at not in named}, patience)


async def call_site(
    cluster: Cluster, now_ms: Callable[[], int], before: Iterable[BrokerAnswer] = ()
) -> tuple[BrokerAnswer, ...]:
    """Call every broker that is known of the site, but those that gave no answer `before`, which stands for them."""
    site = cluster.site
    nodes = {site.dial(node.host, node.port): site.access(node.host) for node in cluster.nodes.values()}
    silent = {answer.address: answer for answer in before if not answer.may_live}
    called = {at: access for at, access in (site.bootstrap() | nodes).items() if str(at) not in silent}
    answers = await call_brokers(called, now_ms)
    return tuple(sorted((*answers, *silent.values()), key=lambda answer: answer.address))
