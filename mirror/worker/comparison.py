"""What comparing a partition's logs says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mirror.offsets.entries import LastRecord


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether both logs still are those that the state speaks of (`comparing.py`): reasons in words, "" for none.
    Where one is doubted, the source's records from `agreed_to` on are not at the target, and `last` is the last equal
    copy before it. `is_unlike`: the source has something else in the last mirrored record's place.
    `epochs_stand`: by its epochs it is as it was read; `epochs_denied`: not so, and yet it has what was mirrored.
    `is_whole`: of a source that was short once it is proved that it has again all that was read.
    """

    source_parted: str = ""
    target_lost: str = ""
    agreed_to: int = 0
    last: LastRecord | None = None
    epochs_stand: bool = False
    epochs_denied: bool = False
    is_unlike: bool = False
    is_whole: bool = False

    @property
    def is_doubted(self) -> bool:
        return bool(self.source_parted or self.target_lost)


NO_DOUBT: Final = Comparison()
