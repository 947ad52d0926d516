"""What a worker tells of its fleet: a line per event, beside those of its links."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class FleetEvent(StrEnum):
    JOINED = "joined"
    LEADS = "leads"
    """This worker plans for all from now on."""
    PLANNED = "planned"
    TOOK = "took"
    """A unit is this worker's: it opens it."""
    LET_GO = "let_go"
    LEASE_IN_DOUBT = "lease_in_doubt"
    """It could not be renewed in time: what runs goes on, nothing is opened."""
    LEASE_RENEWED = "lease_renewed"
    LEASE_LOST = "lease_lost"
    """etcd says that it is over; the worker joins anew, and keeps what nobody has taken."""
    STORE_UNREACHABLE = "store_unreachable"
    STORE_ANSWERS = "store_answers"
    FILE_TAKEN = "file_taken"
    """The worker's file has changed, and is what it offers and runs from now on."""
    FILE_REFUSED = "file_refused"
    """It has changed, and is not taken: what it said before stands."""


class FleetSink(Protocol):
    """Where they go."""

    def __call__(self, event: FleetEvent, /, **fields: object) -> None: ...
