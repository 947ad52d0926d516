"""Until when a session is surely alive, by the clock of the process that holds it.

That clock must not stand still while the machine is suspended (`Clock.boottime`): ZooKeeper's does not.
"""

from __future__ import annotations

import math


class SessionDeadline:
    """Fed with heartbeats that ZooKeeper's leader had a quorum for; times are seconds of the steady clock.

    The leader ends a session when it has heard nothing of it for the session's timeout. In an ensemble it hears of a
    client by the server that the client is connected to, up to half a tick later; a session's timeout is at least two
    ticks, so a margin of a quarter of it covers that delay. Counted is from the moment when a heartbeat was *sent*.

    A heartbeat that was answered after the deadline proves less: the leader still knew the session, but may end it
    before it hears of this heartbeat. So the session counts as alive again only when a second one, sent at least the
    margin after the first one's answer, was answered as well.
    """

    def __init__(self, asked_at: float, session_timeout_ms: int) -> None:
        """`asked_at`: when the session was asked for; `session_timeout_ms` as it was granted."""
        self._timeout_s = session_timeout_ms / 1000
        self.margin_s = self._timeout_s / 4
        self.alive_until = self._after(asked_at)
        # The first answered heartbeat after the deadline: sent and answered at.
        self._doubtful: tuple[float, float] | None = None

    def heard(self, sent_at: float, answered_at: float) -> None:
        if answered_at <= self.alive_until:
            self.alive_until = self._after(sent_at)
        elif self._doubtful is None or self._after(self._doubtful[0]) < answered_at:
            self._doubtful = (sent_at, answered_at)
        elif sent_at >= self._doubtful[1] + self.margin_s:
            self._doubtful = None
            self.alive_until = self._after(sent_at)

    def ended(self) -> None:
        self.alive_until = -math.inf

    def _after(self, sent_at: float) -> float:
        return sent_at + self._timeout_s - self.margin_s
