"""Holds that outlived their worker: those of a promoted link, which nobody takes back until the link runs again.

While a link runs a session compares the logs of a partition that was held, and takes the hold back. Of one that is
promoted, whose partition has a leader again, it would stand for good, and with it the doubt about the partition's
offsets: so who asks about those compares the logs himself, as a session would, and believes no hold that they refute.
"""

from __future__ import annotations

from dataclasses import replace

from broker.client.cluster import Cluster
from mirror.errors import MirrorError
from mirror.link import Link
from mirror.offsets.hold_entries import Hold
from mirror.offsets.offset_map import Where
from mirror.offsets.promotions import promotion_of
from mirror.offsets.state_entries import StateEntries
from mirror.worker.origins import Passage
from mirror.worker.parted import partings_by


async def in_doubt_now(link: Link, entries: StateEntries, source: Cluster, target: Cluster) -> set[Where]:
    """As `StateEntries.in_doubt` of a source that is asked, without partitions that nothing but a promoted link's hold
    puts in doubt, and whose logs are seen to be those that were mirrored. One that does not answer, or whose logs part,
    stays in doubt. Raises ClientError.
    """
    found = entries.in_doubt(asks_source=True)
    held = {at for at, why in found.items() if isinstance(why, Hold) and link.selects_topic(at[0])}
    if not held or promotion_of(entries) is None:
        return set(found)
    return found.keys() - await _refuted(link, entries, held, source, target)


async def _refuted(link: Link, entries: StateEntries, held: set[Where], source: Cluster, target: Cluster) -> set[Where]:
    of_these = replace(entries, checkpoints={at: entries.checkpoints[at] for at in held})
    passage = Passage(link, source, target)
    try:
        await passage.look(target, entries.left_to())
        parted = await partings_by(passage, (source, target), of_these)
    except MirrorError:  # a registry that cannot be read, say: then nothing refutes them
        return set()
    return held - {(one.topic, one.partition) for one in parted}
