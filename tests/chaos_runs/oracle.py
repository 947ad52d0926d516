"""What a mirror must hold, by content: pure comparisons over what both logs have at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Content = tuple[Any, ...]
"""All of a record but its offset; the writers give each record a value of its own."""


@dataclass(frozen=True)
class Differences:
    """Between a source and its mirror: contents, in the source's order (`extra`: in the target's)."""

    lost: list[Content] = field(default_factory=list)
    twice: list[Content] = field(default_factory=list)
    extra: list[Content] = field(default_factory=list)
    reordered: int = 0
    """Records that stand at the target behind one that comes later at the source."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.twice or self.extra or self.reordered)


def compare(source: Sequence[Content], target: Sequence[Content]) -> Differences:
    """The target must hold the source's records, all of them, once, in order, and nothing else."""
    there, wanted = Counter(target), Counter(source)
    lost = [content for content, count in wanted.items() if there[content] < count]
    twice = [content for content, count in there.items() if content in wanted and count > wanted[content]]
    extra = [content for content in there if content not in wanted]
    return Differences(lost, twice, extra, out_of_order(source, target))


def out_of_order(source: Sequence[Content], target: Iterable[Content]) -> int:
    """Of the target's records that are at the source, each once, those that come too late."""
    place: dict[Content, int] = {}
    for at, content in enumerate(source):
        place.setdefault(content, at)
    highest, late, seen = -1, 0, set()
    for content in target:
        if content not in place or content in seen:
            continue
        seen.add(content)
        late += place[content] < highest
        highest = max(highest, place[content])
    return late
