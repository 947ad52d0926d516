"""What the leader of a partition knows of its replicas, for one leader epoch. Pure: offsets and times are passed in.

The high watermark is the lowest log end of the replicas in sync (ISR); what lies before it is acknowledged and shown to
consumers, and every later leader has it, because leaders are elected from the ISR alone. So the ISR that counts here
must hold every replica that could be elected. A change of it is written by compare-and-set, and until its outcome is
known both the old and the new one may be in force: the *maximal* ISR, all members of either, is waited for (KIP-497).
Taking a replica in counts from the moment it is asked for, leaving one out from the moment it is written.

A new leader may not know yet how far the one before it had acknowledged. Until its own high watermark has reached the
start of its epoch it tells no end of the log, which would go back (KIP-207).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.cluster.metadata import PartitionState

NOWHERE = -1
"""The log end of a replica that has not asked for anything in this epoch."""


@dataclass(slots=True, eq=False)
class Follower:
    """`end_offset` is where it fetched last, so what it has of our log ends there. Times are steady, in ms."""

    caught_up_ms: float
    """When it last had all that the leader then had."""
    end_offset: int = NOWHERE
    log_start_offset: int = NOWHERE
    broker_epoch: int = NOWHERE
    """Of the registration in which it fetched."""
    fetched_ms: float = 0.0
    leader_end_offset: int = 2**63 - 1
    """Of the leader's log when it last fetched: whoever reaches that later had caught up with the leader then."""


