"""Whether who carries an operation on lives, by watching: from two clocks nothing follows for certain. Pure."""

from __future__ import annotations

from failover.journal import Event, OperationLog
from failover.limits import HEARTBEAT_S, UNHEARD_S
from failover.standing import OPEN_STATES, OperationState, standing_of


class Hearing:
    """Looks at one operation's journal, one after the other."""

    def __init__(self) -> None:
        self._mark: object = None
        self._since_s = 0.0
        self._was_heard = False

    def look(self, log: OperationLog, now_ms: int, now_s: float) -> OperationState | None:
        """How it stands; None: watch on. `now_ms`: by this machine's clock; `now_s` never goes back."""
        mark = (len(log.entries), log.lease)
        if mark != self._mark:
            self._was_heard = self._mark is not None
            self._mark, self._since_s = mark, now_s
        state = standing_of(log, now_ms).state
        if state not in OPEN_STATES or log.entries[-1].event == Event.CUT_SHORT:
            return state
        is_silent_by_clock = state is OperationState.CUT_SHORT and not self._was_heard
        limit_s = 2 * HEARTBEAT_S if is_silent_by_clock else UNHEARD_S
        return OperationState.CUT_SHORT if now_s - self._since_s >= limit_s else None
