"""Becoming a link's owner: fence its state, and say who did it before anything else is done.

Who was fenced asks the state who did it. Had a fence nobody's name for long, that worker could not tell a successor
that is about to begin from a command that was cut short; it would end for good, or fence its successor in its turn.
So the state topic alone is fenced first, which takes one marker however many partitions there are, and the owner is the
first entry behind that marker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from broker.client.cluster import Cluster
from mirror.link import Link
from mirror.offsets.entries import OPERATION_PREFIX, Entry, LinkRun, Owner
from mirror.offsets.fence import fence_link
from mirror.offsets.state_writer import StateLog


@dataclass(frozen=True, slots=True)
class Claim:
    """A link's state that only this owner may write now, through `log`. Its partitions are not fenced yet."""

    owner: Owner
    log: StateLog


async def claim_link(
    target: Cluster,
    link: Link,
    worker: str,
    *,
    restarts: int = 0,
    restart_reason: str = "",
    also: Sequence[Entry] = (),
    check: Callable[[], Awaitable[None]] | None = None,
) -> Claim:
    """Fence the unit's part of the state (its topic must exist) and write there who owns it now, with `also` in the
    same batch. `check` raises, behind the fence, where that is not to be written any more.

    Raises LinkFenced when somebody else takes the link over at the same time, ClientError.
    """
    writer = (await fence_link(target, link, [])).writer
    if check is not None:
        await check()
    owner = Owner(writer, worker, target.clock.now_ms(), restarts, restart_reason)
    log = StateLog(target, link, writer)
    await log.append([owner, *also])
    return Claim(owner, log)


def is_successor(owner: Owner | None, fenced: tuple[int, int] | None) -> bool:
    """Whether the state's owner came after this fenced (producer id, epoch); None: there was no owner before.

    A link's producer id is left only for a newer one: when its epochs are used up, or the cluster forgot it.
    """
    if owner is None or fenced is None:
        return owner is not None
    producer_id, epoch = fenced
    return owner.writer.producer_id != producer_id or owner.writer.epoch > epoch


def is_told(owner: Owner | None, run: LinkRun | None, fenced: tuple[int, int] | None) -> bool:
    """Whether a successor says who it is, and, where it is a command, has done what it came for.

    A command writes its name first, and what it decided after a look at the state: whoever took the link over in
    between would fence it.
    """
    if owner is None or not is_successor(owner, fenced):
        return False
    return owner.is_worker or (run is not None and owner.worker == f"{OPERATION_PREFIX}{run.operation_id}")
