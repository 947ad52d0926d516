"""How an operation stands, as its journal says it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from broker.wire.site_role import SiteStanding
from failover.errors import JournalDamaged, NewerVersion, OperationUnderWay
from failover.journal.values import LATE_DENIALS, Event, OperationLog, as_told, is_sound
from failover.limits import UNHEARD_S
from failover.planning.intent import INTENT_FIELDS, Intent, read_intent
from failover.planning.moves import GroupMove, MoveKind
from failover.running.steps import BEFORE_FENCE, Operation, OperationStep
from mirror.api import Link


class OperationState(StrEnum):
    """Of the first two nobody knows yet how they end; the others are for good."""

    UNDER_WAY = "under_way"
    CUT_SHORT = "cut_short"
    """Nobody carries it on: it is to be resumed, or aborted."""
    VERIFIED = "verified"
    FINDINGS = "findings"
    """Verified, and with a finding: records came to the source after the fence, say, or a group read on there, or what
    did not answer at the target was left as it is, or the after_hook failed (`OperationResult.has_findings`).
    """
    IN_PART = "in_part"
    """Of several links one was refused and stays as it is; those that were moved are verified."""
    NOT_VERIFIED = "not_verified"
    GIVEN_UP = "given_up"
    ABORTED = "aborted"
    DAMAGED = "damaged"
    NEWER_VERSION = "newer_version"
    """A newer version of farshore wrote it: what it says is not guessed at."""


NO_INTENT: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading an intent fails with that nobody of ours wrote."""
OPEN_STATES = frozenset({OperationState.UNDER_WAY, OperationState.CUT_SHORT})


@dataclass(frozen=True, slots=True)
class StepStanding:
    """One step, as it was last begun; `done_at_ms` None: it has not ended."""

    step: str
    started_at_ms: int
    done_at_ms: int | None


@dataclass(frozen=True, slots=True)
class OperationStanding:
    """`who` carries it on, or did so last, and was heard of at `heard_at_ms` (that machine's clock). `error`: why it
    was cut short or given up.
    """

    operation_id: str
    state: OperationState
    operation: str
    links: tuple[str, ...]
    source: str
    target: str
    who: str
    reason: str
    started_at_ms: int
    heard_at_ms: int
    ended_at_ms: int | None
    steps: tuple[StepStanding, ...]
    error: str = ""

    @property
    def step(self) -> str:
        """The last one that was begun."""
        return self.steps[-1].step if self.steps else ""


def intent_of(log: OperationLog) -> Intent:
    """What was asked for. Raises JournalDamaged, NewerVersion."""
    document: Any = log.whole().entries[0].detail.get("intent")
    try:
        return read_intent(document)
    except NO_INTENT as error:
        raise JournalDamaged(f"what {log.operation_id} was asked for cannot be read: {document!r}") from error


def role_before(log: OperationLog) -> SiteStanding | None:
    """The source's role when the operation began; None: it had none, or nobody could tell. Raises JournalDamaged."""
    configs = log.entries[0].detail.get("role_before")
    try:
        return None if configs is None else SiteStanding.of(configs)
    except NO_INTENT as error:
        said = f"what role {configs!r} is, before it began, cannot be read"
        raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}") from error


def was_writable_before(log: OperationLog) -> bool:
    """Whether farshore itself could write to the source's topics when the operation began: its ACLs may deny it now."""
    return bool(log.entries[0].detail.get("is_writable_before"))


