"""What measured traffic comes to as a load that can be shared out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.keys import LoadRecord

IDLE_LOAD: Final = 1.0
"""Of a link that moves nothing, and of one that nobody has measured: a hundredth of a core for its polls."""
LOAD_PER_CORE: Final = 100.0
LAGS_AFTER_S: Final = 30.0
"""A worker lags where a link of it would need longer than this to catch up at its present pace."""
LAG_OFFSETS_MIN: Final = 10_000
"""Less than this is no lag, however slowly the link moves."""


def loads_of(record: LoadRecord) -> Mapping[Unit, float]:
    """Of each unit that a worker measured: the processor time that the worker spends beyond its units' idling, in parts
    by their bytes. So a link whose batches must be opened weighs more than one whose batches pass, as its worker does.
    """
    moved = sum(link.bytes_per_second for link in record.links.values())
    idling = IDLE_LOAD * len(record.links)
    beyond = max(0.0, LOAD_PER_CORE * record.cpu_cores - idling)
    return {
        Unit.named(name): IDLE_LOAD + (beyond * link.bytes_per_second / moved if moved else 0.0)
        for name, link in record.links.items()
    }


def lags(record: LoadRecord) -> bool:
    """Whether the worker falls behind with any of its units."""
    return any(
        link.lag_offsets is not None and link.lag_offsets > max(LAG_OFFSETS_MIN, LAGS_AFTER_S * link.records_per_second)
        for link in record.links.values()
    )
