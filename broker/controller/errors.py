"""What can be wrong with a request to the controller, beside what is wrong with the topic it names."""

from __future__ import annotations

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


class ControllerError(BrokerError):
    """Root of what the controller answers."""


class NotController(ControllerError):
    """This broker is not the controller, or was not for long enough to answer."""

    error_code = ErrorCode.NOT_CONTROLLER
    retriable = True
    hint = "refresh the metadata and ask the controller; the change may have been made"


class AnotherController(NotController):
    """Nothing was begun: another broker is the controller, or is about to be."""

    hint = "ask the controller"


class ReignOver(ControllerError):
    """Another broker may be the controller, or what the store holds is not known: everything is read again."""

    error_code = ErrorCode.NOT_CONTROLLER
    retriable = True
    hint = "ask again; the change may have been made"


class BrokerGone(ControllerError):
    """The broker went away, or was restarted, before it had carried out an order."""

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    retriable = True
    hint = "the broker is given everything when it is back"


class StillUnderWay(ControllerError):
    """The change was begun, and not every broker has said that it is done."""

    error_code = ErrorCode.REQUEST_TIMED_OUT
    retriable = True
    hint = "describe the topic: the change goes on; look at the brokers that do not answer"


class NoReassignment(ControllerError):
    """There is nothing to call off."""

    error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    hint = "list the reassignments: it may have ended"


class ReassignmentUnderWay(ControllerError):
    """A topic whose partitions are on their way to other replicas."""

    error_code = ErrorCode.REASSIGNMENT_IN_PROGRESS
    retriable = True
    hint = "wait for the reassignment's end, or cancel it (kafka-reassign-partitions)"


class ElectionRefused(ControllerError):
    """No other leader was elected: there is none to be, or none is needed."""

    retriable = True
    hint = "describe the topic: a leader must be there, and in sync unless the election is unclean"
