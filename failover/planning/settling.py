"""A source of which a broker died a moment ago: until its cluster has noticed, and others lead, nobody tells all."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import BrokerSetAside, ClientError
from failover.errors import GateRefused
from failover.limits import PLANNED_AGAIN_S
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import PartitionView, Snapshot
from failover.planning.gates import RefusalReason
from failover.planning.plan import OperationPlan
from failover.running.steps import Operation

_OF_LEADERS: Final = (RefusalReason.OFFSETS_IN_DOUBT, RefusalReason.GROUP_NOT_MOVABLE)


class SiteUnanswered(GateRefused):
    """Sites are there, and did not tell, as often as they were asked, what a plan needs; nothing was changed. `site`:
    which of the two it is; both, by their names, where a look at them says nothing of that.
    """

    retriable = True

    def __init__(self, because: ClientError, site: str, seconds: float) -> None:
        """`seconds`: for how long they were asked."""
        self.site = site
        tried = f" for {seconds:.0f} s" if seconds >= 1 else ""
        super().__init__(
            f"{site} did not tell all that the plan needs{tried}: {because}; nothing was changed",
            hint=f"{because.hint or 'see to the reason'}; `farshore status --all` says how both sites are: try again "
            "when they answer wholly",
        )


def may_pass(error: ClientError) -> bool:
    """Whether who asks again may be answered. A broker is set aside by who looks at the site beside this one."""
    return error.retriable or isinstance(error, BrokerSetAside)


class Settling:
    """How long a plan is made again. A broker that died is named by its cluster until its session has ended; then
    others are elected. Of one that is not named at the first look nothing more is waited for: what it alone had nobody
    leads.
    """

    def __init__(self, source: Cluster | None) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._is_leaving = False

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return self._loop.time() - self._began_s

    def goes_on(self, seen: Snapshot) -> bool:
        """Whether both sites may tell all in a moment. `seen`: a look behind a plan that failed."""
        if self._source is None or self.seconds >= PLANNED_AGAIN_S:
            return False
        if seen.source_answers:  # by now; or it is the target that does not
            return not is_target_in_part(seen)
        is_in_part = seen.source_finding is SiteFinding.PARTLY_THERE
        self._is_leaving |= is_in_part and any(_is_named(self._source, address) for address in seen.silent_brokers)
        return is_in_part and self._is_leaving

    def awaits(self, plan: OperationPlan) -> bool:
        """Whether the plan is refused for no more than what the link's worker takes away in a moment: it holds what
        lost its leader, until it has compared the log of the new one with what it mirrored. What it has held for as
        long as a plan is made again at the most does not go by itself, or nobody is there to take it away.
        """
        seen = plan.snapshot
        is_over = self._source is None or self.seconds >= PLANNED_AGAIN_S
        if plan.operation is not Operation.SWITCHOVER or seen.is_promoted or is_over:
            return False
        in_doubt = [_is_fresh(view, seen.taken_at_ms) for view in seen.partitions if not view.trusted]
        return bool(in_doubt) and all(in_doubt) and all(one.reason in _OF_LEADERS for one in plan.refusals)


def _is_fresh(view: PartitionView, now_ms: int) -> bool:
    return view.held_since_ms is not None and abs(now_ms - view.held_since_ms) < PLANNED_AGAIN_S * 1000


def is_target_in_part(seen: Snapshot) -> bool:
    """Whether it left something of this look unanswered."""
    return bool(seen.unanswered or seen.groups_not_listed)


def _is_named(source: Cluster, address: str) -> bool:
    """Whether the cluster takes it for one that is there."""
    dialled = (source.site.dial(node.host, node.port) for node in source.nodes.values())
    return any(str(at) == address for at in dialled)
