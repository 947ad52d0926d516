"""Where a source's logs ended when its link was promoted: what came to the site that was left behind that came since.

Kept at the target beside what the worker sees of the source's ends, in entries of their own ("fence", one for each
share of the topics): the worker looks on until it notices its fence, and what it sees then says nothing of the moment.
An entry names the operations whose promotion it speaks of, so that none of another time is taken for it, whenever it
was written. A link that stands promoted is promoted again for groups that follow: the first fence counts,
unless clients went back along a link back in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from broker.wire.vocabulary import NO_LEADER_EPOCH, TopicPartition
from mirror.offsets.ends_entries import ENDS_VERSION, dump_entry, ends_key, share_of

FENCE_KIND: Final = "fence"


class FenceEnd(NamedTuple):
    """A source log ended there at `at_ms` (Unix time). `is_told`: the source said so right before the promotion, else
    it is the last that was seen of it. `unshown_to`: its leader, of `epoch`, had more, that nobody was shown; 0: none.
    """

    end: int
    at_ms: int
    is_told: bool
    unshown_to: int = 0
    epoch: int = NO_LEADER_EPOCH


FenceEnds: TypeAlias = Mapping[TopicPartition, FenceEnd]
NO_ENDS: Final[FenceEnds] = {}


def fence_entries(operation_ids: Iterable[str], ends: FenceEnds) -> list[tuple[bytes, bytes]]:
    """Keys and values. Pure."""
    shares: dict[int, dict[str, Any]] = {}
    ids = list(dict.fromkeys(operation_ids))
    for where, kept in sorted(ends.items()):
        entry = shares.setdefault(share_of(where.topic), {"v": ENDS_VERSION, "operation_ids": ids, "topics": {}})
        at = str(where.partition)
        entry["topics"].setdefault(where.topic, {})[at] = [kept.end, kept.at_ms, int(kept.is_told)]
        if kept.unshown_to:  # earlier versions pass over it
            entry.setdefault("unshown", {}).setdefault(where.topic, {})[at] = [kept.unshown_to, kept.epoch]
    return [(ends_key(FENCE_KIND, share), dump_entry(entry)) for share, entry in sorted(shares.items())]


def read_fence_ends(entries: Iterable[Mapping[str, Any]]) -> dict[str, FenceEnds]:
    """By operation, of the newest entry of each share. One that cannot be understood says nothing. Pure."""
    found: dict[str, dict[TopicPartition, FenceEnd]] = {}
    for entry in entries:
        try:
            ends = {
                TopicPartition(name, int(number)): FenceEnd(int(end), int(at_ms), bool(is_told))
                for name, partitions in entry["topics"].items()
                for number, (end, at_ms, is_told) in partitions.items()
            }
            for name, partitions in entry.get("unshown", {}).items():
                for number, (end, epoch) in partitions.items():
                    where = TopicPartition(name, int(number))
                    ends[where] = ends[where]._replace(unshown_to=int(end), epoch=int(epoch))
            for operation_id in entry["operation_ids"]:
                found.setdefault(str(operation_id), {}).update(ends)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return dict(found)
