"""What the site to which clients are moved back has alone since it was lost, and of which nobody decided."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Undecided:
    """Of a promoted link the other way: so many committed records, in so many partitions, that its `source` alone has
    from before its `target` took over. `why_not_known`: why there may be more of them; "": there are not. None were
    found then, where `partitions` and `records` are None. `commands`: they see them, and come back with them saved
    first, where that would not be refused.
    """

    link: str
    source: str
    target: str
    partitions: int | None
    records: int | None
    why_not_known: str = ""
    commands: tuple[str, ...] = ()
