"""Carrying ACLs over while a link runs: a pass after the other, beside the records and on connections of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress

from broker.base.address import AddressInvalid
from broker.client.acl_bindings import Acl
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.wire.errors import ErrorCode
from mirror.acls.plan import AclPlan
from mirror.acls.record import AclLook, look_entry
from mirror.acls.sync import AclChanges, OwnRights, ShutsOutMirror, sync_acls, write_record
from mirror.link import Link
from mirror.worker.events import Event, changed_only
from mirror.worker.session import Session


async def run_acls(session: Session) -> None:
    """Until cancelled. Raises nothing that a cluster does: a right that is missing holds up no record, and is told."""
    limits, clock = session.limits, session.target.clock
    passes = _Passes(session)
    while True:
        is_new = await passes.go_over()
        pause_ms = limits.acl_sync_interval_ms
        await clock.sleep((min(limits.config_apply_after_ms, pause_ms) if is_new else pause_ms) / 1000)


class _Passes:
    """Those of one session; `shown`: what the last one found to be made; `shut_out`: what kept the mirror out;
    `unsettled`: what the last one made, and may keep it out yet.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tell = changed_only(session.tell)
        self._shown: frozenset[Acl] = frozenset()
        self._shut_out: dict[Acl, str] = {}
        self._unsettled: Mapping[Acl, OwnRights] = {}

    async def go_over(self) -> bool:
        """-> whether something was shown that is soon to be made."""
        link, clock = self._session.link, self._session.target.clock
        is_new = False
        async with AsyncExitStack() as sites:
            source, target = (
                Cluster(site, client_id=f"farshore-{link.name}-acls", clock=clock)
                for site in (link.source, link.target)
            )
            try:
                await sites.enter_async_context(target)
                await sites.enter_async_context(source)
                seen, changes = await sync_acls(link, source, target, self._shown, self._shut_out, self._unsettled)
                is_new = self._take(seen.plan, changes)
                look = look_of(clock.now_ms(), seen.plan, changes, self._shut_out)
            except (ClientError, AddressInvalid) as error:
                self._tell(Event.ACLS_FAILED, link.name, str(error))
                look = AclLook(clock.now_ms(), trouble=str(error), hint=_hint(link, error))
            with suppress(ClientError, AddressInvalid):  # how old the newest look is says so
                await write_record(link, target, [look_entry(look)])
        return is_new

    def _take(self, plan: AclPlan, changes: AclChanges) -> bool:
        self._unsettled = changes.unsettled
        for acl in changes.created:
            self._session.tell(Event.ACL_CREATED, acl=str(acl))
        for acl, failure in changes.failures:
            self._tell(Event.ACLS_FAILED, str(acl), str(failure))
            if isinstance(failure, ShutsOutMirror):
                self._shut_out[acl] = str(failure)
        left = frozenset(plan.create) - {*changes.created}
        for acl in sorted(left):
            self._tell(Event.ACL_DRIFT, str(acl), "is to be made")
        is_new, self._shown = not self._shown.issuperset(left), left
        return is_new


def look_of(at_ms: int, plan: AclPlan, changes: AclChanges, shut_out: Mapping[Acl, str]) -> AclLook:
    """A pass in numbers. `shut_out`: what was not tried again, and why."""
    failed = {acl: shut_out[acl] for acl in plan.create if acl in shut_out}
    failed |= {acl: str(error) for acl, error in changes.failures}
    return AclLook(
        at_ms,
        to_create=len({*plan.create} - {*changes.created} - failed.keys()),
        to_remove=len(plan.remove),
        held=len(plan.hold),
        withheld=len(plan.withheld),
        open_at_target=len(plan.open_at_target),
        failed=len(failed),
        failure=next(iter(failed.values()), ""),
    )


def _hint(link: Link, error: ClientError | AddressInvalid) -> str:
    if isinstance(error, KafkaError) and error.code is ErrorCode.SECURITY_DISABLED:
        return f"take sync_acls out of link {link.name}: a cluster without an authorizer has no ACLs"
    return error.hint or ""
