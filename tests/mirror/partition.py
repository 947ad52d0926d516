"""One partition's replicator without a session: its state topic acknowledges when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from broker.base.clock import SystemClock
from broker.wire.records import Record
from mirror.offsets.state_writer import Change
from mirror.worker.budget import Lease
from mirror.worker.events import Event
from mirror.worker.plan import Plan, ProducerBatch, _append
from mirror.worker.recoding import _pieces
from mirror.worker.replicator import Outlet, Replicator


@dataclass
class Submissions:
    """What was submitted and is not acknowledged yet, in order; and the events that were told."""

    queue: list[tuple[list[Change], Callable[[], None] | None]] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)

    def submit(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None:
        self.queue.append((list(changes), then))

    def tell(self, event: Event, /, **_fields: object) -> None:
        self.told.append(event)

    def outlet(self) -> Outlet:
        return Outlet("east-west", self.submit, self.tell, SystemClock())

    def acknowledge(self) -> tuple[Change, ...]:
        """The oldest submission is durable -> its changes."""
        changes, then = self.queue.pop(0)
        if then is not None:
            then()
        return tuple(changes)


def take(replicator: Replicator, lease: Lease, *batches: list[int]) -> list[ProducerBatch]:
    """Let the replicator take batches of these source offsets, each as a plan of its own -> the batches."""
    return [taken for offsets in batches for taken in take_together(replicator, lease, offsets)]


def take_together(replicator: Replicator, lease: Lease, *batches: list[int]) -> list[ProducerBatch]:
    """As `take`, in one plan, as what one fetch brought is."""
    plan = Plan(replace(replicator.cursor), lease)
    for offsets in batches:
        records = [Record(offset, 0, None, None) for offset in offsets]
        _append(plan, bytearray(1), _pieces(records), len(records), 0)
    replicator.take(plan)
    return list(plan.batches)
