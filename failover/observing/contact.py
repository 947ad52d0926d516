"""Whether a site lives: which of its brokers answered, and when. Slow is not dead, and neither is a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.base.address import Address, parse_address
from broker.base.errors import first_of
from broker.client.cluster import Cluster
from broker.client.connection import connect
from broker.client.errors import NOT_LET_IN, ClientError, ConnectionLost
from broker.client.limits import ClientLimits
from broker.client.security.settings import Access
from broker.client.site import Site
from failover.limits import RECONNECT_PAUSE_S, REFUSED_MS, SOURCE_ANSWER_MS, SOURCE_PROBE_MS
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
    """No broker of it answered anything within SOURCE_PROBE_MS."""
    UNREACHABLE = "unreachable_from_here"
    """No broker of it answered this machine anything, and meanwhile some answered a link's worker."""
    REPLACED = "replaced"
    """Another cluster answers in its place than the mirrored records came from."""

    @property
    def is_gone(self) -> bool:
        """Nothing of it can be asked for any more, from here."""
        return self in (SiteFinding.DEAD, SiteFinding.UNREACHABLE, SiteFinding.REPLACED)


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What came of calling a broker at `asked_at_ms` (Unix time); `error` is "" where it answered within `seconds`.

    `inconclusive`: it answered and does not let farshore in, or farshore lacks what it needs to ask. Neither says that
    the broker is dead.
    """

    address: str
    asked_at_ms: int
    seconds: float
    error: str = ""
    inconclusive: bool = False

    @property
    def answered(self) -> bool:
        return not self.error

    @property
    def may_live(self) -> bool:
        return self.answered or self.inconclusive


async def call_brokers(brokers: Mapping[Address, Access], now_ms: Callable[[], int]) -> tuple[BrokerAnswer, ...]:
    """Call each of these, all at the same time -> what came of it, in the order of their addresses."""
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(_call(address, brokers[address], now_ms)) for address in sorted(brokers)]
    return tuple(call.result() for call in calls)


async def _call(address: Address, access: Access, now_ms: Callable[[], int]) -> BrokerAnswer:
    """A refused connection is tried again for a while, for a broker that is being started; silence is waited for."""
    loop = asyncio.get_running_loop()
    asked_at_ms, started_s = now_ms(), loop.time()
    error, inconclusive = "", False
    try:
        async with asyncio.timeout(SOURCE_PROBE_MS / 1000):
            while True:
                try:
                    connection = await connect(address, client_id=CLIENT_ID, limits=SOURCE_LIMITS, access=access)
                    await connection.close()
                    break
                except ConnectionLost as lost:
                    if loop.time() - started_s >= REFUSED_MS / 1000:
                        raise
                    error = str(lost)
                await asyncio.sleep(RECONNECT_PAUSE_S)
            error = ""
    except ClientError as failure:
        error, inconclusive = str(failure), isinstance(failure, NOT_LET_IN)
    except TimeoutError:
        error = error or f"no answer within {SOURCE_PROBE_MS / 1000:g} s"
    return BrokerAnswer(str(address), asked_at_ms, loop.time() - started_s, error, inconclusive)


async def reach(
    stack: AsyncExitStack,
    site: Site,
    now_ms: Callable[[], int],
    kept_brokers: Callable[[], Awaitable[SourceBrokers]] | None = None,
) -> tuple[Cluster | None, tuple[BrokerAnswer, ...]]:
    """The site's cluster, entered by a bootstrap server that answers, and what each said; None where none does.

    Those that are in the file may be gone, and the site be alive: then it is entered by what was kept of its brokers.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            others = tasks.create_task(_call_kept(site, now_ms, kept_brokers)) if kept_brokers is not None else None
            answers = await call_brokers(site.bootstrap(), now_ms)
            living = _living(site, site.servers(), answers)
            if others is not None and living:
                others.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    if living or others is None:
        return await _enter(stack, site, living), answers
    kept, more = others.result()
    for server in _living(site, map(parse_address, kept.addresses), more):
        cluster = await _enter(stack, site, [server])
        if cluster is None or cluster.cluster_id == kept.cluster_id:
            return cluster, (*answers, *more)
    return None, answers  # where its brokers were, others are by now


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


async def _call_kept(
    site: Site, now_ms: Callable[[], int], kept_brokers: Callable[[], Awaitable[SourceBrokers]]
) -> tuple[SourceBrokers, tuple[BrokerAnswer, ...]]:
    kept = await kept_brokers()
    named = site.bootstrap()
    brokers = {site.dial(*server): site.access(server.host) for server in map(parse_address, kept.addresses)}
    return kept, await call_brokers({at: access for at, access in brokers.items() if at not in named}, now_ms)


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
