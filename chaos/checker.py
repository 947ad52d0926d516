"""What the mirror promised, checked against a history. Pure.

Promises: every acknowledged record arrives (lost), once (duplicated), in the order of its partition (reordered),
and none arrives that nobody wrote (invented). A write with an unknown outcome may arrive or not, but at most once.
A latency fault must show in the latency while it is on, as far as it should and beyond what the way from site to site
varies by itself, or the fault was not there; and it must be gone afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.base.percentile import percentile
from chaos.history import History, Outcome, Phase

EFFECT_SHARE: Final = 0.8
"""Of the expected effect: a toxic delays by about what it says."""


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
class Effect:
    """What the fault did to the median latency, what it should have done, and how far latencies vary without it.

    `noise_ms` is the larger of two: how far the slowest tenth is from the median before the fault, and how far the
    median after it. It and `measured_ms` are None where a phase has no latencies.
    """

    expected_ms: float
    measured_ms: float | None
    noise_ms: float | None

    @property
    def shows(self) -> bool:
        """Whether the effect is as large as it should be, and cannot be chance."""
        if self.measured_ms is None or self.noise_ms is None:
            return False
        return self.measured_ms >= EFFECT_SHARE * self.expected_ms and self.expected_ms > self.noise_ms


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The whole run. `fault_seen` says that the fault showed where it should."""

    phases: tuple[PhaseVerdict, ...]
    anomalies: dict[Anomaly, tuple[int, ...]]
    fault_seen: bool
    effect: Effect

    @property
    def holds(self) -> bool:
        return self.fault_seen and not self.anomalies and all(phase.steady for phase in self.phases)


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What counts as steady: the latency a phase may have at p99, on top of the injected one while it is on.

    The injected latency is `injected_latency_ms`, more or less by up to `injected_jitter_ms`.
    """

    latency_p99_max_ms: float
    injected_latency_ms: float
    injected_jitter_ms: float = 0


def find_anomalies(history: History) -> dict[Anomaly, tuple[int, ...]]:
    """The sequences that show each anomaly; an anomaly that did not happen is absent.

    A record that nobody wrote is invented, and nothing else: it says nothing of the others.
    """
    written = {write.sequence: write for write in history.writes}
    seen = Counter(read.sequence for read in history.reads)
    found = {
        Anomaly.LOST: [
            write.sequence
            for write in history.writes
            if write.outcome is Outcome.ACKNOWLEDGED and write.sequence not in seen
        ],
        Anomaly.DUPLICATED: [sequence for sequence, count in seen.items() if count > 1 and sequence in written],
        Anomaly.INVENTED: [sequence for sequence in seen if sequence not in written],
        Anomaly.REORDERED: _reordered(history, written),
    }
    return {anomaly: tuple(sorted(sequences)) for anomaly, sequences in found.items() if sequences}


def _reordered(history: History, written: Container[int]) -> list[int]:
    """Written records whose first arrival was behind a later one's."""
    highest: dict[int, int] = {}
    arrived: set[int] = set()
    out_of_order = []
    for read in history.reads:
        if read.sequence not in written or read.sequence in arrived:
            continue
        arrived.add(read.sequence)
        if read.sequence < highest.get(read.partition, -1):
            out_of_order.append(read.sequence)
        highest[read.partition] = max(read.sequence, highest.get(read.partition, -1))
    return out_of_order


def check(history: History, steady: SteadyState) -> RunVerdict:
    """Judge a finished run."""
    first_read: dict[int, float] = {}
    for read in history.reads:
        first_read.setdefault(read.sequence, read.read_s)
    phases = tuple(_check_phase(phase, history, first_read, steady) for phase in Phase)
    effect = _effect(history, first_read, steady)
    return RunVerdict(phases, find_anomalies(history), effect.shows, effect)


def _latencies_ms(phase: Phase, history: History, first_read: Mapping[int, float]) -> list[float]:
    return [
        (first_read[write.sequence] - write.sent_s) * 1000
        for write in history.writes
        if write.phase is phase and write.sequence in first_read
    ]


def _effect(history: History, first_read: Mapping[int, float], steady: SteadyState) -> Effect:
    """A record waits for at least one delayed answer, so the median rises by the toxic's latency or more."""
    without = _latencies_ms(Phase.BEFORE, history, first_read)
    usual_ms, high_ms = percentile(without, 0.5), percentile(without, 0.9)
    slow_ms, again_ms = (
        percentile(_latencies_ms(phase, history, first_read), 0.5) for phase in (Phase.DURING, Phase.AFTER)
    )
    if usual_ms is None or high_ms is None or slow_ms is None or again_ms is None:
        return Effect(steady.injected_latency_ms, None, None)
    noise_ms = max(high_ms - usual_ms, abs(again_ms - usual_ms))
    return Effect(steady.injected_latency_ms, slow_ms - usual_ms, noise_ms)


def _check_phase(phase: Phase, history: History, first_read: Mapping[int, float], steady: SteadyState) -> PhaseVerdict:
    writes = [write for write in history.writes if write.phase is phase]
    latencies = _latencies_ms(phase, history, first_read)
    p99 = percentile(latencies, 0.99)
    # A long poll crosses the slow network twice before the record comes back through it.
    slowest_ms = steady.injected_latency_ms + steady.injected_jitter_ms
    allowed = steady.latency_p99_max_ms + (4 * slowest_ms if phase is Phase.DURING else 0)
    acknowledged = sum(write.outcome is Outcome.ACKNOWLEDGED for write in writes)
    return PhaseVerdict(
        phase,
        acknowledged,
        len(latencies),
        percentile(latencies, 0.5),
        p99,
        steady=acknowledged > 0 and p99 is not None and p99 <= allowed,
    )