class Leading:
    """One writer, the partition. `high_watermark` never goes back.

    The ISR changes in three steps: `shrink` or `expand` say what it should be, `begin_change` takes it as what may be
    in force from now on, and `written` as what is. While a change is under way no other begins; one that was refused,
    or of which it is not known what became, stays until `written` says what stands in the store.
    """

    def __init__(
        self, node_id: int, state: PartitionState, *, log_end_offset: int, high_watermark: int, now_ms: float
    ) -> None:
        """`high_watermark` is what this broker knew as a follower, or before its restart."""
        self.epoch = state.leader_epoch
        self.epoch_start_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.isr = frozenset(state.isr)
        self.pending: frozenset[int] | None = None
        self.read_at_followers = False
        """Consumers were sent there, so followers are told soon how far the high watermark is."""
        self._node_id = node_id
        self._replicas = state.replicas
        self._followers: dict[int, Follower] = {}
        self._counted: tuple[Follower, ...] = ()
        self._take_replicas(state.replicas, now_ms)
        self.advance(log_end_offset)

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Who may be in sync as far as anybody else knows."""
        return self.isr if self.pending is None else self.isr | self.pending

    @property
    def knows_end(self) -> bool:
        """Whether the high watermark is as high as any that a leader before told."""
        return self.high_watermark >= self.epoch_start_offset

    def has_enough_in_sync(self, min_insync_replicas: int) -> bool:
        """Whether what is before the high watermark has that many copies; not more than there are replicas."""
        return len(self.maximal_isr) >= min(min_insync_replicas, len(self._replicas))

    def may_append(self, min_insync_replicas: int) -> bool:
        """Whether so many are known to be in sync that what is appended now can get as many copies."""
        return len(self.isr) >= min(min_insync_replicas, len(self._replicas))

    def follower(self, node_id: int) -> Follower | None:
        return self._followers.get(node_id)

    def best_follower(self, among: Iterable[int], offset: int) -> int | None:
        """Who of them has the most of the log, from `offset` on, for a consumer to read there; None: nobody."""
        found = [
            (follower.end_offset, -node_id)
            for node_id in among
            if (follower := self._followers.get(node_id)) is not None
            and max(follower.log_start_offset, 0) <= offset <= follower.end_offset
        ]
        if not found:
            return None
        self.read_at_followers = True
        return -max(found)[1]

    def low_watermark(self, log_start_offset: int) -> int:
        """Before it no replica in sync has anything; `log_start_offset` is the leader's own."""
        return min([log_start_offset, *(follower.log_start_offset for follower in self._counted)])

    def advance(self, log_end_offset: int) -> bool:
        """Raises the high watermark to what all in sync have, given where our log ends now; whether it rose."""
        reached = log_end_offset
        for follower in self._counted:
            if follower.end_offset < reached:
                reached = follower.end_offset
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def fetched(
        self,
        node_id: int,
        end_offset: int,
        *,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: float,
        broker_epoch: int = NOWHERE,
    ) -> bool:
        """A replica asked for what follows `end_offset`, its log being ours up to there; whether the high watermark
        rose. `log_end_offset` is that of our log.

        Only for a request of this leader epoch, and one whose last epoch was compared: what is counted here is what the
        follower has in common with us.
        """
        follower = self._followers[node_id]
        if end_offset >= log_end_offset:
            follower.caught_up_ms = now_ms
        elif end_offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset, follower.log_start_offset = end_offset, log_start_offset
        follower.fetched_ms, follower.leader_end_offset = now_ms, log_end_offset
        follower.broker_epoch = broker_epoch
        return self.advance(log_end_offset)

    # -- the ISR ---------------------------------------------------------------------------------------------------

    def shrink(self, log_end_offset: int, lag_max_ms: float, now_ms: float) -> frozenset[int] | None:
        """The ISR without those that have not caught up for longer than `replica.lag.time.max.ms`; None: no change."""
        if self.pending is not None:
            return None
        late = [
            node_id
            for node_id, follower in self._followers.items()
            if node_id in self.isr
            and follower.end_offset < log_end_offset
            and now_ms - follower.caught_up_ms > lag_max_ms
        ]
        return self.isr.difference(late) if late else None

    def expand(self, node_id: int) -> frozenset[int] | None:
        """The ISR with a replica that has just fetched, if it has all that may have been acknowledged: up to our high
        watermark, and up to the start of our epoch, which the high watermark may not have reached. None: no change.
        """
        follower = self._followers[node_id]
        if self.pending is not None or node_id in self.isr:
            return None
        if follower.end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self.isr | {node_id}

    def isr_epochs(self, isr: Iterable[int], known: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """In which life each of the ISR was found in sync: the one in which it fetched last, or what was `known`."""
        epochs = dict(known)
        epochs |= {n: follower.broker_epoch for n, follower in self._followers.items() if follower.broker_epoch >= 0}
        return tuple((node, epochs[node]) for node in isr if node in epochs)

    def begin_change(self, isr: frozenset[int]) -> None:
        """Before it is asked of the store: from now on this may be the ISR."""
        assert self.pending is None
        assert self._node_id in isr
        self.pending = isr
        self._count()

    def written(self, state: PartitionState, log_end_offset: int, now_ms: float) -> bool:
        """What the store holds of this leader epoch, after a change or a look at it; whether the high watermark rose.

        Refused is a change because somebody else wrote first. Only the controller does, for a new leader epoch; the one
        that ends here keeps waiting for all that it waited for.
        """
        assert state.leader_epoch == self.epoch
        self.isr, self.pending = frozenset(state.isr), None
        self._take_replicas(state.replicas, now_ms)
        return self.advance(log_end_offset)

    def _take_replicas(self, replicas: Iterable[int], now_ms: float) -> None:
        known = self._followers
        self._replicas = tuple(replicas)
        # Those in sync have until `replica.lag.time.max.ms` from now to be heard of; others must catch up first.
        self._followers = {
            node_id: known.get(node_id) or Follower(now_ms if node_id in self.isr else float("-inf"))
            for node_id in self._replicas
            if node_id != self._node_id
        }
        self._count()

    def _count(self) -> None:
        members = self.maximal_isr
        self._counted = tuple(follower for node_id, follower in self._followers.items() if node_id in members)
