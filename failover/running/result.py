"""How an operation ended for one link, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.wire.site_role import SiteStanding
from failover.losses.statements import LossTotal, PartitionLoss
from failover.losses.stranded import StrandedRange
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import LeftRange
from failover.planning.left import LeftPartition
from failover.planning.moves import GroupMove, GroupTotal
from failover.planning.plan import Elsewhere
from failover.planning.staying import Stay
from failover.planning.unplanned import UnplannedReadAgain, UnplannedSkip
from failover.running.late_commits import LateCommit, SourceReader
from failover.running.link_run import LinkFailure
from failover.running.read_on import ReadOn
from failover.running.steps import Operation
from failover.running.verification import VerificationDifference
from mirror.api import SourceParting

HOOK_ERROR: Final = "hook_error"
FINDINGS: Final = (
    *("stranded", "is_unwatched", "is_source_open", "late_commits", "source_readers", "closing_addresses"),
    *("open_topics", "left_partitions", "unanswered_groups", "is_loss_unconsented", "unplanned_skips"),
    *("unplanned_read_again", HOOK_ERROR),
)
"""The fields that make a result one with findings."""


def only_hook_failed(document: Mapping[str, Any]) -> bool:
    """Of a result as a journal has it: whether the after_hook is all that is to be seen to."""
    return [name for name in FINDINGS if document.get(name)] == [HOOK_ERROR]


def is_all_but_told(document: Mapping[str, Any]) -> bool:
    """As `only_hook_failed`, where no client that was not told where it belongs can write to the source."""
    return only_hook_failed(document) and bool(document.get("source_role") or document.get("denied_principals"))


@dataclass(frozen=True, slots=True)
class OperationResult:
    """How an operation ended for one link. Its exit code says whether it is `verified`, and nothing is `stranded`: what
    came to the source after the fence, and is only there; nor in `late_commits`: who went on reading there; nor
    `is_unwatched`: the source was gone before that could be seen; nor `is_source_open`: a failover's source answered,
    and is not known to refuse writes, nor in `open_topics`: what a source goes on taking; nor in `source_readers`: who
    reads on there; nor `is_loss_unconsented`: what the plan had excluded; nor in `unplanned_skips` or
    `unplanned_read_again`; and nothing was left that did not answer at the target (`left_partitions`,
    `unanswered_groups`).
    `source_role`: what the source's brokers have taken; None: not told. `hook_error`: why the after_hook failed, ""
    where it did not. `failure`: why it was not brought to its end, as others of the operation were; the losses are
    those of the plan then.
    """

    operation_id: str
    operation: Operation
    link: str
    source: str
    target: str
    verified: bool
    seconds: float
    losses: tuple[PartitionLoss, ...]
    moves: tuple[GroupMove, ...]
    differences: tuple[VerificationDifference, ...]
    loss: LossTotal
    group_totals: tuple[GroupTotal, ...] = ()
    left_groups: tuple[str, ...] = ()
    """The groups that stayed behind, as was consented to: some of their moves are not known."""
    not_named: tuple[str, ...] = ()
    """Those that stayed as others were asked for by name; the link brings nothing more of what they read."""
    stays: tuple[Stay, ...] = ()
    """What else of groups stayed at the source, as the plan says."""
    left_partitions: tuple[LeftPartition, ...] = ()
    unanswered_groups: tuple[str, ...] = ()
    """Of which nothing could be asked at the target, and nothing was set."""
    stranded: tuple[StrandedRange, ...] = ()
    unshown: tuple[StrandedRange, ...] = ()
    """What the source's leaders have and nobody is shown, where a link back may be bringing it: no finding, as nobody
    can say whose it is.
    """
    late_commits: tuple[LateCommit, ...] = ()
    read_on: tuple[ReadOn, ...] = ()
    """Whose further offsets at the target are no differences: an earlier run's word explains them, or nothing was
    committed for them.
    """
    not_compared_partitions: tuple[str, ...] = ()
    """Of a switchover, as options name them: of these only the offsets were compared. The last mirrored record is gone
    at a site by retention or compaction, or where it lies is not known exactly, and the target has others' behind it.
    """
    is_unwatched: bool = False
    are_late_records_known: bool = False
    """Of a switchover that `is_unwatched`: what came behind its fence (`stranded`, `unshown`) was told all the same,
    and only who read on was not.
    """
    source_role: SiteStanding | None = None
    hook_error: str = ""
    takes_writes: bool = False
    """The source could refuse writes (its brokers are farshore's own, or may be as the target's are; or by ACLs), and
    was not told to.
    """
    moved_topics: tuple[str, ...] = ()
    """Of the source, as regular expressions, whose roles the move is about; none: all."""
    failure: LinkFailure | None = None
    denied_principals: tuple[str, ...] = ()
    """Whom the source's ACLs keep from writing to the moved topics."""
    is_source_open: bool = False
    seen_by: tuple[str, ...] = ()
    """Links whose workers saw the source while it was called in vain from where it was left."""
    closing_addresses: tuple[str, ...] = ()
    """Of a dead source, where something took connections and closed them (`BrokerAnswer.taken`): it may take writes."""
    source_finding: SiteFinding = SiteFinding.DEAD
    """How the source was found at the fence: what is moved later needs the same consent to leave it."""
    source_readers: tuple[SourceReader, ...] = ()
    """Of a failover away from a source that answers."""
    is_loss_unconsented: bool = False
    unplanned_skips: tuple[UnplannedSkip, ...] = ()
    unplanned_read_again: tuple[UnplannedReadAgain, ...] = ()
    lacks: tuple[SourceParting, ...] = ()
    """Of a failover: its target's own former records that it has no more, and the source has, as was consented to."""
    not_closed: str = ""
    """How a source stands that was to be closed, by its role or by ACLs, and of which it is not known that it is."""
    silent_at_fence: tuple[Elsewhere, ...] = ()
    """Who did not tell right before the fence whether he has topics of it, and was not unknown in the plan."""
    open_topics: tuple[str, ...] = ()
    """Of the move, at the source, that its freeze left open: no ACL is about them, so that the freeze's would be the
    first, and everybody may write there by that, or may for all that is known.
    """
    closed_at_both: tuple[str, ...] = ()
    """Topics that are none of the move's, as regular expressions, and that no client can write to at either site: the
    target was closed to more than was moved, and whose these are it does not know.
    """
    closed_for_third: tuple[str, ...] = ()
    """As `closed_at_both`, to which the target stays closed since a third site has them, or may have: whether that one
    takes writes was not asked.
    """

    left_at_source: tuple[LeftRange, ...] = ()
    """What the target did not get, as somebody had decided before; as the plan says it."""
    was_paused: bool = False
    """Of a failover: its link was paused, and the source did not tell all of its ends; no finding, as the loss says how
    old they are.
    """

    @property
    def has_findings(self) -> bool:
        return any(getattr(self, name) for name in FINDINGS)
