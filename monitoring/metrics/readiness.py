"""farshore_drill_*: what a failover would find if the source died now, as the last drill said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from broker.base.errors import FarshoreError
from mirror.api import Link
from monitoring import limits


@dataclass(frozen=True, slots=True)
class Readiness:
    """One drill of one link. `findings` by kind; `loss_offsets` are those that a failover would state at least,
    `unclear_offsets` those more of which it could not say whether the target has them, and `likely_offsets` all of them
    at most, None where that cannot be said. `at_ms` is in milliseconds since 1970. Of a link that `is_moved` no loss is
    stated.
    """

    link: str
    at_ms: int
    findings: Mapping[str, int]
    loss_offsets: int | None = None
    likely_offsets: int | None = None
    loss_seconds: float | None = None
    ends_age_seconds: float | None = None
    unclear_offsets: int | None = None
    is_moved: bool = False


Drill = Callable[[Link], Awaitable[Readiness]]
"""Looks at a link. Raises FarshoreError where it could not be judged at all."""
Drills = Callable[[], Drill]
"""The drill of one round of all links, which may keep what it has read for one of them for the others."""


class ReadinessBoard:
    """The last drill of each link; one that could not be judged is not there. Written by the loop, read by a thread."""

    def __init__(self) -> None:
        self._found: dict[str, Readiness] = {}

    def post(self, link: str, found: Readiness | None) -> None:
        others = {name: readiness for name, readiness in self._found.items() if name != link}
        self._found = others if found is None else {**others, link: found}

    def all(self) -> tuple[Readiness, ...]:
        """By link."""
        found = self._found
        return tuple(found[link] for link in sorted(found))


async def drill_for_ever(links: Sequence[Link], drills: Drills, board: ReadinessBoard) -> None:
    """All links at once, again and again; what cannot be judged is not shown."""
    while True:
        await _drill_all(links, drills(), board)
        await asyncio.sleep(limits.DRILL_INTERVAL_MS / 1000)


async def _drill_all(links: Sequence[Link], drill: Drill, board: ReadinessBoard) -> None:
    """Each is shown when it was drilled. What `drill` keeps for them goes with it: nobody needs it until the next."""

    async def drill_one(link: Link) -> None:
        try:
            board.post(link.name, await drill(link))
        except (FarshoreError, OSError):
            board.post(link.name, None)

    async with asyncio.TaskGroup() as group:
        for link in links:
            group.create_task(drill_one(link))


class ReadinessCollector(Collector):
    """What was old at a drill grows older behind it: that is counted when it is asked for."""

    def __init__(self, board: ReadinessBoard, clock_ms: Callable[[], int]) -> None:
        self._board = board
        self._clock_ms = clock_ms

    def collect(self) -> Iterator[GaugeMetricFamily]:
        ready = GaugeMetricFamily("farshore_drill_ready", "1 when the last drill had no finding.", labels=["link"])
        findings = GaugeMetricFamily(
            "farshore_drill_findings", "Findings of the last drill, by kind.", labels=["link", "kind"]
        )
        moved = GaugeMetricFamily(
            "farshore_drill_moved",
            "1 when the link was moved: its source's death loses no more along it than is at the source alone.",
            labels=["link"],
        )
        at = GaugeMetricFamily("farshore_drill_timestamp_seconds", "When the last drill was made.", labels=["link"])
        gauges = [
            (GaugeMetricFamily(f"farshore_drill_{name}", text, labels=["link"]), value) for name, text, value in _VALUES
        ]
        now_ms = self._clock_ms()
        for found in self._board.all():
            ready.add_metric([found.link], int(not found.findings))
            moved.add_metric([found.link], int(found.is_moved))
            at.add_metric([found.link], found.at_ms / 1000)
            for kind, count in sorted(found.findings.items()):
                findings.add_metric([found.link, kind], count)
            for family, value in gauges:
                amount = value(found, max(0, now_ms - found.at_ms) / 1000)
                if amount is not None:
                    family.add_metric([found.link], amount)
        yield from (ready, findings, moved, at, *(family for family, _ in gauges))


_VALUES: tuple[tuple[str, str, Callable[[Readiness, float], float | None]], ...] = (
    (
        "loss_offsets",
        "Source offsets that a failover would state as lost, at least.",
        lambda found, _: found.loss_offsets,
    ),
    (
        "unclear_loss_offsets",
        "Source offsets more that may be lost, or hold what a link back had brought there.",
        lambda found, _: found.unclear_offsets,
    ),
    (
        "likely_loss_offsets",
        "All of these with what the last minute's fastest second makes likely.",
        lambda found, _: found.likely_offsets,
    ),
    (
        "loss_seconds",
        "The time in which the offsets that would be lost were written.",
        lambda found, _: found.loss_seconds,
    ),
    (
        "ends_age_seconds",
        "Time since the source's ends were last seen beside the records, as far as the last drill knew.",
        lambda found, since: None if found.ends_age_seconds is None else found.ends_age_seconds + since,
    ),
)
