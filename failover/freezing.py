"""No client writes at the source while it is moved away from, and none afterwards: by its brokers, or by a hook."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from broker.base.ending import to_its_end
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.site_role import SiteRoleChanged, await_site_role, set_site_role, site_standing
from broker.wire.errors import ErrorCode
from broker.wire.site_role import SiteRole, SiteStanding
from failover.errors import GateRefused, OperationUnderWay, StillFrozen
from failover.hooks import Hooks, run_hook
from failover.limits import SOURCE_ROLE_S
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class Freezing:
    """What keeps clients from writing. The roles are those of the moment when the plan was made; None: that site's
    brokers refuse nobody (Apache Kafka), or it was not asked. `freezes`: writes at the source stop before the drain.
    """

    source: SiteStanding | None = None
    target: SiteStanding | None = None
    freezes: bool = False
    hooks: Hooks = field(default_factory=Hooks)

    @property
    def is_enforced(self) -> bool:
        """Whether the source's brokers themselves refuse writes from the freeze on."""
        return self.source is not None and (self.freezes or not self.source.takes_writes)

    @property
    def hands_over(self) -> bool:
        """Whether a role is left to be changed once the groups are moved."""
        becomes_standby = self.is_enforced and self.source is not None and self.source.role is not SiteRole.STANDBY
        return becomes_standby or (self.target is not None and not self.target.takes_writes)


UNFROZEN: Final = Freezing()
"""Nothing keeps clients from writing."""


async def read_roles(source: Cluster | None, target: Cluster, *, even_without_source: bool = False) -> Freezing:
    """The roles of both sites. Raises ClientError where one does not say and may have one; `even_without_source`: of
    one that cannot be asked in time nothing is known.
    """
    known = None
    if source is not None and even_without_source:
        with suppress(ClientError, TimeoutError):
            known = await asyncio.wait_for(_standing(source), SOURCE_ROLE_S)
    elif source is not None:
        known = await _standing(source)
    return Freezing(known, await _standing(target))


async def _standing(cluster: Cluster) -> SiteStanding | None:
    try:
        return await site_standing(cluster)
    except KafkaError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # ours ask no rights
            return None
        raise


class Freeze:
    """Of one operation. Each step may be repeated: what it asks for is looked at first."""

    def __init__(self, plan: Freezing, link: Link, clusters: tuple[Cluster | None, Cluster], operation_id: str) -> None:
        self._plan = plan
        self._link = link
        self._source, self._target = clusters
        self._operation_id = operation_id
        self._begun = False

    async def begin(self) -> None:
        """Runs the hook. Raises HookFailed; `undo` then, and where `refuse_writes` fails."""
        self._begun = True
        if self._plan.hooks.freeze:
            await self._run_hook("freeze_hook", self._plan.hooks.freeze)

    async def refuse_writes(self) -> None:
        """Returns when no broker of the source takes records of clients. Raises OperationUnderWay, ClientError."""
        known = self._plan.source
        if self._source is None or known is None or not self._plan.is_enforced:
            return
        try:
            if known.takes_writes:
                await set_site_role(self._source, SiteRole.FROZEN, self._operation_id, known)
            else:
                await await_site_role(self._source, known)
        except SiteRoleChanged as error:
            raise OperationUnderWay(str(error), hint=error.hint) from error

    async def undo(self, because: BaseException) -> None:
        """Nothing else was changed, and is not going to be: clients write again. Raises StillFrozen."""
        if self._begun:
            await to_its_end(self._undo(because))

    async def _undo(self, because: BaseException) -> None:
        site = self._link.source.name
        try:
            if self._source is not None and self._plan.source is not None:
                now = await site_standing(self._source)
                if now is not None and (now.role, now.reason) == (SiteRole.FROZEN, self._operation_id):
                    await set_site_role(self._source, SiteRole.ACTIVE, f"{self._operation_id} was given up", now)
            if self._plan.hooks.thaw:
                await self._run_hook("thaw_hook", self._plan.hooks.thaw)
        except (ClientError, GateRefused) as error:
            said = str(because) or type(because).__name__
            raise StillFrozen(
                f"{said}; writes at {site} may be frozen still: {error}",
                hint=f"`farshore site role`, then `farshore site thaw --site {site}`, or what the thaw_hook does",
            ) from because

    async def hand_over(self, *, even_without_source: bool) -> SiteStanding | None:
        """The source becomes standby, then the target active -> the source's standing, None where it was not told.

        `even_without_source`: one that does not take it in time is left. Raises ClientError.
        """
        told = None
        if self._source is not None and self._plan.is_enforced:
            becoming = _become(self._source, SiteRole.STANDBY, self._operation_id)
            if even_without_source:
                with suppress(ClientError, TimeoutError):
                    told = await asyncio.wait_for(becoming, SOURCE_ROLE_S)
            else:
                told = await becoming
        if self._plan.target is not None:
            await _become(self._target, SiteRole.ACTIVE, self._operation_id)
        return told

    async def _run_hook(self, name: str, command: tuple[str, ...]) -> None:
        source, target = self._link.source, self._link.target
        told = {
            "FARSHORE_OPERATION": self._operation_id,
            "FARSHORE_LINK": self._link.name,
            "FARSHORE_SOURCE": source.name,
            "FARSHORE_SOURCE_BOOTSTRAP_SERVERS": source.bootstrap_servers,
            "FARSHORE_TARGET": target.name,
            "FARSHORE_TARGET_BOOTSTRAP_SERVERS": target.bootstrap_servers,
        }
        await run_hook(name, command, told)


async def _become(cluster: Cluster, role: SiteRole, reason: str) -> SiteStanding | None:
    now = await site_standing(cluster)
    if now is not None and now.role is role:
        await await_site_role(cluster, now)
        return now
    return await set_site_role(cluster, role, reason, now)
