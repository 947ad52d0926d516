"""What said no to a command, for programs: what they find as `refusals` in its document."""

from __future__ import annotations

from typing import Any, Final, Protocol

from broker.base.documents import to_document
from failover.errors import (
    BackTailUndecided,
    ExportRefused,
    FreezeNotAllowed,
    GateRefused,
    GroupsRead,
    HookFailed,
    NotDrained,
    NotMovable,
    OffsetsPending,
    OperationEnded,
    OperationUnderWay,
    OtherFile,
    PromotedMeanwhile,
    ReadsMore,
    ReplayRefused,
    SkipsMore,
    StrandedUnknown,
    SwitchoverOpen,
    WorldChanged,
)
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.settling import SiteUnanswered
from failover.running.whole_site import WholeSiteCut

NO_CONSENT: Final = (GateRefusal(RefusalReason.NO_CONSENT, ""),)
_REASONS: dict[type[GateRefused], RefusalReason] = {
    BackTailUndecided: RefusalReason.BACK_TAIL_UNDECIDED,
    ExportRefused: RefusalReason.EXPORT_REFUSED,
    OtherFile: RefusalReason.OTHER_FILE,
    FreezeNotAllowed: RefusalReason.FREEZE_NOT_ALLOWED,
    HookFailed: RefusalReason.HOOK_FAILED,
    NotDrained: RefusalReason.NOT_DRAINED,
    OperationEnded: RefusalReason.OPERATION_ENDED,
    PromotedMeanwhile: RefusalReason.PROMOTED_MEANWHILE,
    ReplayRefused: RefusalReason.REPLAY_REFUSED,
    StrandedUnknown: RefusalReason.STRANDED_UNKNOWN,
    WorldChanged: RefusalReason.WORLD_CHANGED,
}


class Ending(Protocol):
    """An error that ends a command."""

    hint: str


def ended_by(data: object, error: Ending) -> dict[str, Any]:
    """The command's own document, with what was met and what to do, as they are told on stderr."""
    return {**to_document(data), "error": str(error), "hint": error.hint}


def refusals_of(refused: GateRefused, source: str = "", moved: str = "") -> list[GateRefusal]:
    """`source`: the site that is left, and `moved`: what is moved away from there, where that is known."""
    match refused:
        case OperationUnderWay():
            return [GateRefusal(RefusalReason.OPERATION_UNDER_WAY, moved or refused.subject, refused.operation_id)]
        case WholeSiteCut():
            cut = GateRefusal(RefusalReason.WHOLE_SITE_CUT, refused.link)
            because = refused.because
            return [cut, *(refusals_of(because, source, refused.link) if isinstance(because, GateRefused) else ())]
        case SwitchoverOpen():
            return [GateRefusal(RefusalReason.OPERATION_UNDER_WAY, moved, refused.switchover)]
        case GroupsRead():
            return [GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, group) for group in refused.groups]
        case NotMovable():
            return [GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in refused.groups]
        case OffsetsPending():
            return [GateRefusal(RefusalReason.OFFSETS_PENDING, group) for group in refused.groups]
        case ReadsMore():
            return [GateRefusal(RefusalReason.GROUP_OFFSET_LOST, group) for group in refused.groups]
        case SkipsMore():
            return [GateRefusal(RefusalReason.GROUP_WENT_ON, group) for group in refused.groups]
        case SiteUnanswered():
            return [GateRefusal(RefusalReason.SITE_UNANSWERED, refused.site)]
    subject = source if isinstance(refused, FreezeNotAllowed | HookFailed) else moved
    return [GateRefusal(reason, subject) for kind, reason in _REASONS.items() if isinstance(refused, kind)]
