"""What differences of a check mean, and what to do about them."""

from __future__ import annotations

from typing import Final

from failover.running.verification import DifferenceKind

DIFFERENCES: Final = {
    DifferenceKind.NOT_FENCED: (
        "not_fenced: the partition could take no marker (it has no leader, or farshore lacks Write on the topic), so a "
        "mirror that hangs could still write there; see that the old mirror's process has ended"
    ),
    DifferenceKind.GROUPS_NOT_FENCED: (
        "groups_not_fenced: a commit of groups' offsets that hangs in the old mirror could still move them; see that "
        "its process has ended, and that farshore may use the transactional ids farshore-LINK and farshore-LINK.groups"
    ),
    DifferenceKind.NOT_COMPARED: (
        "not_compared: the last record of the partition cannot be read at one of the sites, so nobody knows whether "
        "it is the same; is the topic there, and its log whole?"
    ),
    DifferenceKind.RECREATED: (
        "recreated: the source's topic was deleted and made anew since the fence (expected: how far it was mirrored; "
        "found: where it ends by now), so what the source has there is another log; the target has what was mirrored"
    ),
    DifferenceKind.GROUP_BEFORE_LOG: (
        "group_before_log: the target's log begins behind the group's offset by now (expected: where it begins), so "
        "its consumer would begin anywhere; move the group again: --group GROUP"
    ),
    DifferenceKind.GROUP_PENDING: (
        "group_pending: an application's transaction at the target commits another offset of the group when it ends; "
        "`kafka-transactions.sh list` says whose it is. When it has ended move the group again: --group GROUP"
    ),
    DifferenceKind.SOURCE_NOT_COMPARED: (
        "source_not_compared: the source did not answer when the ends were to be compared; `farshore stranded list` "
        "says what only it has, when it does again"
    ),
}
