"""What a link's state says of one partition's map, kept small while a session writes there. Pure.

Each run of batches with new intervals leaves a block. What is proved is packed: a page takes in the blocks, and the
pages before it that are not larger than twice itself, so that a partition has few entries and each interval is packed
anew a few times only. Pages go when the target's retention has taken their records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from mirror.offsets.entries import Block, VoidBlock
from mirror.offsets.intervals import End
from mirror.offsets.limits import (
    BLOCK_INTERVALS_MAX,
    PACKED_BLOCKS_MIN,
    PACKED_INTERVALS_MIN,
    PAGE_INTERVALS_MAX,
    PAGES_AT_ONCE,
)
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page, VoidPage, pack_page
from mirror.offsets.recovery import SEQUENCE_MASK

MapChange: TypeAlias = Page | VoidPage | VoidBlock


class MapLedger:
    """The blocks of one partition that stand in the state, by `Block.key_source`; its pages are those of its map."""

    def __init__(self, topic: str, partition: int) -> None:
        self._where = (topic, partition)
        self._blocks: dict[int, Block] = {}

    def note(self, changes: Iterable[object]) -> None:
        """These are written, or are being written, to the state; what is not of blocks is passed over."""
        for change in changes:
            if isinstance(change, Block):
                self._blocks[change.key_source] = change
            elif isinstance(change, VoidBlock):
                self._blocks.pop(change.key_source, None)

    def correct(self, block: Block, source_next: int) -> list[Block]:
        """What is to be written, in this order, of a batch that landed elsewhere than predicted and ends before
        `source_next`. The block that stands under that key may speak of later batches, too: what it says of them stays,
        since by nothing else a start would know which source offsets their sequences stand for.
        """
        standing = self._blocks.get(block.key_source)
        changes = [block]
        if standing is not None and standing.writer == block.writer:
            later = tuple(interval for interval in standing.intervals if interval.source_start >= source_next)
            if later:
                step = later[0].target_start - standing.intervals[0].target_start
                sequence = (standing.sequence + step) & SEQUENCE_MASK
                changes.insert(0, replace(standing, sequence=sequence, intervals=later))
        self.note(changes)
        return changes

    def pack(self, found: Intervals, end: End) -> list[MapChange]:
        """What makes the state smaller, to be written in this order and behind a checkpoint of `end`.

        `found` is the partition's map, and is packed with it. Of a long map no more than `PAGES_AT_ONCE`: others wait.
        """
        changes: list[MapChange] = []
        for _ in range(PAGES_AT_ONCE):
            more = self._pack_some(found, end)
            if not more:
                break
            changes += more
        return changes

    def _pack_some(self, found: Intervals, end: End) -> list[MapChange]:
        """About a page's worth."""
        if not _is_worth_it(self._blocks.values()):
            return []
        blocks, to = self._proved(end)
        if not _is_worth_it(blocks):
            return []
        changes: list[MapChange] = []
        count = found.count_open_before(to)
        if count:
            taken = _taken_in(found.pages, count)
            producer_ids = {block.writer.producer_id for block in blocks}.union(*(page.producer_ids for page in taken))
            page = pack_page(*self._where, found.last(len(taken), count), to, producer_ids)
            found.pack(len(taken), count, page)
            changes += [page, *(VoidPage(*self._where, old.key_source) for old in taken[1:])]  # its key is the first's
        changes += [VoidBlock(*self._where, block.key_source) for block in blocks]
        self.note(changes)
        return changes

    def _proved(self, end: End) -> tuple[list[Block], int]:
        """The first blocks, about a page's worth of them, and a source offset that the end has passed.

        They are before it as a whole, and all others behind it.
        """
        standing = sorted(self._blocks.values(), key=lambda block: block.key_source)
        found, packed_to, reached, count = 0, 0, -1, 0
        for at, block in enumerate(standing):
            reached, count = max(reached, block.intervals[-1].source_start), count + len(block.intervals)
            if reached >= end.source_next or (found and count > PAGE_INTERVALS_MAX):
                break
            if block.intervals[-1].target_start >= end.target_next:  # an offset gap that others may still move
                break
            following = standing[at + 1].key_source if at + 1 < len(standing) else end.source_next
            if reached < following:
                found, packed_to = at + 1, min(following, end.source_next)
        return standing[:found], packed_to

    def trim(self, found: Intervals, log_start: int) -> list[VoidPage]:
        """Take back the pages whose records the target, whose log begins at `log_start`, has no more."""
        spent = found.spent_pages(log_start)
        found.drop_pages(len(spent))
        return [VoidPage(*self._where, page.key_source) for page in spent]


def _is_worth_it(blocks: Collection[Block]) -> bool:
    return len(blocks) >= PACKED_BLOCKS_MIN or sum(len(block.intervals) for block in blocks) >= PACKED_INTERVALS_MIN


def _taken_in(pages: Sequence[Page], count: int) -> Sequence[Page]:
    """The last pages, with which `count` intervals become one."""
    first = len(pages)
    while first and pages[first - 1].count <= min(2 * count, PAGE_INTERVALS_MAX - count):
        first -= 1
        count += pages[first].count
    return pages[first:]


def join_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The same, with neighbours as one whose sequences go on as their target offsets do."""
    joined: list[Block] = []
    for block in blocks:
        if joined:
            before = joined[-1]
            step = block.intervals[0].target_start - before.intervals[0].target_start
            in_step = before.writer == block.writer and (block.sequence - before.sequence) & SEQUENCE_MASK == step
            if in_step and len(before.intervals) + len(block.intervals) <= BLOCK_INTERVALS_MAX:
                block = replace(joined.pop(), intervals=before.intervals + block.intervals)
        joined.append(block)
    return joined
