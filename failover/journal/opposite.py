"""A move the other way at the same time: its journal stands at this one's source, and neither fences the other."""

from __future__ import annotations

from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.errors import ClientError
from failover.journal.log import load_operations
from failover.journal.standing import refuse_second
from failover.limits import SOURCE_ROLE_S
from failover.observing.sites import Sites
from failover.running.patience import patiently


async def refuse_opposite(sites: Sites, *, even_without_source: bool) -> None:
    """Raises OperationUnderWay where one has not ended, but for the failback that this is a step of. To be asked when
    this one's own first entry is written: then of two that begin at once one sees the other, or both do. ClientError,
    but `even_without_source`, where the source does not say.
    """
    source = sites.source
    if source is None:
        return
    if not even_without_source:
        await patiently(lambda: _refuse(sites))
        return
    with suppress(ClientError, TimeoutError):
        async with timeout(SOURCE_ROLE_S):
            await _refuse(sites)


async def _refuse(sites: Sites) -> None:
    if sites.source is not None:
        ends = (sites.link.target.name, sites.link.source.name)
        operations = await load_operations(sites.source)
        refuse_second({name: log for name, log in operations.items() if name != sites.within}, ends, sites.now_ms())
