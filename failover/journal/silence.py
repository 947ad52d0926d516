"""What the operator of an operation that is not this machine's any more, or was cut short, is told: which site does not
answer, or who went on with it, and what to do then.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import side_by_side
from failover.errors import FailoverError, OperationTakenUp
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OPEN_STATES, standing_of
from failover.limits import SILENCE_S
from failover.observing.sites import Sites
from mirror.api import Link


async def silent_of(clusters: Sequence[Cluster]) -> tuple[str, ...]:
    """The sites that do not answer now."""

    async def name_of_silent(cluster: Cluster) -> str:
        try:
            async with timeout(SILENCE_S):
                await cluster.metadata([])
        except (ClientError, TimeoutError):
            return cluster.site.name
        return ""

    return tuple(filter(None, await side_by_side(name_of_silent(one) for one in clusters)))


def cut_short_hint(operation_id: str, link: Link, silent: Sequence[str], *, is_fenced: bool) -> str:
    """Of an operation that asked a site in vain at its fence, or behind it. `link`: named as all that it moves; one
    that `is_fenced` goes on without its source. Pure.
    """
    resume = f"`farshore operation resume {operation_id}`"
    source, target = link.source.name, link.target.name
    if list(silent) != [source]:
        return f"when {' and '.join(silent) or f'{source} and {target}'} answers, from any machine: {resume}"
    if is_fenced:
        return f"from any machine, also while {source} does not answer: {resume}"
    return f"when {source} answers, from any machine: {resume}; {if_lost(operation_id, source)}"


def if_lost(operation_id: str, source: str) -> str:
    """The way on of a switchover whose source died before the fence."""
    return f"if {source} is lost: `farshore operation abort {operation_id}`, then `farshore failover`"


async def told_who_went_on(lost: FailoverError, journal: OperationJournal, sites: Sites) -> FailoverError:
    """What is said where this machine may not go on: whoever stood still may find the target well, and all done."""
    try:
        async with timeout(SILENCE_S):
            log = (await load_operations(sites.target)).get(journal.operation_id)
    except (ClientError, TimeoutError):
        return lost
    if log is None:
        return lost
    standing = standing_of(log, sites.now_ms())
    became = standing.state.value.replace("_", " ")
    if journal.wrote_all(log) or standing.who == journal.who:  # it may not have been told that its last word is there
        return lost if standing.state in OPEN_STATES or log.damage else _ended(journal, sites, became, standing.error)
    return OperationTakenUp(journal.operation_id, f" by {standing.who} ({became} by now)")


def _ended(journal: OperationJournal, sites: Sites, became: str, why: str) -> FailoverError:
    """By this machine's own word, so that nothing of it is to be resumed."""
    return FailoverError(
        f"{journal.operation_id} has ended: {became}{f' ({why})' if why else ''}, as its journal at "
        f"{sites.link.target.name} says; this machine lost sight of it at the end",
        hint=f"`farshore operation show {journal.operation_id}` says what it did",
    )
