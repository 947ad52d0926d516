"""What ZooKeeper can answer, and what can become of a question to it."""

from __future__ import annotations

from typing import Final

from broker.cluster.metadata_store import OutcomeUnknown
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


class ZooKeeperError(BrokerError):
    """Root of what can go wrong with a request to ZooKeeper. `operation` is the place in a `multi` of the one that was
    refused; then none of them was carried out.
    """

    error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    hint = "see ZooKeeper's log"

    def __init__(self, message: str = "", *, operation: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.operation = operation


class NoNode(ZooKeeperError):
    """The znode, or for a creation its parent, is not there."""


class FoundationMissing(ZooKeeperError):
    """Beside what was asked for, a znode that a cluster always has is not there: a hand removed it."""


class NodeExists(ZooKeeperError):
    """A znode of that name is there already."""


class BadVersion(ZooKeeperError):
    """The znode was changed since the version given."""


class NotEmpty(ZooKeeperError):
    """A znode with children cannot be deleted."""


class NotAllowed(ZooKeeperError):
    """The znode belongs to somebody else."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = "compare username and password in zookeeper_security with those that the other brokers have"


class ConnectionLost(ZooKeeperError, OutcomeUnknown):
    """There is no connection now, or it broke before the answer came. Of a write it is then *unknown* whether it took
    effect, and while it is on its way it still may: read again, through the same session, before it is repeated.
    """

    error_code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True
    hint = "check that ZooKeeper runs and can be reached; what was asked for may have happened"


class SessionExpired(ZooKeeperError, OutcomeUnknown):
    """The session is over: its ephemeral znodes are gone, and it never comes back. Open a new one. Of a write that it
    met on its way it is *unknown* whether it took effect.
    """

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    retriable = True
    hint = "the broker registers itself again as soon as ZooKeeper can be reached; repeat the request then"


class ZooKeeperUnreachable(ZooKeeperError):
    """No session could be opened in time."""

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    retriable = True
    hint = 'check the addresses in zookeeper = "...", and that most of the ensemble\'s servers run'


MISSING: Final = (NoNode, FoundationMissing)
"""What a cluster always has may be put back."""
