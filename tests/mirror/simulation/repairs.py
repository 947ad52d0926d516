"""An operator who has partitions mirrored anew, and then deletes their old copies, as `farshore audit repair` does."""

from __future__ import annotations

import random
from contextlib import suppress

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from mirror.offsets.acceptance import anew_asked_at_ms, ask_to_accept
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import GapKind
from mirror.offsets.state import read_entries
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.oracle import LinkOracle
from tests.mirror.simulation.trace import Trace

DELETES = 0.5
"""How often he deletes what he may; else it stays, as where the command was killed."""
TIMES = (1, 1, 2)
"""An answer may be lost, and the asking come twice."""


class Operator:
    """Draws for himself: what else happens in a world is what it was without him."""

    def __init__(self, seed: int, clock: Clock, trace: Trace) -> None:
        self.rng = random.Random(f"operator {seed}")
        self._clock = clock
        self._trace = trace

    async def repair(self, oracle: LinkOracle, there: SimulatedCluster) -> bool:
        """Delete what may go, and ask for one more -> whether that was asked."""
        for where, partition in oracle.partitions.items():
            log, old = there.partition(*where), partition.old_copy_to
            if log is not None and old is not None and self.rng.random() < DELETES:
                self._trace("old copy deleted:", where, old)
                log.delete_before(old)
        with suppress(FarshoreError):
            async with Cluster(oracle.link.target, client_id="operator", clock=self._clock) as target:
                entries = await read_entries(oracle.link, target)
                known = sorted(entries.checkpoints)
                if not known:
                    return False
                place = self.rng.choice(known)
                asked_ms = anew_asked_at_ms(entries.gaps.values()).get(place, NEVER_ASKED)
                at_ms, position = max(self._clock.now_ms(), asked_ms + 1), entries.checkpoints[place].position
                self._trace("to be mirrored anew:", place)
                asked = Acceptance(*place, position, GapKind.MIRRORED_ANEW, at_ms, 0, "repair", asked_ms)
                for _ in range(self.rng.choice(TIMES)):
                    await ask_to_accept(oracle.link, target, [asked])
                return True
        return False
