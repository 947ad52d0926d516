"""Why a gate says no, and what to do about it, in words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from failover.errors import GateRefused, SkipsMore, leave_options, leave_partition_options
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import OperationPlan

_REASONS: dict[RefusalReason, tuple[str, str]] = {
    RefusalReason.SOURCE_UNREACHABLE: (
        "the source site {subject} does not answer",
        "if it is lost, run `farshore failover`",
    ),
    RefusalReason.SOURCE_ANSWERS: (
        "the source site {subject} answers, so nothing needs to be lost",
        "run `farshore switchover`, or add --even-if-source-answers",
    ),
    RefusalReason.SOURCE_PARTLY_THERE: (
        "the source site {subject} is there in part: it answers, but not everything that was asked",
        "nothing was changed; bring back what does not answer, and type the same again; to leave it as it is, which "
        "may lose records: `farshore failover` with --even-if-source-partly-there (docs/runbook.md, Partial loss)",
    ),
    RefusalReason.SOURCE_SEEN_BY_WORKER: (
        "no broker of the source site {subject} answers here, and meanwhile it answered the worker of {detail}: it is "
        "not lost, and may take writes",
        "see why this machine does not reach it; move from a machine that does, by `farshore switchover`; to leave it "
        "as it is, `farshore failover` with --even-if-source-partly-there",
    ),
    RefusalReason.LINK_NOT_RUNNING: (
        "the link {subject} was already moved, by {detail}: its target is promoted",
        "`farshore operation show {detail}` says what it did; where groups stayed behind, name them with --group; to "
        "mirror again, run `farshore link resume --link {subject}`",
    ),
    RefusalReason.MOVE_UNTOLD: (
        "the link {subject} is promoted by {detail}, and the journal at {target} has nothing of it, as where it was "
        "deleted: whether its groups were moved is not known, nor whether {target} was to take writes",
        "`farshore group list --site {target}` has where groups stand there, `farshore site role` who takes writes; to "
        "move groups, name each with --group GROUP: what stands at {target} already, or read on there, is left so; to "
        "mirror again from {source} instead, run `farshore link resume --link {subject}`",
    ),
    RefusalReason.TARGET_WAS_LEFT: (
        "the link {subject} is promoted from an earlier move, and its target {target} was left since and refuses "
        "writes ({detail}); what came to its source behind that was not mirrored",
        "is its source lost anew: `farshore failover --link {subject} --allow-data-loss`, with --group GROUP for each "
        "that goes, states the loss, and has {target} take writes; or, as where there are no groups, `farshore site "
        "thaw --site {target} {topics} --even-if-other-active` has {target} take writes again, and groups go on where "
        "they stand there. Is its source there: `farshore link resume --link {subject}` mirrors again",
    ),
    RefusalReason.MOVED_BACK: (
        "the link {subject} was moved before, and its clients went back along {detail} since: it was not let run "
        "again, so that its target has nothing of what they wrote and read since",
        "let it run, and see that its worker does: `farshore link resume --link {subject}`; when it has brought what "
        "is missing, type the same again",
    ),
    RefusalReason.LINK_PAUSED: (
        "the link {subject} is paused, so what is missing would not come",
        "let it run again: `farshore link resume --link {subject}`",
    ),
    RefusalReason.TOPIC_PAUSED: (
        "the topic {subject} is paused, so what is missing of it would not come",
        "let it be mirrored again: `farshore topic resume --topic {subject}`, with --link where there are several",
    ),
    RefusalReason.NOTHING_MIRRORED: (
        "nothing was ever mirrored along the link {subject}",
        "start it with `farshore mirror run --link {subject}`",
    ),
    RefusalReason.MAP_LOST: (
        "the state of the link {subject} at {detail} is gone, and the offset map with it: which of the source's "
        "records are at {detail}, and where a group that read at the source goes on there, cannot be told",
        "if the source is there: `farshore mirror run --link {subject}`, which stands still at each partition, and "
        "`farshore link resume --link {subject} --gap TOPIC:PARTITION --adopt`, which compares both logs. If it is "
        "lost: `farshore failover --link {subject} --allow-data-loss` with --to-datetime TIME, by which all "
        "groups go on there, or with --leave-group GROUP for each, which then goes on where it was last carried to",
    ),
    RefusalReason.GROUP_ACTIVE_AT_SOURCE: (
        "the group {subject} still reads at {source}",
        "stop its consumers, then try again",
    ),
    RefusalReason.GROUP_ACTIVE_AT_TARGET: (
        "the group {subject} has consumers at {target}, so its offsets cannot be set",
        "stop them, or move by --group only groups that have none there",
    ),
    RefusalReason.OFFSETS_IN_DOUBT: (
        "{subject} was recreated or cut at one of the sites, or its leader at {source} went and both logs were not "
        "compared since, so its offsets may not mean the mirrored records any more",
        "`farshore status --all` says which, and the link's mirror compares them where it runs: try again when that is "
        "over. Where it stands still, as at a topic that was made anew, `farshore link resume {gap} --dry-run` (with "
        "--link where there are several) shows what is mirrored then; without --dry-run it goes on, by your consent",
    ),
    RefusalReason.DATA_LOSS_NOT_ALLOWED: (
        "it cannot be ruled out that records of {subject} are lost",
        "read the plan; to go on, add --allow-data-loss",
    ),
    RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE: (
        "it cannot be told whether the group {subject} still reads at {source}",
        "see `farshore group describe --site {source} --group {subject}` for the reason, then try again",
    ),
    RefusalReason.MEMBERS_UNKNOWN_AT_TARGET: (
        "it cannot be told whether the group {subject} has consumers at {target}",
        "see `farshore group describe --site {target} --group {subject}` for the reason, then try again",
    ),
    RefusalReason.GROUP_OF_OTHER_TYPE: (
        "the group {subject} of type {detail} has members at {source}, and what they read cannot be told",
        "stop its application; if it reads nothing that the link mirrors, add --leave-group {subject}, which is "
        "accepted where the group has no offset there",
    ),
    RefusalReason.FROZEN_FOR_OTHERS: (
        "the source site {subject} is frozen for other topics ({detail}): another move is under way there, or was cut "
        "short, or somebody froze them",
        "see `farshore site role`, and `farshore operation list --open`: wait for that move, or end it by `farshore "
        "operation resume` or `abort`. Is there none: `farshore site standby --site {subject} {topics}` keeps closed "
        "what another site has; where none has it, `farshore site thaw --site {subject} {topics}`",
    ),
    RefusalReason.CLOSED_AT_TARGET: (
        "the target site {subject} refuses writes to topics of the link ({detail}), and would go on to",
        "see `farshore site role`; let them in: `farshore site thaw --site {subject} {topics}`",
    ),
    RefusalReason.ACTIVE_ELSEWHERE: (
        "{detail} is the active site for topics of this link, as {subject} has it: two would be active",
        "`farshore site role` says who takes writes. Move from {detail}, along a link from there (`farshore "
        "switchover`; {subject} first, where that runs on to this source); or, where {subject} was moved, first come "
        "back: `farshore failback --link {subject}`",
    ),
    RefusalReason.MAYBE_ELSEWHERE: (
        "the source is a standby site, so another one is active, and {detail}, at the other end of {subject}, does "
        "not say whether it is: two might be",
        "`farshore status --link {subject}` has the reason; where {detail} is lost, `farshore failover` from there; "
        "where you know that no site is active, have the source be it: `farshore site thaw --site {source} --topic "
        "REGEX --even-if-other-active`, by the expressions that `farshore site role` has for the link's topics",
    ),
    RefusalReason.MOVING_ELSEWHERE: (
        "{subject} takes topics of this link to {detail}, or back from there, and has not ended",
        "`farshore operation show {subject}`; `farshore operation resume {subject}` goes on, `farshore operation abort "
        "{subject}` gives it up",
    ),
    RefusalReason.NOT_DRAINED: (
        "the mirror of {subject} did not come to the source's end",
        "stop the producers at the source, see `farshore status`, then try again",
    ),
    RefusalReason.OFFSETS_PENDING: (
        "offsets of the group {subject} are in a transaction at the source that did not end",
        "stop the application that reads with it, so that it ends its transaction, or wait for its time-out "
        "(transaction.timeout.ms); then try again",
    ),
    RefusalReason.HOOK_FAILED: (
        "a hook failed or said no, and nothing was moved from {subject}",
        "run it by hand, or see [failover] in farshore.toml",
    ),
    RefusalReason.TOPICS_CUT: (
        "--topic names some topics of a link and not all: {subject}; a link is fenced as a whole, so its other "
        "topics would stay at the source, and be mirrored no more",
        "name those too, or none of its topics; or have a link of their own carry them",
    ),
    RefusalReason.WHOLE_SITE_CUT: (
        "--whole-site closes all topics of {source}, those of a link that stays, too: all links go, or none, and "
        "{subject} would stay",
        "see to what it stays for, which is said beside this; or leave out --whole-site, and the other links go alone",
    ),
    RefusalReason.NOTHING_SELECTED: (
        "no link from {subject} carries what --topic and --group name",
        "`farshore link list`; without these options all links between the two sites are moved",
    ),
    RefusalReason.WORLD_CHANGED: (
        "what the plan for {subject} was made from is not so any more",
        "look at the plan again, with --dry-run",
    ),
    RefusalReason.NO_CONSENT: ("nobody consented to moving {subject}", "add --yes to go on"),
    RefusalReason.GROUP_NOT_FOUND: (
        "no site that answers knows a committed offset of the group {subject} in a mirrored topic",
        "correct the name: `farshore group list --site SITE` has those of a site; or leave it out: of one that reads "
        "only what these links do not carry, or that only a lost source knew, nothing is to be moved",
    ),
    RefusalReason.GROUP_NOT_MOVABLE: (
        "it is not known where the group {subject} would go on at the target",
        "`farshore group describe --site {target} --group {subject}` has where it stands there; to go on, and leave "
        "what is unknown of it as it is, add --leave-group {subject}",
    ),
    RefusalReason.GROUP_WENT_ON: (
        "since the plan was made the group {subject} went on at the target, or that lost what it reads next: "
        "more records would be skipped than it said",
        "see that nothing reads there as {subject}; then again, with a plan that says so, or with --set-back {subject}",
    ),
    RefusalReason.GROUP_OFFSET_LOST: (
        "since the plan was made the source has lost offsets of the group {subject}, and records would be read again",
        "commit them there again, as the plan has them; or look again with --dry-run, with what is left",
    ),
    RefusalReason.PARTITION_UNANSWERED: (
        "the partition {subject} does not answer at the target ({detail}), and groups that are to be moved read its "
        "topic",
        "see to the reason, such as brokers that are gone; to go on, and leave it and what groups have there as it is, "
        "add --leave-partition {subject}",
    ),
    RefusalReason.PARTITION_NOT_FOUND: (
        "there is no mirrored partition {subject}",
        "correct the name, which is the source's: `farshore status --all` has those of each link",
    ),
    RefusalReason.TARGET_LACKS: (
        "{subject}: {detail}; the target would lack records that the source has",
        "bring the newer disk of the target back; or have all of it brought anew, as the runbook says of an older "
        "disk; a failover goes on without them by --allow-data-loss",
    ),
    RefusalReason.TARGET_NOT_COMPARED: (
        "{subject}: {detail}",
        "see to the reason, then try again; a failover goes on whatever it is by --allow-data-loss",
    ),
    RefusalReason.SOURCE_REPLACED: (
        "another cluster answers as {subject} than the one that was mirrored from",
        "correct bootstrap_servers in this file if they are another cluster's; where the site was lost, and built anew "
        "there, `farshore failover` with --even-if-source-answers goes by what was seen of the lost one",
    ),
    RefusalReason.DECLARED_OTHERWISE: (
        "this file declares {subject} otherwise than its worker ran it, which had {detail}",
        "take the worker's file; or have the worker run by this one first: `farshore mirror run --link {subject}`",
    ),
    RefusalReason.GROUP_UNANSWERED: (
        "nothing can be asked or set of the group {subject} at the target ({detail})",
        "see to the reason, such as a coordinator that is gone; to go on and leave it as it is, add --leave-group "
        "{subject}",
    ),
}
_LEFT_BY_NAME = (
    RefusalReason.GROUP_NOT_MOVABLE,
    RefusalReason.PARTITION_UNANSWERED,
    RefusalReason.GROUP_UNANSWERED,
)
_CONSENTED = (
    RefusalReason.SOURCE_ANSWERS,
    RefusalReason.SOURCE_PARTLY_THERE,
    RefusalReason.SOURCE_SEEN_BY_WORKER,
    RefusalReason.SOURCE_REPLACED,
    RefusalReason.DATA_LOSS_NOT_ALLOWED,
)
_LOSSY = (RefusalReason.DATA_LOSS_NOT_ALLOWED, RefusalReason.TARGET_LACKS, RefusalReason.TARGET_NOT_COMPARED)
GAPS_SHOWN = 10
_IN_USE = (RefusalReason.GROUP_ACTIVE_AT_TARGET, RefusalReason.GROUP_OF_OTHER_TYPE)


def reason_of(refusal: GateRefusal, source: str, target: str) -> tuple[str, str]:
    """What a gate found, and what to do about it. `source`, `target`: the sites of the move, by name."""
    message, hint = _REASONS[refusal.reason]
    subject, detail, sites = refusal.subject, refusal.detail, {"source": source, "target": target}
    told = message.format(subject=subject, detail=detail, **sites)
    if refusal.reason is RefusalReason.SOURCE_PARTLY_THERE and detail:
        told = f"{told}: {detail} gave no answer"
    named = {"subject": shlex.quote(subject), "detail": shlex.quote(detail), "topics": refusal.topic_options}
    return told, hint.format(**named, gap=_gap_option(subject), **sites)


def _gap_option(partition: str) -> str:
    """As it is typed for a partition that a plan calls TOPIC-N."""
    topic, _, number = partition.rpartition("-")
    return f"--gap {shlex.quote(f'{topic}:{number}')}"


def of_a_step(plan: OperationPlan, refused: GateRefused) -> GateRefused:
    """The refusal of a move that another command takes as its step: that has no options which leave anything behind."""
    if any(refusal.reason in _LEFT_BY_NAME for refusal in plan.refusals):
        refused.hint = (
            "`farshore group describe` and `farshore status --all` show what keeps it; when that is mended, the same "
            "command goes on, which leaves no group behind"
        )
    elif any(refusal.reason in _IN_USE for refusal in plan.refusals):
        refused.hint = "stop what is in these groups; then the same command goes on"
    elif isinstance(refused, SkipsMore):
        refused.hint = "see that nothing reads there as these groups; then the same command goes on, and sets them back"
    return refused


def refusal_of(plan: OperationPlan) -> GateRefused | None:
    """Every gate that said no, with the first one's hint."""
    return refused_by(plan.refusals, plan.snapshot.source, plan.snapshot.target) if plan.refusals else None


