"""Names that nobody knows, of groups, partitions and topics: typing errors, where the sites say what they have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.groups import list_groups
from deploy.cli.gate_words import reason_of
from deploy.cli.terminal import CommandRefused, ExitCode
from failover.limits import SOURCE_ROLE_S
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.plan import OperationPlan


async def refuse_unknown_groups(refusals: Iterable[GateRefusal], source: Cluster | None, target: Cluster) -> None:
    """Raises CommandRefused (exit 2) where a group that was not found is at neither site. One of which that cannot be
    told, or that reads other topics, is left to the gates.
    """
    missing = [one for one in refusals if one.reason is RefusalReason.GROUP_NOT_FOUND]
    if not missing or source is None:
        return
    with suppress(ClientError, TimeoutError):
        async with timeout(SOURCE_ROLE_S):
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


def refuse_unknown_partitions(
    refusals: Iterable[GateRefusal], links: Sequence[str], plans: Sequence[OperationPlan]
) -> None:
    """Raises CommandRefused (exit 2) where no link carries a partition that is to be left: that is asked of the target,
    and of a lost source nothing. It is left to the gates where the target did not tell of a link. `links`, `plans`: as
    of `refuse_unknown_topics`.
    """
    missing = [one for one in refusals if one.reason is RefusalReason.PARTITION_NOT_FOUND]
    if not missing or len(plans) < len(links) or not all(plan.snapshot.partitions for plan in plans):
        return
    raise CommandRefused(
        f"there is no mirrored partition {', '.join(one.subject for one in missing)}",
        reason_of(missing[0], plans[0].snapshot.source, plans[0].snapshot.target)[1],
        ExitCode.USAGE,
        missing,
    )


def refuse_unknown_topics(intent: Intent, links: Sequence[str], plans: Sequence[OperationPlan]) -> None:
    """Raises CommandRefused (exit 2) where no link between the sites carries a topic that --topic names. Where it is
    not known what one carries, as its source does not say what it has, that is left to the gates. `links`: all between
    them; `plans`: of those that could be looked at.
    """
    carried = [{view.topic for view in plan.snapshot.partitions} for plan in plans]
    if len(plans) < len(links) or not all(carried) or not all(plan.snapshot.source_answers for plan in plans):
        return
    topics = set[str]().union(*carried)
    unknown = [one for one in intent.topics if not any(re.fullmatch(one, topic) for topic in topics)]
    if unknown:
        link = f"no link from {intent.source} to {intent.target}"
        raise CommandRefused(
            f"{link} carries a topic that --topic {' or '.join(unknown)} names",
            "correct the name: `farshore status --all` has the topics of each link",
            ExitCode.USAGE,
            [GateRefusal(RefusalReason.NOTHING_SELECTED, intent.source, one) for one in unknown],
        )
