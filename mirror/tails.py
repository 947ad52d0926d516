"""What was lost with a promoted link's source, and is there again: counted, of those records of which nobody decided.

It is what `Split.tails` tells of, for who asks for nothing else: what was written since the promotion may be much, most
of it brought by a link back, and is read only where its time or its leader's epoch says whether a record came before,
and no further than such a record may stand.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from dataclasses import dataclass

from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets
from broker.wire.errors import WireError
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.offsets.state import LinkState
from mirror.split import NotRead, PromotedBack, Since, look_at_source, promotion_to_ask, records_behind


@dataclass(frozen=True, slots=True)
class TailsSeen:
    """The records by partition, counted by reading, where any were found; and in `not_read` where not all could be
    read, so that there may be more, or any.
    """

    records: Mapping[TopicPartition, int]
    not_read: tuple[NotRead, ...] = ()


async def look_for_tails(
    link: Link, source: Cluster, target: Cluster, state: LinkState, backs: Sequence[PromotedBack], until_s: float
) -> TailsSeen | None:
    """None: as of `promotion_to_ask`. `until_s` of the event loop: what is not read by then is told as that. Raises
    ClientError, StateDamaged.
    """
    if (run := promotion_to_ask(state, backs)) is None:
        return None
    at = await look_at_source(link, source, target, state, run)
    judged = [where for where, each in at.since.items() if each.may_have_older]
    ends = await log_end_offsets(source, judged, IsolationLevel.READ_COMMITTED) if judged else {}
    records: dict[TopicPartition, int] = {}
    untold = list(at.untold)
    for where, each in sorted(at.since.items()):
        try:
            async with timeout_at(until_s):
                async for count in _older(source, where, each, each.older_end(ends.get(where, each.start)), at.mirrors):
                    records[where] = records.get(where, 0) + count
        except TimeoutError:
            untold.append(NotRead(*where, source.site.name, ""))
        except (ClientError, WireError) as error:  # one that cannot be read hides no other
            untold.append(NotRead(*where, source.site.name, str(error)))
    return TailsSeen(records, tuple(untold))


async def _older(
    source: Cluster, where: TopicPartition, each: Since, end: int, mirrors: Container[int]
) -> AsyncGenerator[int]:
    """How many records each batch of the source's own has, of those up to `end` that came before the promotion."""
    position = each.start if each.position is None else each.position
    if position >= end:
        return
    async for header, batch in read_batches(source, where, position, end, IsolationLevel.READ_COMMITTED):
        if header.producer_id not in mirrors and (header.base_offset < each.start or each.is_older(header)):
            yield records_behind(position, header, batch)
