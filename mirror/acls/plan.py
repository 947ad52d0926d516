"""What is to be done about ACLs at a link's target, and what is not, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.client.acl_bindings import Acl, operation_word
from broker.wire.vocabulary import AclPattern, AclPermission, AclResource
from mirror.acls.carrying import AclScope, CarriedAcls, denied_by, without_freezes
from mirror.acls.record import AclRecord


class AclStep(StrEnum):
    """What happens to an ACL of the target, or does not."""

    CREATE = "create"
    HOLD = "hold"
    """It allows more than to read: it is made when the target has taken over."""
    WITHHOLD = "withhold"
    """It cannot be carried over; the detail says why."""
    REMOVE = "remove"
    """The link made it, and it is wanted no more; only where it is asked for."""
    KEEP = "keep"
    """The source has none such, and the link did not make it."""
    KEEP_UNKNOWN = "keep_unknown"
    """The source has none such, and who made it is not known."""
    OPEN = "open"
    """It would be held, and somebody else made it at the target: there others than the mirror may change it."""


@dataclass(frozen=True, slots=True)
class PlannedAcl:
    """An ACL of the target in words, and what becomes of it."""

    step: AclStep
    permission: str
    principal: str
    operation: str
    resource: str
    name: str
    pattern: str
    host: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Withheld:
    """An ACL that is not made, and why."""

    acl: Acl
    why: str


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What would be done at the target. `create` and `remove` are in the order in which it is done: denials are made
    first, and go last. `held_again`: those of `remove` that were made when the target had taken over, and wait anew.
    `settled`: those that waited for the promotion and do so no more: they are there, or the source has taken them away.

    `promoted`: the target took over, so that nothing is held, and nothing removed: the source's ACLs may be of before.
    `written_out`: patterns of the source of which only the link's own topics and groups are left.
    """

    link: str
    promoted: bool
    create: tuple[Acl, ...]
    hold: tuple[Acl, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    remove: tuple[Acl, ...] = ()
    held_again: tuple[Acl, ...] = ()
    settled: tuple[Acl, ...] = ()
    open_at_target: tuple[Acl, ...] = ()
    keep: tuple[Acl, ...] = ()
    keep_unknown: tuple[Acl, ...] = ()
    in_place: int = 0
    written_out: tuple[Acl, ...] = ()


_LOCKS_OUT: Final = "it would deny the mirror, too, unless that is a super user there: make it by hand"
_LOST: Final = (
    "a link back brought it from there, where it is no more: it comes with --rebuilt where the site lost it; "
    "else that link's plan removes what is left of it"
)
_HELD_AGAIN: Final = "the target stands by again: it waits for the next promotion"


def plan_acls(
    scope: AclScope, carried: CarriedAcls, target: Iterable[Acl], record: AclRecord, *, promoted: bool
) -> AclPlan:
    """Compare what the source comes to with what is there."""
    there = without_freezes(target)
    locking = sorted(acl for acl in carried.standing - there if scope.locks_out(acl))
    lost = sorted(carried.from_target - there)
    barred = {acl: denial for acl in carried.standing | carried.held if (denial := _barring(acl, [*locking, *lost]))}
    withheld = [*(Withheld(acl, _LOCKS_OUT) for acl in locking), *(Withheld(acl, _LOST) for acl in lost)]
    withheld += [Withheld(acl, f"without this denial: {barred[acl]}") for acl in sorted(barred.keys() - there)]
    waiting = frozenset[Acl]() if promoted else carried.held - carried.standing
    wanted = (carried.standing | carried.held if promoted else carried.standing) - barred.keys() - {*locking}
    waited = record.held - (record.made & there) if promoted else frozenset[Acl]()
    given = {acl for acl in waited - barred.keys() if not scope.is_known_at_source(acl)}
    # Nor without its denial, of which the source may know another topic.
    wanted |= given | {acl for acl in waited if acl.is_denial and any(denied_by(one, [acl]) for one in given)}
    ours = frozenset[Acl]() if promoted or record.damage else record.made
    extra = {acl for acl in there - wanted - waiting if acl in record.made or scope.speaks_of(acl)}
    rest = tuple(sorted(extra - ours))
    return AclPlan(
        scope.link.name,
        promoted,
        create=denials_first(wanted - there),
        hold=tuple(sorted(waiting - there - barred.keys())),
        withheld=tuple(withheld),
        remove=denials_last((extra | (waiting & there)) & ours),
        held_again=tuple(sorted(waiting & there & ours)),
        settled=tuple(sorted(waited - (wanted | barred.keys()) | waited & there)),
        open_at_target=tuple(sorted((waiting & there) - ours)),
        keep=rest if record.tells else (),
        keep_unknown=() if record.tells else rest,
        in_place=len(wanted & there),
        written_out=carried.written_out,
    )


def plan_promotion(link: str, target: Iterable[Acl], record: AclRecord) -> AclPlan:
    """Of a target that took over from a source that does not answer: what the link had held back, as it wrote it, and
    the denials that it made and that are gone.
    """
    there = without_freezes(target)
    settled = tuple(sorted((record.held - record.made) & there))
    create = denials_first((record.held | {acl for acl in record.made if acl.is_denial}) - there)
    return AclPlan(link, promoted=True, create=create, settled=settled, in_place=len(record.held & there))


def denials_first(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    """So made, nothing is allowed meanwhile that the source denies."""
    return tuple(sorted(acls, key=lambda acl: (not acl.is_denial, acl)))


def denials_last(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    """So removed, nothing is allowed meanwhile that was denied."""
    return tuple(sorted(acls, key=lambda acl: (acl.is_denial, acl)))


def due_acls(planned: Iterable[Acl], shown_before: Collection[Acl]) -> tuple[Acl, ...]:
    """What was already shown as a plan in the pass before, in the same order."""
    return tuple(acl for acl in planned if acl in shown_before)


def lines_of(plan: AclPlan) -> list[PlannedAcl]:
    """In the order in which they are done; then what is not done."""
    told = [(AclStep.CREATE, acl, "") for acl in plan.create]
    told += [(AclStep.REMOVE, acl, _HELD_AGAIN if acl in plan.held_again else "") for acl in plan.remove]
    told += [(AclStep.HOLD, acl, "") for acl in plan.hold]
    told += [(AclStep.WITHHOLD, one.acl, one.why) for one in plan.withheld]
    told += [(AclStep.OPEN, acl, "") for acl in plan.open_at_target]
    told += [(AclStep.KEEP, acl, "") for acl in plan.keep]
    told += [(AclStep.KEEP_UNKNOWN, acl, "") for acl in plan.keep_unknown]
    return [_in_words(*one) for one in told]


def _barring(acl: Acl, denials: list[Acl]) -> Acl | None:
    return None if acl.is_denial else denied_by(acl, denials)


def _in_words(step: AclStep, acl: Acl, detail: str) -> PlannedAcl:
    return PlannedAcl(
        step,
        AclPermission(acl.permission_type).name.lower(),
        acl.principal,
        operation_word(acl.operation),
        AclResource(acl.resource_type).name.lower(),
        acl.resource_name,
        AclPattern(acl.pattern_type).name.lower(),
        acl.host,
        detail,
    )
