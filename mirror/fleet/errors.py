"""What can go wrong between a worker and its fleet.

FleetError
├── StoreUnreachable   etcd does not answer
├── HistoryCompacted   what is asked for happened before what etcd remembers
├── WorkerNameTaken    another worker of this name is in the fleet
└── StoreRefused       etcd says no: a wrong password, or a missing right
"""

from __future__ import annotations

from typing import Final

from mirror.errors import MirrorError


class FleetError(MirrorError):
    """Root of this folder's errors."""


class StoreUnreachable(FleetError):
    """No etcd server answered; what was asked for may have been done or not."""

    retriable = True
    hint = "see that etcd runs and that `[fleet] etcd` in farshore.toml names its client addresses"


class HistoryCompacted(FleetError):
    """A watch asks for changes that etcd has forgotten: everything is to be read anew."""

    retriable = True


class WorkerNameTaken(FleetError):
    """A worker of this name lives."""

    hint = "give this one another name with --worker, or stop the other"


class StoreRefused(FleetError):
    """etcd knows whom it speaks to, and says no; or a file that tells it who this is cannot be read."""

    hint = "see user, its password and the tls_ files of `[fleet]` in farshore.toml, and this user's roles in etcd"


NOT_SERVED: Final = (StoreUnreachable, StoreRefused)
"""What a worker lives through once it is in the fleet: a right that is taken away now may be given back."""
