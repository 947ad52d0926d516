"""What ties the offsets of a partition to its two logs, while a session reads on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirror.offsets.entries import NO_TOPIC_IDS, LastRecord, TopicIds
from mirror.offsets.histories import EPOCHS_KEPT, EpochStart, newest_epochs
from mirror.offsets.left_out import LeftOut, join_left_out


@dataclass(slots=True)
class History:
    """What ties the offsets to the two logs; a start compares it with the logs as they are then.

    `leader_epochs` are the source's, as far as was read; the last one is sent with fetches if `epochs_stand`: the
    source did not deny them, and all of them are known.
    """

    leader_epochs: list[EpochStart] = field(default_factory=list)
    last: LastRecord | None = None
    topic_ids: TopicIds = NO_TOPIC_IDS
    epochs_stand: bool = False
    epochs_to: int = -1
    """As in `Checkpoint`, while the position is the one that the session began at."""
    left_out: tuple[LeftOut, ...] = ()

    def leave(self, left_out: Sequence[LeftOut]) -> bool:
        """These were left to others -> whether that is said of one of the sites for the first time."""
        known = {one.site for one in self.left_out}
        self.left_out = join_left_out(self.left_out, left_out)
        return any(one.site not in known for one in left_out)

    def read(self, began: Sequence[EpochStart], position: int) -> None:
        """These epochs began; of those before `position` the newest are kept.

        One that is lower than what was known denies that: the source is an older state of itself.
        """
        for start in began:
            while self.leader_epochs and self.leader_epochs[-1].leader_epoch > start.leader_epoch:
                self.leader_epochs.pop()
            if not self.leader_epochs or self.leader_epochs[-1].leader_epoch < start.leader_epoch:
                self.leader_epochs.append(start)
        if len(self.leader_epochs) > 2 * EPOCHS_KEPT:
            proved = newest_epochs(self.leader_epochs, position)
            self.leader_epochs = [*proved, *(start for start in self.leader_epochs if start.source_start >= position)]
