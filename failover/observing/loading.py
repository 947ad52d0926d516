"""A link as both its sites complete it, and its state: what a look begins with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from failover.limits import DECLARED_S
from failover.observing.looking import Asking, TargetLook
from failover.observing.readers import Readers
from mirror.api import (
    Completed,
    DeclaredOtherwise,
    Link,
    LinkState,
    MirrorError,
    StateReader,
    compare_at_target,
    complete_and_compare,
    registered_at,
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The link as both sites complete it; `is_whole`: they did."""

    completed: Completed
    is_whole: bool = False

    @property
    def link(self) -> Link:
        return self.completed.link

    @property
    def is_another_source(self) -> bool:
        return self.completed.is_another_source


async def load_link(
    link: Link, source: Cluster | None, target: TargetLook, asking: Asking, readers: Readers
) -> tuple[Loaded, LinkState]:
    """The link, and its state."""
    reader = readers.states.of(link)
    if source is None:
        state, otherwise = await both(target.state(link, reader), _compared(link, target.target, reader))
        return Loaded(Completed(link, otherwise)), state
    as_before = readers.completed.get(link.name, link)
    completed, state = await both(
        _completed(link, source, target.target, asking, reader), target.state(as_before, reader)
    )
    now = completed or Completed(link)
    readers.completed[link.name] = now.link
    if now.link != as_before:
        state = await target.state(now.link, reader)
    return Loaded(now, completed is not None and not now.is_another_source), state


async def _compared(link: Link, target: Cluster, reader: StateReader) -> tuple[DeclaredOtherwise, ...]:
    """What is not told in time is not compared: a failover is not held up by it."""
    with suppress(TimeoutError):
        async with timeout(DECLARED_S):
            return await compare_at_target(link, target, reader)
    return ()


async def _completed(
    link: Link, source: Cluster, target: Cluster, asking: Asking, reader: StateReader
) -> Completed | None:
    try:
        return await complete_and_compare(link, source, target, reader)
    except (ClientError, MirrorError):
        if not asking.in_part:
            raise
        await asking.ask(registered_at(source), ())  # whether it was the source that did not say
        return None
