"""Where a target's logs ended right behind a promotion's fence: nothing that the link wrote before stands behind that.

Applications write to a promoted target for hours, and whoever asks what of the link stands behind its checkpoint would
read all of that. What is said here stays true whatever comes later: of the producer's epochs before the fence's, in the
topic of that id. So it is held against the checkpoint's writer, and not against what the link may do now: of a session
that came behind the fence it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mirror.offsets.ends_entries import share_of
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.offset_map import Where
from mirror.offsets.promotion_entries import FencedEnd, FencedLogs, FencedTopic
from mirror.offsets.recovery import TailBatch


@dataclass(frozen=True, slots=True)
class FencedLog:
    """The log ended at `end` when its topic had this id, and behind the marker of `fence`; `operation_id` is of the
    last promotion that the entry speaks of.
    """

    topic_id: str
    end: int
    fence: Writer
    operation_id: str

    def read_to(self, checkpoint: Checkpoint, topic_id: str) -> int | None:
        """The target offset before which all stands that the checkpoint's writer wrote in the topic of this id; None:
        this does not tell. Pure.
        """
        writer, fence = checkpoint.writer, self.fence
        is_of_topic = bool(topic_id) and topic_id == self.topic_id
        is_fenced = writer.producer_id == fence.producer_id and writer.epoch < fence.epoch
        # The marker stands behind what was acknowledged, but in a log that has lost that: what is there now tells it.
        return self.end if is_of_topic and is_fenced and checkpoint.end.target_next < self.end else None


LogsFenced: TypeAlias = Mapping[Where, FencedLog]
NOT_FENCED: Final[LogsFenced] = {}


def is_fence(batch: TailBatch, checkpoint: Checkpoint) -> bool:
    """Whether the batch is a marker behind which the checkpoint's writer can have written nothing. Pure."""
    writer = checkpoint.writer
    return batch.is_control and batch.producer_id == writer.producer_id and batch.producer_epoch > writer.epoch


def fenced_entries(operation_id: str, logs: LogsFenced) -> list[FencedLogs]:
    """One for each share of the topics that has any. Pure."""
    shares: dict[int, dict[tuple[str, str], list[FencedEnd]]] = {}
    for (topic, partition), log in sorted(logs.items()):
        ends = shares.setdefault(share_of(topic), {}).setdefault((topic, log.topic_id), [])
        ends.append(FencedEnd(partition, log.end, *log.fence))
    return [
        FencedLogs(share, operation_id, tuple(FencedTopic(*named, tuple(ends)) for named, ends in topics.items()))
        for share, topics in sorted(shares.items())
    ]


def logs_of(entries: Iterable[FencedLogs]) -> dict[Where, FencedLog]:
    """Pure."""
    return {
        (topic.topic, end.partition): FencedLog(
            topic.topic_id, end.end, Writer(end.producer_id, end.epoch), entry.operation_id
        )
        for entry in entries
        for topic in entry.topics
        for end in topic.ends
    }
