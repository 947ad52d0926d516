"""Named limits of an operation, with their units."""

from __future__ import annotations

from typing import Final

SOURCE_PROBE_MS: Final = 10_000
"""How long each broker of a source may take to answer, where any of them says something."""
SOURCE_SILENT_MS: Final = 4_500
"""Where none says anything for so long the source counts as dead. One that takes 2 s for each answer has said something
by then: two answers are the most that come before a first word is heard, in TLS before 1.3.
"""
SOURCE_AWAITED_MS: Final = 2_500
"""What changes nothing that counts is done already after so long, by a command that holds its fence until then; who
takes 2 s for a first word is heard before.
"""
REFUSED_MS: Final = 3_000
"""How long a connection that its host refuses is tried again: nobody listens there. One that is taken and closed, or to
which there is no way, is tried for SOURCE_SILENT_MS: that says no more than silence does.
"""
REFUSED_AWAITED_MS: Final = 1_000
"""As SOURCE_AWAITED_MS, where connections are refused or closed: with the fence held until it is known to be dead."""
RECONNECT_PAUSE_S: Final = 0.2
WORKER_LOOK_POLL_S: Final = 0.5
"""While a source is called in vain, how often it is read whether its worker sees it."""
SOURCE_ANSWER_MS: Final = 10_000
"""How long a source may take for each of its answers."""
WHOLE_LOOK_S: Final = 2.0
"""A look at a source that takes longer is not waited for with calling its brokers."""
SOURCE_LOOK_MS: Final = 60_000
"""How long a failover waits for the whole of a source that lives; then for what a part of it can tell."""
TARGET_ANSWER_MS: Final = 10_000
"""How long a failover waits for a coordinator of the target that does not answer, in each look."""
COUNT_MS: Final = 10_000
"""How long the records of a loss are counted at a source that answers."""
COUNTED_AT_ONCE: Final = 8
"""In partitions."""
BORN_ROUNDS: Final = 3
"""So often is looked for partitions that were born while the others were counted."""
DRAIN_TIMEOUT_S: Final = 60.0
QUIET_S: Final = 2.0
"""The source's ends must stand still this long before a switchover believes that its producers have stopped."""
DRAINED_HOLDS_S: Final = 10.0
"""A link that was drained longer ago, when the last one of its operation is, is drained again, where nothing keeps
producers from writing to its source.
"""
DRAINED_AGAIN_MAX: Final = 3
"""So often at the most: each time others may take as long."""
SILENCE_S: Final = 5.0
"""How long a site may take to answer anything when it is asked which of the two it was that did not."""
TAKEN_OVER_S: Final = 60.0
"""How long the fence, and what comes behind it, is tried again: others take over from a dead broker in less."""
FENCED_TRIES_MAX: Final = 3
"""So often groups are committed that a worker fenced which ends by that."""
SET_TRIES_MAX: Final = 5
"""So often groups are looked at, and set back, of which the link back's worker carries one on meanwhile."""
HELD_S: Final = 5.0
"""How long groups are committed again at a target where a transaction that has not ended has their offsets."""
NOTED_S: Final = 2.0
"""How long it is tried to note in the link's state that groups were moved: they stand, and applications wait."""
STATED_S: Final = 20.0
"""How long a loss is stated at the end, of all links: what is not told by then makes it a lower bound."""
STATED_BEFORE_HOOK_S: Final = 2.0
"""How long of that the after_hook, which may turn clients to the target, waits for it."""
LOOK_AGAIN_S: Final = 5.0
"""How long a failover looks again behind its fence at a source that told all before it, and now a part."""
DRAIN_POLL_S: Final = 0.25
DRILL_ENDS_MAX_AGE_MS: Final = 10_000
"""A drill has a finding where the source's ends were last seen longer ago: a worker sees them each second."""
DRILL_GROUP_SYNC_MAX_AGE_MS: Final = 60_000
"""Or a group was last seen to be equal longer ago; the mirror looks at it every five seconds."""
DRILL_PENDING_S: Final = 2.0
"""Or a group's offsets are in a transaction that has not ended in each look for so long."""
DRILL_STRANDED_S: Final = 3.0
"""How long is read what the source of a link that was moved has alone."""
PLANNED_AGAIN_S: Final = 30.0
"""How long the plan of a switchover is made again where a broker of the source just died: its session with ZooKeeper
ends after 18 s, then others are elected, and the link's worker compares their logs with what it mirrored.
"""
LATE_WRITES_S: Final = 5.0
"""How long after the fence a source is watched for what comes late: as long as most consumers take between commits."""
LATE_LOOK_S: Final = 10.0
"""How long a source that was failed over from, and answers, may take to say who committed there since."""
LACKS_IN_PART_S: Final = 15.0
"""How long a source that is there in part may take to say what it has of the target's own that the target lacks, and
one that answers whether its logs are those that were mirrored from it.
"""
FENCE_ENDS_S: Final = 2.0
"""How long a source that answers may take to say where its logs end, right before it is failed over from."""
READ_AHEAD_S: Final = 5.0
"""How long what the target keeps is read while the source is called."""
DECLARED_S: Final = 5.0
"""How long a target may take to say how the link's worker ran it, where no source completes the link."""
SOURCE_ROLE_S: Final = 5.0
"""How long a source may take to tell its role, and one that is failed over from to take another."""
LOCK_OUT_LOOK_S: Final = 3.0
"""How long a close by ACLs that was cut short looks whether it locked farshore out: a target may wait to be opened."""
LATE_DENIALS_S: Final = 5.0
"""How long who takes a freeze by ACLs back looks for those that were asked for and not answered."""
LATE_DENIALS_POLL_S: Final = 0.5
ELSEWHERE_S: Final = 5.0
"""How long a third site may take to say whether it took over what is to be moved,"""
BACK_S: Final = 3.0
"""and how long of that the site before it whether clients came back."""
OTHERS_END_S: Final = 5.0
"""How long who gives a move up, and would let clients in again, waits for another move to be given up, too: of two that
begin at once each may have refused the other.
"""
UNDECIDED_S: Final = 5.0
"""How long the sites of a move back may take, beside its plan, to tell what the one that was lost has alone, of all
links; and how long of that it is read.
"""
UNDECIDED_READ_S: Final = 3.0
OPEN_REPLAY_S: Final = 90.0
"""How long a replay waits for the end of another one's transaction: that times out after a minute, and is looked at
every ten seconds then.
"""
HOOK_S: Final = 60.0
HOOK_END_S: Final = 5.0
"""How long a hook's processes have to end when they are told to."""
HOOK_OUTPUT_CHARACTERS: Final = 400
HEARTBEAT_S: Final = 3.0
"""Who carries an operation on says so this often."""
LEASE_S: Final = 15.0
"""And stops where that could not be said for so long."""
UNHEARD_S: Final = 20.0
"""Nobody takes an operation up of whose machine was heard since."""
OPERATIONS_KEPT: Final = 20
"""Of each link, the newest; of 1,000 groups one takes a few MB, which every command reads."""

assert REFUSED_MS < SOURCE_PROBE_MS <= SOURCE_ANSWER_MS < SOURCE_LOOK_MS
assert REFUSED_AWAITED_MS < 2_000 < SOURCE_AWAITED_MS <= REFUSED_MS < SOURCE_SILENT_MS < SOURCE_PROBE_MS
assert SOURCE_SILENT_MS > 2 * 2_000
assert QUIET_S < DRAIN_TIMEOUT_S
assert DRAIN_POLL_S < QUIET_S <= LATE_WRITES_S
assert HEARTBEAT_S * 3 < LEASE_S < UNHEARD_S
assert LEASE_S + 2 * SILENCE_S < 30  # then it is asked who is silent, and who went on; operators are told half a minute

INTERVALS_COUNTED: Final = 2_000_000
"""Of a link's maps, when it is counted what the target has of its own; older ones are not looked at."""