def standing_of(log: OperationLog, now_ms: int) -> OperationStanding:
    """`now_ms`: this machine's clock; a lease is heard of by two clocks, so that only a long silence says something."""
    log = as_told(log)
    events = [entry.event for entry in log.entries]
    details = [entry.detail for entry in log.entries]
    intent, is_newer = _intent_of(details)
    is_newer = is_newer or bool(log.newer_version)
    who = next((str(detail["who"]) for detail in reversed(details) if "who" in detail), "")
    heard_at_ms = max(log.entries[-1].at_ms if log.entries else 0, log.lease.at_ms if log.lease else 0)
    error = next((str(detail["error"]) for detail in reversed(details) if "error" in detail), "")
    refused = {*given_up_links(log), *(intent.refused_links if intent else ())}
    state = _state(log, events, is_heard=now_ms - heard_at_ms < UNHEARD_S * 1000, in_part=bool(refused))
    state = state if intent else OperationState.DAMAGED
    state = OperationState.NEWER_VERSION if is_newer else state
    return OperationStanding(
        operation_id=log.operation_id,
        state=state,
        operation=intent.operation.value if intent else "",
        links=intent.links if intent else (),
        source=intent.source if intent else log.lease.between[0] if log.lease else "",
        target=intent.target if intent else log.lease.between[1] if log.lease else "",
        who=who,
        reason=intent.reason if intent else "",
        started_at_ms=log.entries[0].at_ms if log.entries else 0,
        heard_at_ms=heard_at_ms,
        ended_at_ms=log.entries[-1].at_ms if state not in OPEN_STATES and log.entries else None,
        steps=_steps(log),
        error=log.damage or (error if state in (OperationState.CUT_SHORT, OperationState.GIVEN_UP) else ""),
    )


def _intent_of(details: Sequence[Mapping[str, Any]]) -> tuple[Intent | None, bool]:
    """What was asked for, or as much of it as is known here; and whether a newer version wrote it."""
    with suppress(JournalDamaged, *NO_INTENT):
        if not details:
            return None, False
        document = details[0]["intent"]
        try:
            return read_intent(document), False
        except NewerVersion:
            known = {name: value for name, value in document.items() if name in INTENT_FIELDS}
            return read_intent(known), True
    return None, False


def _state(log: OperationLog, events: list[str], *, is_heard: bool, in_part: bool) -> OperationState:
    if log.damage or not events:
        return OperationState.DAMAGED
    if Event.FINISHED in events:
        detail = log.entries[events.index(Event.FINISHED)].detail
        if not detail["verified"]:
            return OperationState.NOT_VERIFIED
        if in_part:
            return OperationState.IN_PART
        return OperationState.FINDINGS if detail["has_findings"] else OperationState.VERIFIED
    if Event.ABORTED in events:
        return OperationState.ABORTED
    if Event.GIVEN_UP in events:
        return OperationState.GIVEN_UP
    return OperationState.UNDER_WAY if is_heard and events[-1] != Event.CUT_SHORT else OperationState.CUT_SHORT


def _steps(log: OperationLog) -> tuple[StepStanding, ...]:
    found: dict[str, StepStanding] = {}
    for entry in log.entries:
        if entry.event == Event.STARTED:
            found.pop(step := str(entry.detail["step"]), None)
            found[step] = StepStanding(step, entry.at_ms, None)
        elif entry.event == Event.DONE and (begun := found.get(str(entry.detail["step"]))):
            found[begun.step] = StepStanding(begun.step, begun.started_at_ms, entry.at_ms)
    return tuple(found.values())


def is_verified(log: OperationLog) -> bool:
    """Whether it ran to its end, and that was as it should be."""
    return any(entry.event == Event.FINISHED and is_sound(entry) and entry.detail["verified"] for entry in log.entries)


def given_up_links(log: OperationLog) -> dict[str, str]:
    """The links that it goes on without, and why: they stay as they are."""
    given_up = [entry.detail for entry in log.entries if entry.event == Event.LINK_GIVEN_UP]
    return {str(detail["link"]): str(detail["why"]) for detail in given_up}


def is_failback(log: OperationLog) -> bool:
    """Whether it is one, as far as its first entry can be read."""
    intent, _ = _intent_of([entry.detail for entry in log.entries[:1]])
    return intent is not None and intent.operation is Operation.FAILBACK


def within(log: OperationLog) -> str:
    """The failback that it is a step of; "": of none."""
    found = log.entries[0].detail.get("within", "") if log.entries else ""
    return found if isinstance(found, str) else ""


def is_behind_fence(log: OperationLog) -> bool:
    """Whether the fence was begun, so that the links may be moved. A failback has none of its own."""
    if is_failback(log):
        return False
    before = {step.value for step in BEFORE_FENCE}
    return any(
        entry.event == Event.STARTED and not (is_sound(entry) and entry.detail["step"] in before)
        for entry in log.entries
    )


