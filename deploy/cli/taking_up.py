"""Going on with an operation that its journal tells of, by both sites as this machine's file has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from broker.base.documents import to_document
from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from deploy.cli.drain_bars import drain_bars
from deploy.cli.failover_tables import tell_groups_stand
from deploy.cli.interrupted import told_where_interrupted
from deploy.cli.moving import Ended, now_ms
from deploy.cli.terminal import AppContext
from deploy.cli.waits import tell_watch, told_calls
from failover.errors import FailoverError
from failover.failback.operation import check_hooks_of, check_links_of
from failover.freezing.hooks import Hooks
from failover.journal.hooks_run import check_hooks
from failover.journal.standing import given_up_links, intent_of, is_failback, within
from failover.journal.values import OperationLog
from failover.observing.sites import Sites
from failover.planning.declared import check_declared
from failover.planning.links import enter_links, this_process
from failover.planning.staying import Stay, StayKind, StayReason, away_of
from failover.running.result import OperationResult
from failover.running.taking_up import find_operation, resume
from mirror.api import Link

REASONS_S = 10.0
"""Who waits for the result of an operation that has ended waits no longer for why links were left."""
UNREAD_REASON = "why is not known, as the target does not tell it now; the journal has it"


async def take_up(context: AppContext, log: OperationLog, within_id: str = "") -> Ended:
    """Bring it to its end, by sites that are called now: since somebody looked one may have died, or be back.
    `within_id`: the failback that does it as a step.
    """
    async with AsyncExitStack() as stack:
        target = context.link(intent_of(log).links[0]).target
        begun = await stack.enter_async_context(told_where_interrupted(target))
        begun.operation_id = log.operation_id
        sites = [replace(one, within=within_id or within(log)) for one in await enter_again(stack, context, log)]
        with drain_bars() as tell_drain:
            sites = [replace(one, tell_drain=tell_drain) for one in sites]
            results = await resume(log, sites, hooks_of(context, log), this_process(), tell_groups_stand)
        return _ended(log, await _given_up(sites[0].target, log), results)


async def _given_up(target: Cluster, log: OperationLog) -> Mapping[str, str]:
    """The links that it went on without, as the journal has them behind its end: what the operation came to is known by
    then, and a target that goes away takes no result with it, but may take the reasons of what was left just now.
    """
    try:
        async with timeout(REASONS_S):
            return given_up_links((await find_operation(target, log.operation_id)) or log)
    except (FarshoreError, TimeoutError):
        return given_up_links(log)


def _ended(log: OperationLog, reasons: Mapping[str, str], results: Sequence[OperationResult]) -> Ended:
    """With the links that it went on without: those of its links that have no result."""
    intent = intent_of(log)
    has_result = {result.link for result in results}
    left = [link for link in intent.links if link not in has_result]
    given_up = {link: reasons.get(link, f"{UNREAD_REASON}: {log.operation_id}") for link in left}
    stays = [Stay(StayKind.LINK, link, StayReason.REFUSED, why) for link, why in given_up.items()]
    begun_by = log.entries[0].detail
    said = {"stays": [*begun_by.get("stays", []), *to_document(stays)], "away": to_document(away_of(begun_by))}
    intent = replace(intent, refused_links=(*intent.refused_links, *given_up))
    return Ended(intent, results, said)


def refuse_other_file(context: AppContext, log: OperationLog) -> None:
    """Raises FailoverError where a resume would, for what this machine's file says of its links."""
    if is_failback(log):
        check_links_of(log, context.links())
        check_hooks_of(log, context.hooks())
    else:
        check_hooks(log, hooks_of(context, log))
    check_declared(log, _links_of(context, log))


def hooks_of(context: AppContext, log: OperationLog) -> Hooks:
    """Those that it may run yet. One that a failback found cut short, and did not begin, is asked for its own."""
    return context.hooks().of_step() if within(log) else context.hooks()


def _links_of(context: AppContext, log: OperationLog) -> list[Link]:
    """Raises FailoverError where they go between other sites in this file."""
    intent = intent_of(log)
    links = [context.link(name) for name in intent.links]
    for link in links:
        if (link.source.name, link.target.name) != (intent.source, intent.target):
            here = f"{link.source.name} to {link.target.name}"
            raise FailoverError(
                f"{link.name} goes from {here} in this file; {log.operation_id}: {intent.source} to {intent.target}",
                hint="use the file that the operation was begun with",
            )
    return links


async def enter_again(stack: AsyncExitStack, context: AppContext, log: OperationLog) -> list[Sites]:
    """Both sites of each of its links, as this machine's file has them; where calling them takes long, that is told.
    Raises FailoverError where it has others.
    """
    intent, links = intent_of(log), _links_of(context, log)
    async with told_calls(intent.source, intent.target):
        entered = await enter_links(stack, links, intent, now_ms, context.links())
    return [replace(one, tell_watch=tell_watch) for one in entered]