def refused_by(
    refusals: Sequence[GateRefusal], source: str, target: str, reasons: Sequence[tuple[str, str]] = ()
) -> GateRefused:
    """As `refusal_of`, of at least one: where the first goes by consent, or may be left by name, with every option that
    the others want. `reasons`: of each, where they are not those of `reason_of`.
    """
    told = reasons or [reason_of(refusal, source, target) for refusal in refusals]
    left = [refusal for refusal in refusals if refusal.reason in _LEFT_BY_NAME]
    hint = told[0][1]
    places = [one.subject for one in left if one.reason is RefusalReason.PARTITION_UNANSWERED]
    groups = [one.subject for one in left if one.reason is not RefusalReason.PARTITION_UNANSWERED]
    options = f"{leave_partition_options(places)} {leave_options(groups)}".strip()
    in_doubt = [one.subject for one in refusals if one.reason is RefusalReason.OFFSETS_IN_DOUBT]
    if refusals[0].reason in _LEFT_BY_NAME and len(left) > 1:
        hint = f"to go on and leave what is unknown of them as it is: {options}"
    elif refusals[0].reason is RefusalReason.OFFSETS_IN_DOUBT:
        shown = " ".join(map(_gap_option, in_doubt[:GAPS_SHOWN]))
        more = " and so for each other that stands still" if len(in_doubt) > GAPS_SHOWN else ""
        hint = hint.replace(f"{_gap_option(in_doubt[0])} --dry-run`", f"{shown} --dry-run`{more}")
    elif refusals[0].reason in _CONSENTED:  # or the next try would be refused for the rest
        is_lossy = refusals[0].reason not in _LOSSY and any(one.reason in _LOSSY for one in refusals)
        if rest := f"{'--allow-data-loss ' if is_lossy else ''}{options}".strip():
            hint = f"{hint}; a failover that goes on then wants {rest}, too"
    return GateRefused("; ".join(message for message, _ in told), hint=hint)
