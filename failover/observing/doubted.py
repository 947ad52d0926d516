"""Where what the source says may be of another log than was mirrored, and what is known all the same.

A hold of the link's worker says so of a partition that lost its leader, or whose log could not be read: that speaks of
what the source tells from then on. Of a partition that tells nothing the target knows as much as of a dead site. Where
a group stands there its coordinator may tell, though, and that counts where the log that it read is proved to be the
one that was mirrored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset, Partition, Topic
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from failover.observing.looking import Asking, LogsSeen
from mirror.api import Checkpoint, Link, LinkState, in_doubt_now

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Doubted:
    """Source partitions whose logs are in doubt (`logs`), where no offset of a group may be translated (`offsets`), and
    those of these that tell nothing of their logs (`silent`): groups go on there as with a source that is gone.
    `untold`: all that tell nothing. `held`: of the `logs` those that nothing but a hold of the link's worker puts in
    doubt, which it takes away when it has compared them, and since when (Unix ms, the worker's clock).
    """

    logs: frozenset[Where]
    offsets: frozenset[Where]
    silent: frozenset[Where] = frozenset()
    untold: frozenset[Where] = frozenset()
    held: Mapping[Where, int] = field(default_factory=dict)

    def with_untranslated(self, offsets: AbstractSet[Where]) -> Doubted:
        """`offsets`: where nothing can be translated by the maps as they were read. A link back had brought something
        to a log that tells nothing, say, and nobody can read what and where: it is as with a source that is gone, too.
        """
        return replace(self, silent=self.silent | (self.untold & offsets) - self.logs)

    def parted(
        self, told: Mapping[TopicPartition, CommittedOffset], written: Iterable[Where]
    ) -> tuple[dict[TopicPartition, CommittedOffset], set[Where]]:
        """Of a group that the source tells of: the offsets that count, and where it is taken as one of a lost source
        would be: where those do not, or the link brought it (`written`).
        """
        counts = {at: found for at, found in told.items() if at not in self.silent}
        return counts, {at for at in (*told, *written) if at in self.silent}


async def doubted(
    link: Link,
    state: LinkState,
    sites: tuple[Cluster | None, Cluster],
    logs: LogsSeen,
    asking: Asking,
    parted: frozenset[Where] = frozenset(),
) -> Doubted:
    """`sites`: the source, None where it is gone, and the target. `parted`: where the source was seen to have others
    than were mirrored from it. Raises ClientError, where not `asking.in_part`.
    """
    entries, (source, target) = state.entries, sites
    told, ledger = entries.in_doubt(asks_source=True), frozenset(entries.in_doubt(asks_source=False))
    if source is None:
        return Doubted(ledger | parted, frozenset(told))  # what was seen of its log stays so when it is gone
    partitions, held, found = _by_place(logs.topics), told.keys() - ledger, set(told)
    is_untold = asking.missed and not logs.topics  # which topics there are the source does not say
    mirrored = entries.checkpoints.keys()
    untold = frozenset(at for at in mirrored if at not in logs.ends and (is_untold or at in partitions))
    silent = held & untold
    if held - silent:  # logs are not compared with those that tell nothing
        found = await asking.ask(in_doubt_now(link, entries, source, target), found)
    led = silent & partitions.keys()
    same = {at for at in led if is_led_by_nobody_since(entries.checkpoints.get(at), partitions[at])}
    others = entries.of_other_topics(logs.topics).keys()
    doubted_logs = frozenset((found - silent) | others | parted)
    holds = ((at, entries.holds.get(at) or entries.holds.get((at[0], None))) for at in held & doubted_logs)
    only_held = {at: hold.at_ms for at, hold in holds if hold is not None and at not in others | parted}
    return Doubted(doubted_logs, frozenset(found - same), frozenset(silent - same), untold, only_held)


def is_led_by_nobody_since(checkpoint: Checkpoint | None, partition: Partition) -> bool:
    """Whether a partition has no leader, and had none since the one that appended the last mirrored record.

    An epoch goes up by one when a leader goes, and by one more when another comes, or the same. So nobody can have read
    there what was not mirrored, or is to be mirrored, from that log. It goes up as well when a dead follower leaves the
    ISR, which cannot be told from another leader that came: such a partition is not known to be the same.
    """
    if checkpoint is None or not checkpoint.leader_epochs or partition.leader_id != NO_LEADER:
        return False
    return 0 <= partition.leader_epoch - checkpoint.leader_epochs[-1].leader_epoch <= 1


def _by_place(topics: Mapping[str, Topic]) -> dict[Where, Partition]:
    return {(name, one.partition): one for name, topic in topics.items() for one in topic.partitions}