def done_moves(log: OperationLog, step: OperationStep, at: Event = Event.DONE) -> dict[str, tuple[GroupMove, ...]]:
    """Per link the moves that this step last ended with, or began with; none of a link of which it did not: a run names
    the links that go in it, and one that goes without a link takes back nothing of what was done before. Raises
    JournalDamaged where they are none.
    """
    found: dict[str, tuple[GroupMove, ...]] = {}
    for entry in log.entries:
        if entry.event == at and entry.detail["step"] == step.value and "moves" in entry.detail:
            try:
                found |= {
                    link: tuple(GroupMove(**{**move, "kind": MoveKind(move["kind"])}) for move in moves)
                    for link, moves in entry.detail["moves"].items()
                }
            except NO_INTENT as error:
                said = f"entry {entry.sequence} has moves that are none"
                raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}") from error
    return found


def uncommitted_groups(log: OperationLog) -> dict[str, frozenset[str]]:
    """Per link the groups that the step of their moves, as it last ended with that link, does not know to be moved;
    none where an earlier version wrote it. Raises JournalDamaged where they are none.
    """
    left: dict[str, frozenset[str]] = {}
    for entry in log.entries:
        if entry.event == Event.DONE and entry.detail["step"] == OperationStep.MOVE_GROUPS.value:
            match entry.detail.get("uncommitted", {}), entry.detail.get("moves", {}):
                case dict(found), dict(moved) if all(_are_names(groups) for groups in found.values()):
                    left |= dict.fromkeys(moved, frozenset())
                    left |= {link: frozenset(groups) for link, groups in found.items()}
                    continue
            said = f"entry {entry.sequence} has groups that are none"
            raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}")
    return left


def is_told_after(log: OperationLog, links: Collection[str]) -> bool:
    """Whether the after_hook ended as it should, and had been told that all these links are moved and verified."""
    ended = [entry.detail for entry in log.entries if entry.event == Event.DONE]
    return any(
        one["step"] == OperationStep.AFTER_HOOK.value
        and one.get("verified") is True
        and one.get("error") == ""
        and _are_names(one.get("links"))
        and set(links) <= set(one["links"])
        for one in ended
    )


def late_denials(log: OperationLog) -> tuple[str, ...]:
    """Topics of the source (regular expressions) of which a machine that carried it on may have asked for denials, and
    not been told that they are there. Raises JournalDamaged where they are none.
    """
    for entry in reversed(log.entries):
        if LATE_DENIALS in entry.detail:
            if _are_names(found := entry.detail[LATE_DENIALS]):
                return tuple(found)
            said = f"entry {entry.sequence} has topics that are none"
            raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}")
    return ()


