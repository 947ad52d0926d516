"""The ACLs that this broker goes by: those of the metadata store, taken up when any broker changes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from broker.access.acls import AclBinding, AclFilter, Acls, ResourcePattern
from broker.access.authorizer import EVERYTHING, Authorizer, Rights
from broker.access.distinguished_names import is_written_otherwise
from broker.access.relearning import Relearning
from broker.base.clock import Clock
from broker.cluster.metadata import ChangeKind, PatternAcls
from broker.cluster.metadata_store import MetadataStore, MetadataUnreadable
from broker.wire.vocabulary import ANY_HOST, EVERYBODY, AclOperation, AclPermission

log = logging.getLogger(__name__)

_WRITTEN_OTHERWISE: Final = (
    "%s is in super_users or in an ACL and is the name of no certificate: these are written as Java writes them, as "
    "docs/operating.md has it under Upgrades; name it so, too, denials first"
)


class KnownAcls:
    """What the authorizer decides by is what this broker says that it has. Without one nothing is read."""

    def __init__(self, store: MetadataStore, authorizer: Authorizer | None, clock: Clock) -> None:
        self.authorizer = authorizer
        self._store = store
        self._turn = asyncio.Lock()
        self._named: frozenset[str] = frozenset()
        self._relearning = Relearning[ResourcePattern](
            self.learn, clock, "the ACLs could not be read, and those of before hold"
        )

    def rights(self, principal: str, host: str) -> Rights:
        return EVERYTHING if self.authorizer is None else self.authorizer.rights(principal, host)

    async def learn(self, patterns: Collection[ResourcePattern] | None = None) -> None:
        """What the store holds now, of all patterns or of these. Raises what the store raises."""
        async with self._turn:
            await self._learn(patterns)

    async def _learn(self, patterns: Collection[ResourcePattern] | None) -> None:
        if self.authorizer is None:
            return
        found = await self._store.acls(patterns)
        told = {pattern: _held(pattern, acls) for pattern, acls in found.items()}
        self.authorizer.acls = Acls(told) if patterns is None else self.authorizer.acls.replaced(told)
        if patterns is None:
            named = self.authorizer.super_users | {acl.principal for acl in self.authorizer.acls}
            for principal in sorted(named - self._named):
                if is_written_otherwise(principal.removeprefix("User:")):
                    log.warning(_WRITTEN_OTHERWISE, principal)
            self._named = named

    async def change(
        self,
        patterns: Collection[ResourcePattern],
        change: Callable[[ResourcePattern, frozenset[AclBinding]], frozenset[AclBinding]],
    ) -> None:
        """`change` makes of what a pattern has what it has from now on; this broker goes by it when this returns.
        Raises AclInvalid, MetadataUnreadable, and what the store raises.
        """
        async with self._turn:
            left, made = frozenset(patterns), dict[ResourcePattern, frozenset[AclBinding]]()
            while left:
                changed: dict[ResourcePattern, PatternAcls] = {}
                for pattern, acls in (await self._store.acls(left)).items():
                    if acls.damage:
                        raise MetadataUnreadable(acls.damage)
                    made[pattern] = change(pattern, acls.bindings)
                    if made[pattern] != acls.bindings:
                        changed[pattern] = acls._replace(bindings=made[pattern])
                # Another broker may have been the first.
                left = await self._store.set_acls(changed) if changed else frozenset()
            if self.authorizer is not None:
                self.authorizer.acls = self.authorizer.acls.replaced(made)

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """What each of them took: of all that the store has, also what another broker made a moment ago. Raises
        MetadataUnreadable, and what the store raises.
        """
        found = await self._store.acls(_just_meant(filters))
        known = Acls({pattern: acls.bindings for pattern, acls in found.items()})
        taken = [known.taken_by(wanted) for wanted in filters]
        gone: dict[ResourcePattern, set[AclBinding]] = {}
        for by_pattern in taken:
            for pattern, acls in by_pattern.items():
                gone.setdefault(pattern, set()).update(acls)
        await self.change(list(gone), lambda pattern, known: known - gone[pattern])
        return [[acl for acls in by_pattern.values() for acl in acls] for by_pattern in taken]

    async def run(self) -> None:
        """Takes up what other brokers and tools change, if there is an authorizer; ends only by being cancelled."""
        if self.authorizer is None:
            return
        async with self._store.watch(ChangeKind.ACLS, ChangeKind.SESSION) as changes, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._relearning.run())
            async for change in changes:
                self._relearning.tell(ResourcePattern.of_text(change.name) if change.name else None)


def _just_meant(filters: Sequence[AclFilter]) -> set[ResourcePattern] | None:
    """The patterns that these are about; None: there may be more."""
    meant = {wanted.pattern for wanted in filters}
    return None if None in meant else {pattern for pattern in meant if pattern is not None}


def _held(pattern: ResourcePattern, acls: PatternAcls) -> frozenset[AclBinding]:
    """Where a hand left what cannot be read, nobody but a super user passes: it may have been a denial."""
    if not acls.damage:
        return acls.bindings
    log.error("all that it may allow is denied to everybody until it is mended: %s", acls.damage)
    return frozenset({AclBinding(*pattern, EVERYBODY, ANY_HOST, AclOperation.ALL, AclPermission.DENY)})
