"""Which of two links between two sites, one each way, was promoted later: the active site is the target of that one.

Each link's state stands at its own target, and the machines that promoted them go by clocks of their own. So a
promotion says by name which promotions of links back it follows, and their states are told of it where they can be
reached; a session of a link, which reads its source anyway, writes down what stands there. No clock is asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import side_by_side
from broker.client.log import append
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import MirrorError
from mirror.limits import TELL_LINKS_BACK_MS
from mirror.link import Link
from mirror.offsets.entries import LinkRun, RunState, encode_key, encode_value
from mirror.offsets.promotion_entries import BackPromotion
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries


def promotion_of(entries: StateEntries) -> LinkRun | None:
    """That of a link which is promoted now."""
    run = entries.run
    return run if run is not None and run.state is RunState.PROMOTED else None


def run_behind(known: LinkRun | None, state: RunState, operation_id: str, at_ms: int) -> LinkRun:
    """What a link may do from now on, by what is no promotion: which promotions of links back its own last one followed
    is still known then. Pure.
    """
    return LinkRun(state, operation_id, at_ms, known.after if known is not None else ())


def went_back(ours: StateEntries, theirs: StateEntries) -> bool:
    """Whether the first of these links is promoted, and the second, its link back, was so since, and is not any more.
    Pure.
    """
    one, other = promotion_of(ours), theirs.run
    return one is not None and other is not None and not promotion_of(theirs) and one.operation_id in other.after


def is_later(ours: StateEntries, theirs: StateEntries) -> bool | None:
    """Whether the promotion of the first of these links, which both are promoted, came after that of the second.

    None: nothing says so, since neither site knew of the other's, or what they say is at odds. Pure.
    """
    one, other = promotion_of(ours), promotion_of(theirs)
    if one is None or other is None:
        return None
    follows = other.operation_id in one.after or _is_followed(other, theirs, ours.link.name, one.operation_id)
    is_followed = one.operation_id in other.after or _is_followed(one, ours, theirs.link.name, other.operation_id)
    return follows if follows is not is_followed else None


def is_over(promotion: LinkRun, entries: StateEntries, standing: Container[str]) -> bool:
    """Whether clients went back along a link back since this promotion, so that one that follows is another one: the
    link's state was told of that behind it, and it is known to have been done (`standing`), not only begun. Pure.
    """
    since = (back.operation_id for back in entries.backs.values() if back.operation_id not in promotion.after)
    return any(operation_id in standing for operation_id in since)


def _is_followed(run: LinkRun, entries: StateEntries, back: str, by: str) -> bool:
    """Whether the link's state was told of that promotion of a link back, and not before its own."""
    told = entries.backs.get(back)
    return told is not None and told.operation_id == by and by not in run.after


async def standing_promotions(link: Link, source: Cluster) -> tuple[BackPromotion, ...]:
    """Of the links back, for the unit that keeps them; one that cannot be read now says nothing: then it is not known
    which came later, and that is said.
    """
    found = []
    for back in link.reverse_links if link.is_lead_unit else ():
        with suppress(ClientError, MirrorError):
            found += _standing(await read_entries(back, source, only=()))
    return tuple(found)


async def tell_links_back(link: Link, source: Cluster, operation_id: str) -> tuple[BackPromotion, ...]:
    """Before the link is promoted by this operation: write that into the states of the links back, at its source, which
    may run -> their promotions that stand. One that takes longer than TELL_LINKS_BACK_MS, or fails, is left, and keeps
    none of the others.
    """
    told = Record(0, source.clock.now_ms(), *_encoded(BackPromotion(link.name, operation_id)))
    found = await side_by_side(_tell(back, source, told) for back in link.reverse_links)
    return tuple(one for standing in found for one in standing)


async def _tell(back: Link, source: Cluster, told: Record) -> list[BackPromotion]:
    """-> its promotion, if it stands, also where it could not be told."""
    standing = list[BackPromotion]()
    with suppress(ClientError, MirrorError, TimeoutError):
        async with timeout(TELL_LINKS_BACK_MS / 1000):
            entries = await read_entries(back, source, only=())
            standing = _standing(entries)
            if entries.exists:
                await append(source, TopicPartition(back.state_topic, 0), encode_batch([told]))
    return standing


def _standing(entries: StateEntries) -> list[BackPromotion]:
    run = promotion_of(entries)
    return [] if run is None else [BackPromotion(entries.link.name, run.operation_id)]


def _encoded(entry: BackPromotion) -> tuple[bytes, bytes]:
    return encode_key(entry), encode_value(entry)


def unwritten(known: Mapping[str, BackPromotion], found: Iterable[BackPromotion]) -> list[BackPromotion]:
    """What the link's state does not say yet. Pure."""
    return [one for one in found if known.get(one.link) != one]