def _are_names(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


def under_way(
    link: Link,
    operations: Mapping[str, OperationLog],
    now_ms: int,
    *,
    even_failbacks: bool = True,
    even_giving_up: bool = True,
) -> str:
    """The operation along the link that has not ended; "" where there is none. One that cannot be read, or that a newer
    version wrote, counts while its machine is heard of; one that gave the link up does not. Of those that have ended,
    which are most, the evidence is not opened: third sites have a few seconds to be asked in, for all the links of a
    move. `even_giving_up`: also one that moves nobody, and has its freeze still to undo.
    """
    for log in operations.values():
        if log.is_ended or (not even_failbacks and is_failback(log)):
            continue
        if not even_giving_up and log.entries and log.entries[-1].event == Event.GIVING_UP:
            continue
        standing = standing_of(log, now_ms)
        is_along = link.name in standing.links and link.name not in given_up_links(as_told(log))
        if not standing.links:  # its first entry cannot be read, and its lease says between which sites it goes
            is_along = (standing.source, standing.target) == (link.source.name, link.target.name)
        if is_along and (standing.state in OPEN_STATES or _is_heard(standing, now_ms)):
            return log.operation_id
    return ""


def _is_heard(standing: OperationStanding, now_ms: int) -> bool:
    return abs(now_ms - standing.heard_at_ms) < UNHEARD_S * 1000


def refuse_second(operations: Mapping[str, OperationLog], sites: tuple[str, str], now_ms: int) -> None:
    """Raises OperationUnderWay where one from the first of these sites to the second has not ended, NewerVersion where
    nobody can tell that here. One that is damaged counts while its machine is heard of; then it is nobody's. One of
    which neither an entry nor a lease says between which sites it goes keeps nobody from anything: none of ours is so.
    """
    for log in operations.values():
        if log.is_ended:
            continue
        standing = standing_of(log, now_ms)
        if (standing.source, standing.target) != sites:
            continue
        if standing.state is OperationState.NEWER_VERSION and not log.is_ended:
            raise NewerVersion(
                f"{log.operation_id} was written by a newer version of farshore, and whether it has ended cannot be "
                "told; nothing was changed"
            )
        is_heard = _is_heard(standing, now_ms)  # nobody watches one that is damaged
        if standing.state is OperationState.DAMAGED and is_heard and not log.is_ended:
            standing = replace(standing, state=OperationState.UNDER_WAY)
        if standing.state not in OPEN_STATES:
            continue
        raise held_by(standing, f"{told_standing(standing, now_ms)}; nothing was changed")


def refuse_amid(link: str, operations: Mapping[str, OperationLog], now_ms: int) -> None:
    """As `refuse_second`, where an operation along the link has not ended: who would let that run interferes. One that
    it gave up is not its own any more. Raises OperationUnderWay, NewerVersion.
    """
    for log in (one for one in operations.values() if not one.is_ended):
        standing = standing_of(log, now_ms)
        if link in standing.links and link not in given_up_links(as_told(log)):
            refuse_second({log.operation_id: log}, (standing.source, standing.target), now_ms)


def held_by(standing: OperationStanding, text: str) -> OperationUnderWay:
    """What is said to who would move what this one does, with its way on."""
    subject = ",".join(standing.links)
    return OperationUnderWay(text, way_on(standing), subject=subject, operation_id=standing.operation_id)


def to_forget(operations: Mapping[str, OperationLog], sites: tuple[str, str], kept: int) -> list[OperationLog]:
    """Those from the first of these sites to the second that nobody needs any more: they have ended, and each of their
    links has `kept` newer ones, and was fenced by one of those. What is damaged stays, for a person to see.
    """
    if len(operations) <= kept:
        return []
    newer: dict[str, int] = {}
    fenced: set[str] = set()
    found = []
    for log in reversed(list(operations.values())):
        intent, is_newer = _intent_of([entry.detail for entry in log.entries[:1]])
        if intent is None or (intent.source, intent.target) != sites:
            continue
        links = intent.links
        is_over = log.is_ended and not log.damage and not (is_newer or log.newer_version)
        was_fenced = is_behind_fence(log)
        if is_over and all(newer.get(link, 0) >= kept and (link in fenced or not was_fenced) for link in links):
            found.append(log)
        for link in links:
            newer[link] = newer.get(link, 0) + 1
        fenced.update(links if was_fenced else ())
    return found


def told_standing(standing: OperationStanding, now_ms: int) -> str:
    """Who, when and where, in a sentence."""
    heard_s = max(0.0, (now_ms - standing.heard_at_ms) / 1000)
    names = ", ".join(standing.links)
    what = f"{standing.operation_id} moves {names}" if names else standing.operation_id
    if standing.state is OperationState.UNDER_WAY:
        return f"{what}: {standing.who}, heard of {heard_s:.0f} s ago, in its step {standing.step or 'planned'}"
    return f"{what} and was cut short in its step {standing.step or 'planned'}: {standing.who}, {heard_s:.0f} s ago"


def way_on(standing: OperationStanding) -> str:
    """What can be done about one that has not ended."""
    operation_id = standing.operation_id
    if standing.state is OperationState.UNDER_WAY:
        return f"`farshore operation wait {operation_id}` says how it ends"
    goes_on = f"`farshore operation resume {operation_id}` goes on"
    gives_up = f"`farshore operation abort {operation_id}` gives it up"
    if standing.operation == Operation.SWITCHOVER:  # and where that says no, because the source died before the fence
        gives_up += f"; is {standing.source} lost, `farshore failover` moves then what it had not"
    return f"{goes_on}, {gives_up}"


def results_of(log: OperationLog) -> list[Mapping[str, Any]]:
    """The documents that it ended with, one per link; none where it did not run to its end."""
    return next((list(entry.detail["results"]) for entry in log.entries if entry.event == Event.FINISHED), [])
