"""An operator of a world of moves: gives the command until it ends with 0, whatever becomes of the machines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.base.documents import to_document
from broker.base.errors import FarshoreError, first_of
from broker.client.site_role import site_standing
from broker.wire.vocabulary import TopicPartition
from failover.errors import GateRefused
from failover.freezing.hooks import Hooks
from failover.journal.log import load_operations
from failover.journal.standing import OPEN_STATES, OperationState, intent_of, results_of, standing_of
from failover.journal.values import OperationLog
from failover.planning.intent import Intent
from failover.planning.moves import GroupMove
from failover.running.aborting import abort, plan_abort
from failover.running.late_commits import LateCommit
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import resume
from failover.running.verification import DifferenceKind
from mirror.api import RunState, read_entries
from tests.failover.machines import VICTIM, Death, is_death, machine, mortal, operate
from tests.failover.moved_refusals import (
    REFUSED_MAX,
    Answer,
    MovedWrongly,
    Standing,
    Trouble,
    groups_in_the_way,
    said_by,
)
from tests.failover.moved_sites import PATIENCE_S, two_linked_sites
from tests.failover.moved_worlds import MovedWorld, Places, places_at
from tests.failover.stage import now_ms
from tests.mirror.harness import accept_all, running

ATTEMPTS = 5
"""Of which the last one has no trouble."""
REQUESTS = 250
"""That one attempt sends, about."""
CUT_SHARE = 0.02
GIVES_UP_SHARE = 0.5
HOLD_SHARE = 0.3


@dataclass
class Operator:
    """`counts`: how often each thing happened to him, in all worlds of a run. `mirror_runs`: what is missing comes."""

    world: MovedWorld
    counts: Counter[str] = field(default_factory=Counter)
    mirror_runs: bool = True
    operations: int = field(default=0, init=False)
    found_pending: bool = field(default=False, init=False)
    """Whether the last attempt did not end with 0, and rightly: it moved over what a living source's group held."""
    made: tuple[GroupMove, ...] = field(default=(), init=False)
    """What that attempt says that it moved: groups stand there, also where the next one leaves them as they are."""

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    def tell(self, line: str, kind: str = "") -> None:
        self.world.told.append(line)
        self.counts[kind or line] += 1

    async def hold(self) -> None:
        """A group may be amid a transaction when the command is given."""
        if self.rng.random() < HOLD_SHARE:
            await self.world.hold(self.rng.choice(self.world.groups))
            self.counts["offsets pending"] += 1

    async def move(self, verb: Operation, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool = False) -> None:
        """Until the command, or who took it up, ended with 0."""
        world = self.world
        readers = sorted(group for group, read in (world.known if is_dead else world.read).items() if read)
        link = world.active.link
        intent = Intent(
            verb,
            (link.name,),
            link.source.name,
            link.target.name,
            groups=tuple(sorted(self.rng.sample(readers, self.rng.randint(1, len(readers))))),
            allow_data_loss=verb is Operation.FAILOVER,
            even_if_source_answers=verb is Operation.FAILOVER and not is_dead,
            drain_timeout_s=PATIENCE_S,
        )
        before = await places_at(world.standby, world.groups)
        attempt = refused = 0
        was_troubled = False
        late: Callable[[], Awaitable[None]] | None = None
        while attempt < ATTEMPTS:
            self.found_pending, self.made = False, ()
            trouble, death = self._trouble(is_last=attempt == ATTEMPTS - 1)
            death.arrives, death.arrives_at = late, self.rng.randint(1, REQUESTS // 3) if late else 0
            try:
                with mortal(monkeypatch, death):
                    moves = await self._attempt(intent, is_dead=is_dead, may_give_up=attempt < ATTEMPTS - 2)
            except BaseException as error:  # a death is no Exception
                cause = first_of(error)
                if isinstance(cause, GateRefused) and not is_death(error):
                    refused += 1
                    intent = await self._answer(cause, intent, trouble, was_troubled=was_troubled)
                    if refused > REFUSED_MAX:
                        raise MovedWrongly(f"{verb} was refused {refused} times") from error
                    was_troubled |= trouble is not Trouble.NONE
                    late = await self._arrived(death)
                    continue
                if not is_death(error) and not isinstance(cause, FarshoreError):
                    raise
                if trouble is Trouble.NONE:
                    raise MovedWrongly(f"{verb} failed, and nothing was in its way: {cause!r}") from error
                self.tell(f"{verb} failed: {cause!r}", f"{verb} failed by {trouble}: {type(cause).__name__}")
                moves = None
            late = await self._arrived(death)
            if moves is not None:
                self.tell(
                    f"{verb} of {intent.groups} ended with 0", f"{verb}{' of a dead site' * is_dead} ended with 0"
                )
                await world.released()
                await world.check(intent, moves, before, is_dead=is_dead, mirror_ran=self.mirror_runs)
                return
            before = _moved(before, self.made)
            was_troubled |= trouble is not Trouble.NONE
            attempt += not self.found_pending
        raise MovedWrongly(f"{verb} did not end with 0, and nothing was in its way")

    async def _arrived(self, death: Death) -> Callable[[], Awaitable[None]] | None:
        """Behind an attempt: what the one before wrote has come by now; what this one wrote last comes amid the next.
        Raises MovedWrongly where both sites are active.
        """
        if death.arrives is not None:
            await death.arrives()
        await self._check_one_active()
        if death.held is None:
            return None
        held, target = death.held, self.world.standby.cluster

        async def arrive() -> None:
            self.tell("a late write came")
            await (await target.any_connection()).request(held)

        return arrive

    async def _check_one_active(self) -> None:
        """Of a switchover, before which the source was closed: until its link is resumed no source takes writes."""
        link = self.world.active.link
        run = (await read_entries(link, self.world.standby.cluster)).run
        if run is None or run.state is not RunState.PROMOTED:
            return
        log = (await load_operations(self.world.standby.cluster)).get(run.operation_id)
        role = await site_standing(self.world.active.cluster)
        is_switchover = log is not None and intent_of(log).operation is Operation.SWITCHOVER
        if is_switchover and role is not None and not all(role.refuses(topic) for topic in self.world.topics):
            raise MovedWrongly(f"{link.name} is promoted by {run.operation_id}, and its source takes writes: {role}")

    def _trouble(self, *, is_last: bool) -> tuple[Trouble, Death]:
        some = (Trouble.DEATH, Trouble.DEATH, Trouble.LATE_WRITE, Trouble.CUTS, Trouble.NONE)
        kind = Trouble.NONE if is_last else self.rng.choice(some)
        death = Death()
        if kind is Trouble.DEATH:
            death = Death(self.rng.randint(1, REQUESTS), answered=self.rng.random() < 0.5)
        elif kind is Trouble.LATE_WRITE:
            death = Death(late_write=True)
        elif kind is Trouble.CUTS:
            death = Death(cuts=lambda: self.rng.random() < CUT_SHARE)
        self.world.told.append(f"trouble: {kind} {death.at or ''}")
        return kind, death

    async def _answer(self, error: GateRefused, intent: Intent, trouble: Trouble, *, was_troubled: bool) -> Intent:
        """What he asks for after a refusal. Raises MovedWrongly where the world does not allow that."""
        world = self.world
        for reason, subject in said_by(error):
            self.tell(f"{intent.operation} refused: {reason} {subject}", f"refused: {reason}")
        known = world.read
        operations = (await load_operations(world.standby.cluster)).values()
        is_open = any(standing_of(log, now_ms()).state in OPEN_STATES for log in operations)
        standing = Standing(was_troubled, is_open, await self._is_promoted())
        groups = groups_in_the_way(error, trouble, standing=standing, read=known, reach=world.reach())
        if not groups:
            return intent
        if not set(groups) <= set(intent.groups) - set(intent.left_groups):
            raise MovedWrongly(f"{groups} of {intent.groups} without {intent.left_groups}: {error!r}")
        others = tuple(group for group in intent.groups if group not in groups)
        answers = [Answer.CONSENTED, *([Answer.LEFT_OUT] if others else [])]
        if self.mirror_runs and not await self._is_promoted():
            answers += [Answer.WAITED] * 2
        answer = self.rng.choice(answers)
        self.tell(f"{answer}: {groups}", f"answered: {answer}")
        match answer:
            case Answer.WAITED:
                await world.until_carried()
                return intent
            case Answer.CONSENTED:
                return replace(intent, left_groups=(*intent.left_groups, *groups))
            case Answer.LEFT_OUT:
                return replace(intent, groups=others)

    async def _is_promoted(self) -> bool:
        run = (await read_entries(self.world.active.link, self.world.standby.cluster)).run
        return run is not None and run.state is RunState.PROMOTED

    async def _attempt(self, intent: Intent, *, is_dead: bool, may_give_up: bool) -> list[Mapping[str, Any]] | None:
        """One command -> the moves that it ended with, where that was with 0."""
        mine = f"operation-{self.operations}"
        before = (await load_operations(self.world.standby.cluster)).get(mine)
        if before is not None:
            standing = standing_of(before, now_ms())
            if standing.state is OperationState.VERIFIED:  # it died before it could tell
                return [move for result in results_of(before) for move in result["moves"]]
            if standing.state in OPEN_STATES:
                asks_another = intent_of(before) != intent
                gives_up = asks_another or (may_give_up and self.rng.random() < GIVES_UP_SHARE)
                return await self._take_up(before, intent, is_dead=is_dead, gives_up=gives_up)
        self.operations += 1
        mine = f"operation-{self.operations}"
        async with self._machine(intent, is_dead=is_dead) as sites:
            (result,) = await operate(intent, sites, mine)
        return await self._ended(result)

    async def _take_up(
        self, log: OperationLog, intent: Intent, *, is_dead: bool, gives_up: bool
    ) -> list[Mapping[str, Any]] | None:
        async with self._machine(intent, is_dead=is_dead) as sites:
            if gives_up:
                found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
                self.tell(f"aborted: {[finding.kind.value for finding in found]}", "aborted")
                return None
            (result,) = await resume(log, sites, Hooks(), "an heir")
        self.tell("taken up")
        return await self._ended(result)

    async def _ended(self, result: OperationResult) -> list[Mapping[str, Any]] | None:
        if not result.verified or result.has_findings:
            at_source = (result.stranded, result.is_source_open, result.source_readers, result.late_commits)
            found = (*at_source, result.unplanned_skips, result.unplanned_read_again, result.is_loss_unconsented)
            self.tell(f"not verified: {result.differences} {found}", "not verified")
            self.found_pending = await self._is_of_what_was_held(result)
            if all(one.kind is DifferenceKind.GROUP_NOT_MOVED for one in result.differences):
                self.made = result.moves
            return None
        return [to_document(move) for move in result.moves]

    async def _is_of_what_was_held(self, result: OperationResult) -> bool:
        """Whether nothing else was found: it is waited for, as he is told to. A group whose transaction ended amid the
        move may stand by then where the mirror will not come any more; the next plan says so.
        """
        world, held = self.world, self.world.holding
        has_others = result.failure is not None or replace(result, late_commits=()).has_findings
        is_held = not has_others and held is not None and all(map(self._holds, result.late_commits))
        for one in result.differences:
            is_not_moved = one.kind is DifferenceKind.GROUP_NOT_MOVED
            is_held &= is_not_moved and held is not None and one.subject.startswith(f"{held.group} on ")
        if is_held or result.late_commits:
            await world.released()
        if result.differences and held is not None:
            is_held &= world.reach().may_be_beyond(world.read[held.group])
        return is_held

    def _holds(self, late: LateCommit) -> bool:
        """Open still, or committed behind the move."""
        holding = self.world.holding
        if holding is None or holding.group != late.group:
            return False
        held = holding.offsets.get(TopicPartition(late.topic, late.partition))
        return held is not None and late.found_offset in (None, held.offset)

    async def resume_link_to_standby(self) -> None:
        """The link that was moved away from carries again, when it is to go the same way once more."""
        link = self.world.active.link
        await accept_all(link, self.world.standby.cluster, f"resume-{self.operations}")

    @asynccontextmanager
    async def _machine(self, intent: Intent, *, is_dead: bool) -> AsyncIterator[list[Any]]:
        async with machine(VICTIM, self.world.active.link) as sites:
            chosen = [replace(one, groups=intent.groups) for one in sites]
            yield [replace(one, source=None) for one in chosen] if is_dead else chosen


def _moved(stood: Places, moves: Iterable[GroupMove]) -> Places:
    found = {group: dict(places) for group, places in stood.items()}
    for move in moves:
        if move.target_offset is not None:
            found.setdefault(move.group, {})[TopicPartition(move.target_topic, move.partition)] = move.target_offset
    return found


Life = Callable[["Operator", pytest.MonkeyPatch], Awaitable[None]]


async def play(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch, life: Life | None = None) -> Counter[str]:
    """A whole life of one world -> how often each thing happened. Raises AssertionError with all it lived through."""
    async with AsyncExitStack() as stack:
        world = MovedWorld(seed, *await two_linked_sites(stack, folder))
        try:
            await (life or any_life)(operator := Operator(world), monkeypatch)
        except BaseException as error:  # whatever it is, it is told what the world had lived through
            first_of(error).add_note("\n".join([f"seed {seed}:", *world.told]))
            raise
        finally:
            if world.held is not None:
                world.held.cancel()
    return operator.counts


async def beyond_the_map(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups read on where the mirror follows late, or not at all, and then their site is left although it lives."""
    world = operator.world
    await world.begin()
    async with AsyncExitStack() as workers:
        await workers.enter_async_context(running(world.active.link))
        await world.until_carried()
        if world.rng.random() < 0.5:
            await workers.aclose()
            operator.mirror_runs = False
        for where in world.partitions:
            await world.write(where)
        for group in world.groups:
            await world.commit(group)
        await operator.move(Operation.FAILOVER, monkeypatch)


async def apart_from_the_mirror(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group stands at the other site where it read there itself; then the site dies at which it is active."""
    world, where = operator.world, await _three_records(operator.world)
    async with running(world.active.link):
        await world.until_carried()
    operator.mirror_runs = False
    await world.read_apart("apart", where, there=1, here=2)
    await operator.move(Operation.FAILOVER, monkeypatch, is_dead=True)


async def ahead_of_the_mirror(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group read on at the other site itself, which the mirror sees; then the site dies at which it is active."""
    world, where = operator.world, await _three_records(operator.world)
    async with running(world.active.link):
        await world.until_carried()
        await world.read_apart("ahead", where, there=2, here=1)
        await world.until_synced("ahead", where)
    operator.mirror_runs = False
    await operator.move(Operation.FAILOVER, monkeypatch, is_dead=True)


async def _three_records(world: MovedWorld) -> TopicPartition:
    """A partition with so many, at least."""
    await world.begin()
    where = world.partitions[0]
    while len(world.values[where]) < 3:
        await world.write(where)
    return where


async def any_life(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    world, rng = operator.world, operator.rng
    legs = rng.choices((1, 2, 3), (6, 3, 1))[0]
    await world.begin()
    async with AsyncExitStack() as workers:
        links = [world.active.link, world.standby.link] if legs > 1 else [world.active.link]
        await workers.enter_async_context(running(*links))
        await world.until_carried()
        for leg in range(legs):
            if leg > 1:
                await operator.resume_link_to_standby()
            await world.live(rng.randint(2, 8))
            kind = rng.choice(("switchover", "switchover", "failover", "dead")) if leg == legs - 1 else "switchover"
            if kind == "switchover":
                if rng.random() < 0.5:
                    await world.until_carried()
                await operator.hold()
                await operator.move(Operation.SWITCHOVER, monkeypatch)
            else:
                await world.until_carried()
                if rng.random() < 0.5 or kind == "dead":
                    await workers.aclose()
                    operator.mirror_runs = False
                await world.live(rng.randint(0, 4))
                if kind != "dead":
                    await operator.hold()
                await operator.move(Operation.FAILOVER, monkeypatch, is_dead=kind == "dead")
            await world.change_sides()
