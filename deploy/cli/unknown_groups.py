"""Names of groups that nobody knows: typing errors, where both sites say which groups they have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.groups import list_groups
from deploy.cli.terminal import CommandRefused, ExitCode
from failover.limits import SOURCE_ROLE_S
from failover.planning.gates import GateRefusal, RefusalReason


async def refuse_unknown_groups(refusals: Iterable[GateRefusal], source: Cluster | None, target: Cluster) -> None:
    """Raises CommandRefused (exit 2) where a group that was not found is at neither site. One of which that cannot be
    told, or that reads other topics, is left to the gates.
    """
    missing = [one for one in refusals if one.reason is RefusalReason.GROUP_NOT_FOUND]
    if not missing or source is None:
        return
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(SOURCE_ROLE_S):
            here, there = await both(list_groups(source), list_groups(target))
        unknown = [one for one in missing if one.subject not in {*here, *there}]
        if unknown:
            sites = f"{source.site.name} nor {target.site.name}"
            raise CommandRefused(
                f"neither {sites} knows the group {', '.join(one.subject for one in unknown)}",
                "correct the name: `farshore group list --site SITE` has those of a site",
                ExitCode.USAGE,
                unknown,
            )
