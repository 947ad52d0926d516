"""What a drill foresees beside the plan of a failover: refusals of a switchover now, and of the way back. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from failover.drilling.findings import DrillFinding
from failover.errors import FreezeNotAllowed
from failover.failback.plan import FailbackRefusal, why_none
from failover.freezing.choice import Freezing
from failover.observing.snapshot import Snapshot
from failover.planning.gates import RefusalReason
from failover.planning.plan import Elsewhere, plan_switchover
from failover.running.verification import DifferenceKind
from mirror.api import CarriedBack, Link

_OF_SWITCHOVER: Final[Mapping[RefusalReason, tuple[str, str]]] = MappingProxyType(
    {
        RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE: (
            "whether it has consumers at the source cannot be told, so a switchover would be refused",
            "farshore group describe --site {source} --group {subject}",
        ),
        RefusalReason.FROZEN_FOR_OTHERS: (
            "it is frozen for other topics ({detail}), so a switchover would be refused: another move is under way "
            "there, or was cut short, or somebody froze them",
            "farshore site role",
        ),
        RefusalReason.MAYBE_ELSEWHERE: (
            "the source was left for good, and {detail}, where that link goes, does not say whether it is the active "
            "site: a switchover would be refused",
            "farshore status --link {subject}",
        ),
    }
)
"""Those that a plan with a dead source may not have. Groups that read are none of these: at the source they do, before
the day, and at the target always where those of both sites have one name. A failover minds who reads at the target
where it has an offset to set, and its plan says so.
"""


def of_seen_by_worker(link: Link) -> Iterable[DrillFinding]:
    """Beside the lost site."""
    text = f"no broker of it answers here, and meanwhile it answered the worker of {link.name}: it is not lost"
    step = "see why this machine does not reach it, and run commands where it is reached"
    yield DrillFinding(RefusalReason.SOURCE_SEEN_BY_WORKER.value, link.source.name, text, step)


def of_other_types(live: Snapshot | None) -> Iterable[DrillFinding]:
    """What refuses a switchover, and no failover."""
    for group in live.groups if live is not None and not live.is_promoted else ():
        if group.other_type:
            text = f"it is of type {group.other_type}, and nobody tells what its members at the source read"
            step = f"a switchover wants it stopped, or --leave-group {shlex.quote(group.group)}"
            yield DrillFinding(RefusalReason.GROUP_OF_OTHER_TYPE.value, group.group, text, step)


def of_held_at_target(groups: Iterable[str], target: str) -> Iterable[DrillFinding]:
    """What a move would end with as not verified."""
    for group in sorted(groups):
        text = f"a transaction at {target} that does not end commits another offset of it there: a move "
        text += "would find that, and end as not verified"
        step = f"`kafka-transactions.sh list` at {target} says whose are ongoing: end it, or stop what commits there"
        yield DrillFinding(DifferenceKind.GROUP_PENDING.value, group, text, step)


def of_switchover(
    live: Snapshot | None, freezing: Freezing, elsewhere: Sequence[Elsewhere], told: Collection[tuple[str, str]] = ()
) -> Iterable[DrillFinding]:
    """`live`: both sites as they are, None where they do not tell. `freezing`: their roles. `told`: what was found
    already, by kind and subject.
    """
    if live is None:
        return
    for refusal in plan_switchover(live, freezing=freezing, elsewhere=tuple(elsewhere)).refusals:
        if refusal.reason in _OF_SWITCHOVER and (refusal.reason.value, refusal.subject) not in told:
            detail, step = _OF_SWITCHOVER[refusal.reason]
            named = {"subject": shlex.quote(refusal.subject), "source": live.source}
            text = detail.format(detail=refusal.detail)
            yield DrillFinding(refusal.reason.value, refusal.subject, text, step.format(**named))


def of_freeze(source: str, no_freeze: FreezeNotAllowed | None) -> Iterable[DrillFinding]:
    """A switchover is refused by it; a failover leaves the source open, as far as that is so."""
    if no_freeze is not None:
        text = f"{no_freeze}; a switchover would be refused, and a failover leave it open"
        yield DrillFinding(RefusalReason.FREEZE_NOT_ALLOWED.value, source, text, no_freeze.hint)


def of_way_back(link: str, source: str, back: CarriedBack) -> Iterable[DrillFinding]:
    """What the file says of it. That it has no link back is no finding: one may be declared when it is wanted."""
    names = ", ".join(one.name for one in back.links)
    for refusal in why_none(len(back.links), back.not_carried) if back.links else ():
        if refusal is FailbackRefusal.SEVERAL_LINKS_BACK:
            text = f"several links bring back what it mirrors, each a part: {names}; a failback would be refused"
            step = f"have one link carry back to {source} what {link} mirrors"
        else:
            left_out = ", ".join(back.not_carried)
            text = f"link {names} brings back a part of what it mirrors, not {left_out}; a failback would be refused"
            step = f"add these topics to link {names} in farshore.toml"
        yield DrillFinding(refusal.value, link, text, step)
