"""Pages: intervals of a partition's map that will not change any more, packed into one entry of the link's state. Pure.

A page says all that the map says of the source offsets [first, to), so whatever else the state says of those is not
needed any more. It is opened only when an offset in it is asked for. Why so: docs/adr/0018-the-map-in-pages.md.
"""

from __future__ import annotations

import sys
from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import add, sub
from typing import Any, Final, NamedTuple

from broker.wire.compression import Compression, compress, decompress
from broker.wire.errors import WireError
from mirror.errors import StateDamaged
from mirror.offsets.intervals import Interval
from mirror.offsets.limits import PAGES_OPEN_MAX

PAGE_VERSION: Final = 2
"""Of a page's value: versions of farshore without pages refuse it, as written by a newer one."""
_WIDTHS: Final = "BHIQ"
"""Typecodes of arrays: 1, 2, 4 and 8 bytes for each number, little-endian."""


@dataclass(frozen=True, slots=True)
class Page:
    """`count` intervals (at least one) from `first` to `last`: all that have their source offset before `to`.

    `producer_ids` wrote what they describe. `packed` has two columns, by how much an interval's target offset is behind
    the one before, and by how much more the source offset is; each less the `least` there, in numbers of its `widths`.
    """

    topic: str
    partition: int
    first: Interval
    last: Interval
    to: int
    count: int
    producer_ids: tuple[int, ...]
    least: tuple[int, int]
    widths: str
    packed: bytes

    @property
    def key_source(self) -> int:
        """The source offset that the page is kept under."""
        return self.first.source_start


@dataclass(frozen=True, slots=True)
class VoidPage:
    """Takes back a page that another one has taken in, or whose records the target has no more."""

    topic: str
    partition: int
    key_source: int


class Columns(NamedTuple):
    """The intervals of a page, as their source and their target starts."""

    sources: Sequence[int]
    targets: Sequence[int]


def pack_page(topic: str, partition: int, intervals: Sequence[Interval], to: int, producer_ids: Iterable[int]) -> Page:
    """`intervals` in order, at least one, all before `to`."""
    sources, targets = zip(*intervals, strict=True)
    rises = list(map(sub, targets[1:], targets))
    longer = list(map(sub, map(sub, sources[1:], sources), rises))
    least = (min(rises, default=0), min(longer, default=0))  # a target that lost markers only lets offsets fall
    columns = [_column(numbers, low) for numbers, low in zip((rises, longer), least, strict=True)]
    return Page(
        topic,
        partition,
        intervals[0],
        intervals[-1],
        to,
        len(intervals),
        tuple(sorted(set(producer_ids))),
        least,
        "".join(column.typecode for column in columns),
        compress(Compression.ZSTD, b"".join(_little_endian(column).tobytes() for column in columns)),
    )


@lru_cache(maxsize=PAGES_OPEN_MAX)
def open_page(page: Page) -> Columns:
    """Raises StateDamaged for what `pack_page` did not make."""
    steps, size_bytes = page.count - 1, 0
    columns: list[array[int]] = []
    try:
        expected = sum(array(width).itemsize * steps for width in page.widths)
        data = decompress(Compression.ZSTD, page.packed, max(1, expected))
        for width in page.widths:
            column = array(width)
            column.frombytes(data[size_bytes : size_bytes + column.itemsize * steps])
            size_bytes += column.itemsize * steps
            columns.append(_little_endian(column))
        rises, longer = (list(map(low.__add__, column)) for low, column in zip(page.least, columns, strict=True))
        targets = array("q", accumulate(rises, initial=page.first.target_start))
        sources = array("q", accumulate(map(add, rises, longer), initial=page.first.source_start))
    except (WireError, ValueError, OverflowError) as error:
        raise _damaged(page) from error
    if len(data) != size_bytes or len(sources) != page.count or Interval(sources[-1], targets[-1]) != page.last:
        raise _damaged(page)
    return Columns(sources, targets)


def _damaged(page: Page) -> StateDamaged:
    where = f"{page.topic} partition {page.partition}"
    return StateDamaged(f"the link's map of {where} from source offset {page.key_source} on cannot be read")


def _column(numbers: Sequence[int], least: int) -> array[int]:
    """What each is more than the least of them, in the smallest width that holds it."""
    span = max(numbers, default=least) - least
    width = next(width for width in _WIDTHS if span < 1 << 8 * array(width).itemsize)
    return array(width, map((-least).__add__, numbers))


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def page_key(page: Page | VoidPage) -> list[Any]:
    return ["page", page.topic, page.partition, page.key_source]


def encode_page(page: Page) -> dict[str, Any]:
    """As the fields of a JSON value."""
    return {
        "v": PAGE_VERSION,
        "first": page.first,
        "last": page.last,
        "to": page.to,
        "count": page.count,
        "producer_ids": page.producer_ids,
        "least": page.least,
        "widths": page.widths,
        "packed": b2a_base64(page.packed, newline=False).decode(),
    }


def decode_page(key: Sequence[Any], fields: Mapping[str, Any]) -> Page:
    """Raises ValueError, KeyError, TypeError."""
    _kind, topic, partition, _source = key
    return Page(
        topic,
        partition,
        Interval(*map(int, fields["first"])),
        Interval(*map(int, fields["last"])),
        int(fields["to"]),
        int(fields["count"]),
        tuple(map(int, fields["producer_ids"])),
        (int(fields["least"][0]), int(fields["least"][1])),
        str(fields["widths"]),
        a2b_base64(fields["packed"]),
    )


def standing_pages(pages: Iterable[Page]) -> list[Page]:
    """In order, without those that a larger one has taken in, which a crash left behind. Raises StateDamaged."""
    found: list[Page] = []
    for page in sorted(pages, key=lambda page: page.key_source):
        if not found or page.key_source >= found[-1].to:
            found.append(page)
        elif page.to > found[-1].to:
            raise _damaged(page)
    return found
