"""Which refusals an operator of a world of moves has to live with; any other is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from broker.wire.vocabulary import TopicPartition
from failover.errors import (
    GateRefused,
    GroupsRead,
    NotDrained,
    NotMovable,
    OperationUnderWay,
    Overtaken,
    PromotedMeanwhile,
)
from failover.planning.gates import RefusalReason
from failover.planning.settling import SiteUnanswered
from tests.failover.machines import PlanRefused

REFUSED_MAX = 4
"""How often an operator may be told no until his groups are moved."""
BY_CUTS = frozenset(
    {
        RefusalReason.SOURCE_PARTLY_THERE,
        RefusalReason.SOURCE_UNREACHABLE,
        RefusalReason.SITE_UNANSWERED,
        RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE,
        RefusalReason.MEMBERS_UNKNOWN_AT_TARGET,
        RefusalReason.NOT_DRAINED,
        RefusalReason.TARGET_NOT_COMPARED,
    }
)
"""What a lost line may look like: asked again."""
FOLLOWS = frozenset({RefusalReason.GROUP_NOT_MOVABLE, RefusalReason.GROUP_NOT_FOUND, RefusalReason.OFFSETS_IN_DOUBT})
"""What may be said beside it, since a part of the source tells a part."""
_IN_A_RESUME = re.compile(r"(\w+) \(([^)]*)\)")


class MovedWrongly(AssertionError):
    """A command said what is not so in the world, or no where it had no right to."""


class Trouble(StrEnum):
    """What happens to the machine that carries an operation on."""

    DEATH = "death"
    LATE_WRITE = "late write"
    """It dies, and what it wrote last to the link's state comes while another one carries the operation on."""
    CUTS = "cuts"
    NONE = "none"


class Answer(StrEnum):
    """What an operator does about a group that cannot be moved now."""

    WAITED = "waited for the mirror"
    CONSENTED = "consented by name"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class Standing:
    """What the world allows a refusal for. `was_troubled`: a machine that carried the operation on has died, or lost
    its lines, so that what it sent may arrive late. `is_open`: an operation has not ended, so that it is gone on with;
    `is_promoted`: the link is.
    """

    was_troubled: bool = False
    is_open: bool = False
    is_promoted: bool = False

    def allows(self, error: GateRefused) -> bool:
        """Nobody but this operator sets the link's state, and nothing of his that has ended does so any more."""
        match error:
            case PromotedMeanwhile():
                return self.was_troubled and self.is_promoted
            case Overtaken():
                return self.was_troubled
            case OperationUnderWay():
                return self.was_troubled and self.is_open and "since the plan was made" not in str(error)
        return False


@dataclass
class Reach:
    """How many records of each partition the mirror had brought, at least, and how many there are."""

    brought: Mapping[TopicPartition, int]
    written: Mapping[TopicPartition, int]

    def may_be_beyond(self, read: Mapping[TopicPartition, int]) -> bool:
        """Whether a group that has read so many may stand where nobody can tell yet what it reads next there."""
        brought = {at: self.brought.get(at, 0) for at in read}
        return any(brought[at] <= count and brought[at] < self.written[at] for at, count in read.items())


def said_by(error: GateRefused) -> list[tuple[RefusalReason | str, str]]:
    """The gates that said no, each with the site or group that it is about; else the error's own name."""
    match error:
        case PlanRefused():
            return [(refusal.reason, refusal.subject) for refusal in error.refusals]
        case NotMovable():
            return [(RefusalReason.GROUP_NOT_MOVABLE, group) for group in error.groups]
        case GroupsRead():
            return [(RefusalReason.GROUP_ACTIVE_AT_SOURCE, group) for group in error.groups]
        case SiteUnanswered():
            return [(RefusalReason.SITE_UNANSWERED, error.site)]
        case NotDrained():
            return [(RefusalReason.NOT_DRAINED, "")]
    reasons = {reason.value for reason in RefusalReason}
    found = [(word, subject) for word, subject in _IN_A_RESUME.findall(str(error)) if word in reasons]
    return [(RefusalReason(word), subject) for word, subject in found] or [(type(error).__name__, str(error))]


def groups_in_the_way(
    error: GateRefused,
    trouble: Trouble,
    *,
    standing: Standing,
    read: Mapping[str, Mapping[TopicPartition, int]],
    reach: Reach,
) -> list[str]:
    """The groups that cannot be moved now; none: the operator asks again. Raises MovedWrongly for a refusal that the
    world does not allow.
    """
    said = said_by(error)
    reasons = {reason for reason, _ in said}
    if trouble is Trouble.CUTS and reasons & BY_CUTS and reasons <= BY_CUTS | FOLLOWS:
        return []
    if standing.allows(error):
        return []
    groups = sorted(subject for reason, subject in said if reason is RefusalReason.GROUP_NOT_MOVABLE)
    wrong = [group for group in groups if not reach.may_be_beyond(read[group])]
    if wrong or reasons != {RefusalReason.GROUP_NOT_MOVABLE}:
        raise MovedWrongly(f"refused without a reason: {error!r} {_told(said)}")
    return groups


def _told(said: Iterable[tuple[RefusalReason | str, str]]) -> str:
    return ", ".join(f"{reason} {subject}" for reason, subject in said)
