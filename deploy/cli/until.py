"""What `farshore status --until` waits for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from broker.base.durations import DurationInvalid, human_seconds, parse_duration_ms
from deploy.cli.tables import counted
from mirror.link import Link, canary_topic
from mirror.status import LinkCondition, LinkStatus

HEALTHY = "healthy"
LAG_BELOW = "lag<"
_MIRRORING = frozenset({LinkCondition.RUNNING, LinkCondition.RESTARTING})
"""A worker lives, and every partition moves or will by itself."""
_STOPPED = frozenset({LinkCondition.PROMOTED, LinkCondition.PAUSED})
"""By somebody's decision."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A state of all links: without a finding, or where `lag_below_ms` is given, with a known lag below it.

    A lag counts only while a worker lives and no partition stands still or waits to be taken in: otherwise it will not
    stay so. Where nothing is mirrored there is none.
    """

    text: str
    lag_below_ms: int | None = None

    def reached(self, statuses: Sequence[LinkStatus]) -> bool:
        return all(self._reached(status) for status in statuses)

    def missing(self, statuses: Sequence[LinkStatus]) -> str:
        """What each link that is not there yet lacks, in a line."""
        return "; ".join(f"{status.link}: {self._lacks(status)}" for status in statuses if not self._reached(status))

    def waiting(self, statuses: Sequence[LinkStatus]) -> str:
        """What is said while it is waited for: a worker may start meanwhile, and nobody waits for one unknowingly."""
        never = self._never_ran(statuses)
        return f"waiting until {self.text}: {self.missing(statuses)}{f'; {_nobody_runs(never)}' if never else ''}"

    def hint(self, statuses: Sequence[LinkStatus], links: Sequence[Link]) -> str:
        """What to do where it was not reached: no time is long enough where a link mirrors nothing. `links`: all of the
        file.
        """
        if never := self._never_ran(statuses):
            others = [one.link for one in statuses if one.link not in never and one.condition not in _STOPPED]
            alone = f"; or wait for those alone that are to run: {self._waits_for(others)}" if others else ""
            return f"{_nobody_runs(never)}{alone}"
        for status in statuses:
            if self._reached(status) or status.condition not in _STOPPED:
                continue
            steps = [finding.next_step for finding in status.findings if finding.next_step]
            if steps:
                return f"waiting does not end that: {steps[0]}"
            ends = (status.target, status.source)
            backs = [link.name for link in links if (link.source.name, link.target.name) == ends]
            watch = self._waits_for(backs)
            return (
                f"clients went to {status.target} along {status.link}, which mirrors nothing until it is resumed; what "
                f"brings {status.source} their records is to be watched: {watch or 'farshore link list'}"
            )
        return "wait longer with --timeout"

    def _never_ran(self, statuses: Sequence[LinkStatus]) -> list[str]:
        return [one.link for one in statuses if one.condition is LinkCondition.NEVER_RAN and not self._reached(one)]

    def _waits_for(self, links: Sequence[str]) -> str:
        return " and ".join(f"farshore status --link {name} --until {shlex.quote(self.text)}" for name in links)

    def _reached(self, status: LinkStatus) -> bool:
        if self.lag_below_ms is None:
            return not status.findings
        in_time = status.lag_seconds is not None and status.lag_seconds * 1000 < self.lag_below_ms
        return in_time and status.condition in _MIRRORING and not status.partitions_held and _mirrors_something(status)

    def _lacks(self, status: LinkStatus) -> str:
        if self.lag_below_ms is None:
            first, *others = [finding.kind.value for finding in status.findings]
            return f"{first} and {len(others)} more" if others else first
        if status.condition not in _MIRRORING:
            return status.condition.value
        if status.lag_seconds is not None and status.partitions_held:
            return f"{counted(status.partitions_held, 'partition')} not taken in, or held"
        if status.lag_seconds is not None and not _mirrors_something(status):
            return "nothing is mirrored: the source has no topic that the link selects"
        return "lag unknown" if status.lag_seconds is None else f"lag {human_seconds(status.lag_seconds)}"


def _nobody_runs(links: Sequence[str]) -> str:
    run = f"farshore mirror run {' '.join(f'--link {name}' for name in links)}"
    return f"no worker ever ran {' and '.join(links)}, and no wait starts one: {run}"


def _mirrors_something(status: LinkStatus) -> bool:
    """The canary's topic comes and goes with those who run it, and says nothing of what the link is for."""
    return any(lag.topic != canary_topic(status.link) for lag in status.partition_lags)


class GoalOption(click.ParamType[Goal]):
    """`healthy` or `lag<DURATION`."""

    name = "healthy|lag<DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Goal:
        if isinstance(value, Goal):
            return value
        text = "".join(str(value).split())
        if text == HEALTHY:
            return Goal(text)
        if not text.startswith(LAG_BELOW):
            self.fail(f"{value!r} is neither `healthy` nor such as 'lag<5s'", param, ctx)
        try:
            below_ms = parse_duration_ms(text.removeprefix(LAG_BELOW))
        except DurationInvalid as error:
            self.fail(str(error), param, ctx)
        if not below_ms:
            self.fail(f"{value!r} can never be true: no lag is below 0", param, ctx)
        return Goal(text, below_ms)
