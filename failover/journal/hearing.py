"""Whether who carries an operation on lives, by watching: from two clocks nothing follows for certain. Pure."""

from __future__ import annotations

from failover.journal.standing import OPEN_STATES, OperationState, standing_of
from failover.journal.values import Event, OperationLog, has_gone_back
from failover.limits import HEARTBEAT_S, LEASE_S, UNHEARD_S


def is_doubtful(log: OperationLog, now_ms: int) -> bool:
    """Whether one look by this machine's clock (`now_ms`) tells nothing: an open operation is silent by it, which a
    clock that is ahead would say of any, or was heard of in the future.
    """
    standing = standing_of(log, now_ms)
    is_silent = standing.state is OperationState.CUT_SHORT
    return is_carried_on(log, now_ms) and (is_silent or standing.heard_at_ms - now_ms > HEARTBEAT_S * 1000)


def is_carried_on(log: OperationLog, now_ms: int) -> bool:
    """Or nobody has said otherwise, at least."""
    return standing_of(log, now_ms).state in OPEN_STATES and log.entries[-1].event != Event.CUT_SHORT


def is_heard(before: OperationLog, now: OperationLog) -> bool:
    """Whether somebody has said between two looks that he carries it on. That the target lost what somebody said says
    nothing of him.
    """
    is_other = (len(before.entries), before.lease) != (len(now.entries), now.lease)
    return is_other and not has_gone_back(before, now)


class Hearing:
    """Looks at one operation's journal, one after the other."""

    def __init__(self) -> None:
        self._before: OperationLog | None = None
        self._since_s = 0.0
        self._was_heard = False

    def missed(self, now_s: float) -> None:
        """The journal could not be read: that nobody was heard meanwhile says nothing."""
        self._since_s = now_s

    def look(self, log: OperationLog, now_ms: int, now_s: float) -> OperationState | None:
        """How it stands; None: watch on. `now_ms`: by this machine's clock; `now_s` never goes back."""
        if self._before is None or is_heard(self._before, log):
            self._was_heard = self._before is not None
            self._since_s = now_s
        self._before = log
        state = standing_of(log, now_ms).state
        if not is_carried_on(log, now_ms):
            return state
        is_silent_by_clock = state is OperationState.CUT_SHORT and not self._was_heard
        limit_s = LEASE_S if is_silent_by_clock else UNHEARD_S
        return OperationState.CUT_SHORT if now_s - self._since_s >= limit_s else None
