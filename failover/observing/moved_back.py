"""A link that was moved, and whose clients went back since, along a link back: it was not let run again after that.

Its target has nothing of what was written at its source since then, so that it is not moved already, and cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from failover.journal.log import load_operations
from failover.journal.standing import OperationState, standing_of
from failover.limits import SOURCE_ROLE_S
from failover.observing.sites import Sites
from mirror.api import MirrorError, StateEntries, is_later, promotion_of, read_entries

_NOT_DONE = frozenset({OperationState.GIVEN_UP, OperationState.ABORTED})


async def moved_back_by(sites: Sites) -> tuple[str, ...]:
    """Links back that were promoted since the link was, or of which nothing says that it was before. By what their own
    states say; where one runs again by now, or cannot be asked, by what the link's state was told when that move began,
    unless its journal says that it came to nothing. Behind a look, which has completed the link. Raises ClientError,
    StateDamaged for the target.
    """
    ours = await sites.readers.states.of(sites.link).read(sites.target)
    promotion = promotion_of(ours)
    if promotion is None:
        return ()
    told = {name: back.operation_id for name, back in ours.backs.items() if back.operation_id not in promotion.after}
    if sites.source is not None:
        with suppress(ClientError, MirrorError, TimeoutError):
            async with timeout(SOURCE_ROLE_S):
                return tuple(sorted(await _by_source(sites, sites.source, ours, told)))
    return tuple(sorted(told))


async def _by_source(sites: Sites, source: Cluster, ours: StateEntries, told: Mapping[str, str]) -> set[str]:
    found = set()
    for back in sites.readers.completed.get(sites.link.name, sites.link).reverse_links:
        theirs = await read_entries(back, source, only=())
        if promotion_of(theirs) is not None:
            found |= {back.name} if is_later(theirs, ours) is not False else set()
        elif back.name in told:
            log = (await load_operations(source)).get(told[back.name])
            came_to_nothing = log is not None and standing_of(log, sites.now_ms()).state in _NOT_DONE
            found |= set() if came_to_nothing else {back.name}
    return found
