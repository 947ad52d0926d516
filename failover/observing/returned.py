"""How much of what a source had, and the mirror had not passed, the target may have already: links back brought it.

The source's log had records of its own, and such as a link back had brought from the target's log. Of the latter there
are no more than that log holds, behind where that link had come, of what its own link did not bring. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from broker.wire.vocabulary import TopicPartition
from failover.limits import INTERVALS_COUNTED
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import PartitionView, Snapshot
from mirror.api import Link, LinkState, Observation, OthersCounter, Returns


@dataclass(frozen=True, slots=True)
class Returned:
    """Of one look at a link, whose source's ends are those that were last seen (`observation`)."""

    link: Link
    state: LinkState
    observation: Observation
    target_ends: Mapping[TopicPartition, int]
    _counter: OthersCounter = field(default_factory=lambda: OthersCounter(INTERVALS_COUNTED))

    def is_shared(self, at: TopicPartition) -> bool:
        """Whether the target's own records come back to the source: as it is declared, or as the mirror had seen it."""
        ways = (*self.link.reverse_links, *self.link.round_links)
        return at in self.observation.returns or any(way.selects_topic(at.topic) for way in ways)

    def at_most(self, at: TopicPartition, unmirrored: int | None) -> int | None:
        """Of so many `unmirrored` offsets (None: of a source that tells them itself); None: any of them."""
        others = (*self.link.side_links, *self.link.round_links)
        backs = [back for back in self.link.reverse_links if back.selects_topic(at.topic)]
        returns = self.observation.returns.get(at)
        checkpoint = self.state.entries.checkpoints.get(at)
        if len(backs) > 1 or any(other.selects_topic(at.topic) for other in others):
            return None
        if checkpoint is not None and checkpoint.left_out:
            return None
        if (returns is None and not backs) or unmirrored == 0:
            return 0
        if unmirrored is None:  # what is there will be read
            return None
        return self._of_target(at, returns, unmirrored)

    def _of_target(self, at: TopicPartition, returns: Returns | None, unmirrored: int) -> int | None:
        target_end = self.target_ends.get(TopicPartition(self.link.target_topic(at.topic), at.partition))
        if target_end is None:  # it has nothing that could have come from there
            return 0
        found, checkpoint = self.state.map.find(*at), self.state.entries.checkpoints.get(at)
        end = self.state.map.mirrored_end(*at)
        read_from: int | None = 0
        if returns is not None and found is not None and end is not None and checkpoint is not None:
            read_from = returns.read_from(end.source_next, checkpoint.topic_ids)
        elif returns is not None and not returns.ways:
            return None
        if read_from is None or read_from > target_end:
            return None
        if found is None:
            return min(unmirrored, target_end - read_from)
        return self._counter.count(found, read_from, target_end, unmirrored)


def no_more_returned(before: Snapshot, now: Snapshot) -> Snapshot:
    """Of a source that was dead at both looks: what came to the target since the first one cannot have reached it, as
    the marker of the fence in between. Pure.
    """
    if (before.source_finding, now.source_finding) != (SiteFinding.DEAD, SiteFinding.DEAD):
        return now
    known = {(view.topic, view.partition): view for view in before.partitions}
    return replace(now, partitions=tuple(_capped(known.get((one.topic, one.partition)), one) for one in now.partitions))


def _capped(before: PartitionView | None, now: PartitionView) -> PartitionView:
    if before is None or before.returned_at_most is None or before.seen_source_end != now.seen_source_end:
        return now
    limit = before.returned_at_most if now.returned_at_most is None else now.returned_at_most
    return replace(now, returned_at_most=min(before.returned_at_most, limit))
