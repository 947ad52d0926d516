"""What the mirror promised, checked against a history. Pure.

Promises: every acknowledged record arrives (lost), once (duplicated), in the order of its partition (reordered),
and none arrives that nobody wrote (invented). A write with an unknown outcome may arrive or not, but at most once.
A latency fault must show in the latency while it is on, or the fault was not there, and be gone afterwards.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from broker.base.percentile import percentile
from chaos.history import History, Outcome, Phase


class Anomaly(StrEnum):
    """What a correct mirror never does."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    INVENTED = "invented"


@dataclass(frozen=True, slots=True)
class PhaseVerdict:
    """One phase: how many records were acknowledged and mirrored, and how long they took from site to site."""

    phase: Phase
    acknowledged_records: int
    mirrored_records: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    steady: bool


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The whole run. `fault_seen` says that the fault showed where it should."""

    phases: tuple[PhaseVerdict, ...]
    anomalies: dict[Anomaly, tuple[int, ...]]
    fault_seen: bool

    @property
    def holds(self) -> bool:
        return self.fault_seen and not self.anomalies and all(phase.steady for phase in self.phases)


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What counts as steady: the latency a phase may have at p99, on top of the injected one while it is on."""

    latency_p99_max_ms: float
    injected_latency_ms: float


def find_anomalies(history: History) -> dict[Anomaly, tuple[int, ...]]:
    """The sequences that show each anomaly; an anomaly that did not happen is absent."""
    written = {write.sequence: write for write in history.writes}
    seen = Counter(read.sequence for read in history.reads)
    found = {
        Anomaly.LOST: [
            write.sequence
            for write in history.writes
            if write.outcome is Outcome.ACKNOWLEDGED and write.sequence not in seen
        ],
        Anomaly.DUPLICATED: [sequence for sequence, count in seen.items() if count > 1],
        Anomaly.INVENTED: [sequence for sequence in seen if sequence not in written],
        Anomaly.REORDERED: _reordered(history),
    }
    return {anomaly: tuple(sorted(sequences)) for anomaly, sequences in found.items() if sequences}


def _reordered(history: History) -> list[int]:
    last: dict[int, int] = {}
    out_of_order = []
    for read in history.reads:
        if read.sequence < last.get(read.partition, -1):
            out_of_order.append(read.sequence)
        last[read.partition] = max(read.sequence, last.get(read.partition, -1))
    return out_of_order


def check(history: History, steady: SteadyState) -> RunVerdict:
    """Judge a finished run."""
    first_read: dict[int, float] = {}
    for read in history.reads:
        first_read.setdefault(read.sequence, read.read_s)
    phases = tuple(_check_phase(phase, history, first_read, steady) for phase in Phase)
    during = next(phase for phase in phases if phase.phase is Phase.DURING)
    fault_seen = during.latency_p50_ms is not None and during.latency_p50_ms >= steady.injected_latency_ms
    return RunVerdict(phases, find_anomalies(history), fault_seen)


def _check_phase(phase: Phase, history: History, first_read: dict[int, float], steady: SteadyState) -> PhaseVerdict:
    writes = [write for write in history.writes if write.phase is phase]
    latencies = [(first_read[write.sequence] - write.sent_s) * 1000 for write in writes if write.sequence in first_read]
    p99 = percentile(latencies, 0.99)
    # A long poll crosses the slow network twice before the record comes back through it.
    allowed = steady.latency_p99_max_ms + (4 * steady.injected_latency_ms if phase is Phase.DURING else 0)
    acknowledged = sum(write.outcome is Outcome.ACKNOWLEDGED for write in writes)
    return PhaseVerdict(
        phase,
        acknowledged,
        len(latencies),
        percentile(latencies, 0.5),
        p99,
        steady=acknowledged > 0 and p99 is not None and p99 <= allowed,
    )
