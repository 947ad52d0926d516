"""Machines that carry operations on: each has connections of its own, and one of them dies when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ConnectionLost
from broker.wire.messages.produce import ProduceRequest
from broker.wire.schema import Message
from failover.errors import GateRefused, JournalUnanswered
from failover.freezing.hooks import Hooks
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.groups_stand import Tell, tell_nobody
from failover.running.result import OperationResult
from failover.running.taking_up import begin
from mirror.link import Link
from tests.failover.stage import Stage, now_ms

VICTIM = "farshore-victim"
HEIR = "farshore-heir"


@dataclass
class Lease:
    """On an operation of which nobody else knows; where it is lost, `renew` says so."""

    is_held: bool = True

    async def renew(self) -> None:
        if not self.is_held:
            raise JournalUnanswered("an operation", "west")


class PlanRefused(GateRefused):
    """A gate said no to the plan, as the command would tell its operator."""

    def __init__(self, refusals: Sequence[GateRefusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__(", ".join(f"{refusal.reason.value} ({refusal.subject})" for refusal in refusals))


class Died(BaseException):
    """The machine is gone: nothing that it would still do is done."""


@dataclass
class Death:
    """Comes at the request `at` (from 1) of the victim: before it is sent, or (`answered`) when its answer is there.

    `at` 0: never; then only counted. `cuts` says of each request whether its line is cut before it is sent, or else
    before its answer comes: then the machine lives, and does not know what became of it. With `late_write` it comes at
    the first thing that the victim would write to a link's state: that is `held`, for the network to bring it late.
    `arrives`: what comes so, of another machine's, before the request `arrives_at` of this one.
    """

    at: int = 0
    answered: bool = False
    requests: int = 0
    cuts: Callable[[], bool] = lambda: False
    is_dead: bool = field(default=False)
    late_write: bool = False
    held: ProduceRequest | None = None
    arrives: Callable[[], Awaitable[object]] | None = None
    arrives_at: int = 0

    async def send(
        self, line: Connection, message: Message, real: Callable[[], Awaitable[Awaitable[Any]]]
    ) -> Awaitable[Any]:
        self.requests += 1
        if self.requests == self.arrives_at and self.arrives is not None:
            arrives, self.arrives = self.arrives, None
            await arrives()
        if self.late_write and not self.is_dead and isinstance(message, ProduceRequest) and _is_of_a_state(message):
            self.held, self.is_dead = message, True
        if self.cuts():
            line.abort(lost := ConnectionLost("the line is cut"))
            raise lost
        is_last = self.requests == self.at
        self.is_dead |= is_last and not self.answered
        if self.is_dead:
            raise Died
        answer = await real()
        if is_last:
            return Never(answer, self._dies)
        return Never(answer, partial(_cut, line)) if self.cuts() else answer

    def _dies(self) -> NoReturn:
        self.is_dead = True
        raise Died


def _cut(line: Connection) -> NoReturn:
    line.abort(lost := ConnectionLost("the line is cut before the answer"))
    raise lost


@dataclass
class Never:
    """An answer in whose place something `happens`. It may be awaited or not, as a real one: who sent several requests
    waits for no other one where the first has failed.
    """

    answer: Awaitable[Any]
    happens: Callable[[], NoReturn]

    def __await__(self) -> Generator[Any, None, Any]:
        yield from self.answer.__await__()
        self.happens()


def _is_of_a_state(message: ProduceRequest) -> bool:
    return any(topic.name.startswith("__farshore-offsets-") for topic in message.topic_data)


@contextmanager
def mortal(monkeypatch: pytest.MonkeyPatch, death: Death) -> Iterator[Death]:
    """The victim's requests pass by `death`."""
    real = Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id != VICTIM:
            return await real(self, message, version, timeout_ms=timeout_ms)
        return await death.send(self, message, lambda: real(self, message, version, timeout_ms=timeout_ms))

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield death


def is_death(error: BaseException | None) -> bool:
    """Whether it comes from the machine's end, however deep."""
    met: set[int] = set()  # one that was raised twice is in its own context
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in met:
            continue
        if isinstance(one, Died):
            return True
        met.add(id(one))
        waiting += [one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
    return False


@asynccontextmanager
async def machine(client_id: str, *links: Link) -> AsyncIterator[list[Sites]]:
    """Sites as a machine of this name sees them."""
    async with AsyncExitStack() as stack:
        yield [
            Sites(
                link,
                await stack.enter_async_context(Cluster(link.source, client_id=client_id)),
                await stack.enter_async_context(Cluster(link.target, client_id=client_id)),
                (),
                now_ms,
            )
            for link in links
        ]


async def operate(
    intent: Intent,
    sites: list[Sites],
    operation_id: str,
    hooks: Hooks | None = None,
    tell: Tell = tell_nobody,
) -> tuple[OperationResult, ...]:
    """As the command does it, from the look to the end."""
    intent = replace(intent, links=tuple(one.link.name for one in sites))
    moves = [await plan_link(intent, one, hooks or Hooks()) for one in sites]
    if refusals := [refusal for move in moves for refusal in move.plan.refusals]:
        raise PlanRefused(refusals)
    return await begin(moves, intent, operation_id, "a victim", {}, tell)


async def until_death(
    intent: Intent, stage: Stage, operation_id: str, hooks: Hooks | None = None, *, source_lives: bool = True
) -> None:
    """Begin the operation on the mortal machine, and return when that is dead."""
    try:
        async with machine(VICTIM, stage.link) as sites:
            sites = sites if source_lives else [replace(one, source=None) for one in sites]
            await operate(intent, sites, operation_id, hooks)
    except BaseException as error:  # a death is no Exception, so that nothing in between handles it
        if not is_death(error):
            raise


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter waits, as on a machine with a short patience."""
    monkeypatch.setattr("failover.running.link_run.LATE_WRITES_S", 0.3)
    monkeypatch.setattr("failover.running.draining.QUIET_S", 0.2)
    monkeypatch.setattr("failover.running.draining.DRAIN_POLL_S", 0.05)
    monkeypatch.setattr("failover.running.taking_up.LEASE_S", 0.4)
    monkeypatch.setattr("failover.running.taking_up.UNHEARD_S", 0.5)
