"""What can go wrong in a chaos run.

ChaosError
├── ToxiproxyMissing   no toxiproxy server to start or to talk to
├── FaultNotInjected   the fault could not be put in place, or did not show: the run proves nothing
└── FaultNotRemoved    a toxic or a proxy could not be taken away again
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class ChaosError(FarshoreError):
    """Root of this folder's errors."""


class ToxiproxyMissing(ChaosError):
    """There is no toxiproxy server."""


class FaultNotInjected(ChaosError):
    """The fault was not in place: a green run without a fault would be a lie."""


class FaultNotRemoved(ChaosError):
    """Something of the fault is left behind."""
