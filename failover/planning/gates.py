"""Why a gate says no. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from failover.freezing.denials import topic_options


class RefusalReason(StrEnum):
    """Why a safety gate says no."""

    SOURCE_UNREACHABLE = "source_unreachable"
    SOURCE_ANSWERS = "source_answers"
    SOURCE_PARTLY_THERE = "source_partly_there"
    SOURCE_SEEN_BY_WORKER = "source_seen_by_worker"
    LINK_NOT_RUNNING = "link_not_running"
    MOVE_UNTOLD = "move_untold"
    """The link is promoted, and the journal of the operation that did it was lost."""
    MOVED_BACK = "moved_back"
    """The link was moved before, and not let run again since its clients went back."""
    TARGET_WAS_LEFT = "target_was_left"
    """So it was, and its source is to be left anew: the target refuses writes to the link's topics since."""
    LINK_PAUSED = "link_paused"
    TOPIC_PAUSED = "topic_paused"
    NOTHING_MIRRORED = "nothing_mirrored"
    MAP_LOST = "map_lost"
    """The link's state was deleted: what the target has of the source is not known."""
    GROUP_ACTIVE_AT_SOURCE = "group_active_at_source"
    GROUP_ACTIVE_AT_TARGET = "group_active_at_target"
    OFFSETS_IN_DOUBT = "offsets_in_doubt"
    DATA_LOSS_NOT_ALLOWED = "data_loss_not_allowed"
    MEMBERS_UNKNOWN_AT_SOURCE = "members_unknown_at_source"
    MEMBERS_UNKNOWN_AT_TARGET = "members_unknown_at_target"
    GROUP_OF_OTHER_TYPE = "group_of_other_type"
    GROUP_NOT_FOUND = "group_not_found"
    NOT_DRAINED = "not_drained"
    OFFSETS_PENDING = "offsets_pending"
    """Of the group, in a transaction at the source that did not end while it was drained."""
    NO_CONSENT = "no_consent"
    GROUP_NOT_MOVABLE = "group_not_movable"
    GROUP_WENT_ON = "group_went_on"
    """At the target, or that lost its next records, since the plan said that it skips nothing."""
    GROUP_OFFSET_LOST = "group_offset_lost"
    """At the source, since the plan said where it goes on: it would read records again."""
    HOOK_FAILED = "hook_failed"
    FROZEN_FOR_OTHERS = "frozen_for_others"
    CLOSED_AT_TARGET = "closed_at_target"
    TOPICS_CUT = "topics_cut"
    WHOLE_SITE_CUT = "whole_site_cut"
    """Links of a move of a whole site's role would stay, and their topics be closed at the source all the same."""
    NOTHING_SELECTED = "nothing_selected"
    WORLD_CHANGED = "world_changed"
    ACTIVE_ELSEWHERE = "active_elsewhere"
    MAYBE_ELSEWHERE = "maybe_elsewhere"
    MOVING_ELSEWHERE = "moving_elsewhere"
    PARTITION_UNANSWERED = "partition_unanswered"
    """It cannot be asked at the target, and a selected group reads its topic."""
    PARTITION_NOT_FOUND = "partition_not_found"
    GROUP_UNANSWERED = "group_unanswered"
    """Nothing can be asked or set of it at the target."""
    SITE_UNANSWERED = "site_unanswered"
    """It is there, and did not tell, as often as it was asked, what the plan needs."""
    TARGET_LACKS = "target_lacks"
    """Records that a link back had mirrored from it: the target came back with an older log, or another one."""
    TARGET_NOT_COMPARED = "target_not_compared"
    """Whether it lacks such records cannot be told."""
    SOURCE_REPLACED = "source_replaced"
    """Another cluster answers in the source's place than the mirrored records came from."""
    DECLARED_OTHERWISE = "declared_otherwise"
    """This file leaves out topics that the link's worker mirrored, or calls them otherwise."""
    OPERATION_UNDER_WAY = "operation_under_way"
    OPERATION_ENDED = "operation_ended"
    PROMOTED_MEANWHILE = "promoted_meanwhile"
    OTHER_FILE = "other_file"
    FREEZE_NOT_ALLOWED = "freeze_not_allowed"
    STRANDED_UNKNOWN = "stranded_unknown"
    BACK_TAIL_UNDECIDED = "back_tail_undecided"
    """Of the link back: it would bring what its source alone has behind newer records."""
    EXPORT_REFUSED = "export_refused"
    REPLAY_REFUSED = "replay_refused"


NOT_FOUND = frozenset({RefusalReason.GROUP_NOT_FOUND, RefusalReason.PARTITION_NOT_FOUND})
"""Of names that somebody gave."""


@dataclass(frozen=True, slots=True)
class GateRefusal:
    """One gate that said no; `subject`: the site, group or partition it is about, "" where it is the whole command;
    `detail`: a third site, an operation's id, expressions of topics, or the error that was met, if any.
    """

    reason: RefusalReason
    subject: str
    detail: str = ""

    @property
    def topic_options(self) -> str:
        """Of one that `refusal_for` made: the options that name its expressions."""
        return topic_options(self.detail.split(_BETWEEN))


_BETWEEN: Final = ", "
"""No expression has it that a topic's name can be like."""


def refusal_for(reason: RefusalReason, subject: str, expressions: Iterable[str]) -> GateRefusal:
    """That is about these topics of the `subject`, a site or a link, by the regular expressions of a site's role."""
    return GateRefusal(reason, subject, _BETWEEN.join(expressions))
