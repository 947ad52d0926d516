"""The seeds of replicas under faults."""

from __future__ import annotations

from typing import Final

from tests.broker.replication.simulation.world import World
from tests.broker.worlds import Worlds

WORLDS: Final = Worlds("REPLICATION", World, "tests/broker/replication/simulation")
