"""The two ends of a link that is moved, and how they are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from failover.contact import BrokerAnswer, SiteFinding, call_site
from failover.limits import SOURCE_LOOK_MS
from failover.observe import observe
from failover.readers import Readers
from failover.snapshot import Snapshot
from mirror.api import Link, MirrorError


@dataclass(frozen=True, slots=True)
class Sites:
    """The two ends of the link; `source` is None when it does not answer, `answers` what its brokers said at first.

    `in_part`: the source was found to be there in part, and is not asked for the whole again. `links`: all of the file.
    """

    link: Link
    source: Cluster | None
    target: Cluster
    groups: tuple[str, ...]
    now_ms: Callable[[], int]
    answers: tuple[BrokerAnswer, ...] = ()
    in_part: bool = False
    links: tuple[Link, ...] = ()
    readers: Readers = field(default_factory=Readers, compare=False)

    async def look(self) -> Snapshot:
        """Both sites as they are. Raises ClientError when one of them does not answer wholly."""
        return self._with_evidence(
            await observe(self.link, self.source, self.target, self.groups, self.now_ms(), readers=self.readers),
            self.answers,
        )

    async def look_past_source(self) -> Snapshot:
        """The same for a failover, which a source that answers slowly, in part or not at all does not hold up.

        What a part of it still tells is used; what cannot be read there is a part that does not. It is dead only where
        none of its brokers answers anything, and farshore had all that it needs to ask; in part only where it is the
        source that left out something. Raises ClientError, MirrorError for what the target does.
        """
        answers = self.answers
        if self.source is not None:
            if not self.in_part:
                with suppress(ClientError, MirrorError):  # of either site: the looks that follow tell them apart
                    if seen := await self._observed(in_part=False):
                        return self._with_evidence(seen, answers)
            answers = await call_site(self.source, self.now_ms)
            if any(answer.may_live for answer in answers) and (seen := await self._observed(in_part=True)):
                return self._with_evidence(seen, answers)
        seen = await observe(self.link, None, self.target, self.groups, self.now_ms(), readers=self.readers)
        return self._with_evidence(seen, answers)

    async def _observed(self, *, in_part: bool) -> Snapshot | None:
        """None where it takes too long. Raises ClientError and MirrorError, as `observe` does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SOURCE_LOOK_MS / 1000):
                asked = (self.link, self.source, self.target, self.groups, self.now_ms())
                return await observe(*asked, in_part=in_part, with_pace=True, readers=self.readers)
        return None

    def as_found(self, snapshot: Snapshot) -> Sites:
        """The sites as the looks that follow may rely on them."""
        if snapshot.source_finding is SiteFinding.DEAD:
            return replace(self, source=None)
        return replace(self, in_part=snapshot.source_finding is SiteFinding.PARTLY_THERE)

    @staticmethod
    def _with_evidence(snapshot: Snapshot, answers: tuple[BrokerAnswer, ...]) -> Snapshot:
        """A source of which nothing but a first word came is not dead."""
        finding = snapshot.source_finding
        if finding is SiteFinding.DEAD and any(answer.may_live for answer in answers):
            finding = SiteFinding.PARTLY_THERE
        return replace(snapshot, source_finding=finding, evidence=answers)
