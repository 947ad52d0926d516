"""Of a link that was moved: what its source alone has, which is all that the source's death would take along it."""

from __future__ import annotations

from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from failover.failback.stranding import Stranded, read_stranded
from failover.limits import DRILL_STRANDED_S
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class MovedLink:
    """Its target was promoted, and it brings nothing more. `stranded_records`: committed ones that the source alone has
    and of which nobody decided that they stay there; None: not known, for what `stranded` says of its tails, or, where
    that is None, since they could not be read (`why_not_known`).
    """

    stranded_records: int | None = None
    stranded: Stranded | None = None
    why_not_known: str = ""


async def look_at_moved(link: Link, source: Cluster, target: Cluster) -> MovedLink:
    """Raises nothing: what cannot be told says why."""
    try:
        _, found = await read_stranded(link, source, target, within_s=DRILL_STRANDED_S)
    except FarshoreError as error:
        return MovedLink(why_not_known=str(error))
    return MovedLink(found.undecided_records, found)
