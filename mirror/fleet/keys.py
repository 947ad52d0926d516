"""The fleet's keys in the store, below its prefix, and what stands in them.

workers/NAME    a worker that lives (under its lease): what it offers to run. The worker whose key was made first
                leads: it writes the plan, in commits that name the revision at which its key was made.
plan/UNIT       the worker that is to run the unit: LINK, or LINK/NUMBER where the link is cut into units
held/UNIT       who runs it now (under that worker's lease); only where it is not there, the planned one puts it
ready/UNIT      the planned worker has prepared what another still runs (under its own lease): that one may let go
loads/NAME      what that worker measured of what it runs (under its lease); written seldom, see `measuring.py`
drained/NAME    a worker of this name is to run nothing
last-drain      changed by each drain, so that no two of them are judged by the same view
rebalance       an operator wants the load to be shared out anew, at once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mirror.coordinator.model import Unit

WORKERS: Final = "workers/"
PLAN: Final = "plan/"
HELD: Final = "held/"
READY: Final = "ready/"
LOADS: Final = "loads/"
DRAINED: Final = "drained/"
LAST_DRAIN: Final = "last-drain"
REBALANCE: Final = "rebalance"


class _Written(BaseModel):
    """A newer farshore may write more keys than this one knows."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class OfferedLink(_Written):
    """A link as a worker's file declares it. `declared` is the same where two files say the same of it; `units` is 0
    where the link is not cut, and counts those of its pins, too. Workers in the `target_rack` are preferred; "" is
    none.
    """

    target: str
    declared: str
    priority: int = 0
    units: int = 0
    target_rack: str = ""

    def units_of(self, link: str) -> list[Unit]:
        """As `mirror.coordinator.model.units_of`."""
        return [Unit(link, number) for number in range(self.units)] if self.units else [Unit(link)]


class WorkerRecord(_Written):
    """What stands in a worker's key. `near` are sites, and SITE/RACK; `file_at_ms` is when the worker's file was
    changed last. It `prepares` what is planned for it while another runs that still (older workers do not), and
    `leaving` is one that is being stopped: others are to run what it holds.
    """

    links: Mapping[str, OfferedLink]
    weight: float = 1.0
    near: tuple[str, ...] = ()
    max_links: int | None = None
    since_ms: int = 0
    file_at_ms: int = 0
    prepares: bool = False
    leaving: bool = False


class LinkLoad(_Written):
    """What a link moves, smoothed. `lag_offsets`: what its source has and its target not yet, None: unknown."""

    bytes_per_second: int = 0
    records_per_second: int = 0
    lag_offsets: int | None = None


class LoadRecord(_Written):
    """What a worker measured of itself and of each link that it runs for long enough. `cpu_cores`: how many it keeps
    busy.
    """

    cpu_cores: float = 0.0
    links: Mapping[str, LinkLoad] = {}
    """By the names of units."""
    failing: tuple[str, ...] = ()
    """The names of units of which no session can be opened here, or none lasts. What they move nobody knows, so `links`
    lacks them."""


class HolderRecord(_Written):
    """What stands in a held unit's key. `joined` is the revision at which the holder's worker key was made."""

    worker: str
    joined: int


class ReadyRecord(HolderRecord):
    """What stands in a prepared unit's key; `epoch` is that in which another one holds it, and of no later one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """The names of the keys below a prefix, which ends with a slash."""

    prefix: str

    def worker(self, name: str) -> str:
        return f"{self.prefix}{WORKERS}{name}"

    def plan(self, unit: Unit) -> str:
        return f"{self.prefix}{PLAN}{unit}"

    def held(self, unit: Unit) -> str:
        return f"{self.prefix}{HELD}{unit}"

    def ready(self, unit: Unit) -> str:
        return f"{self.prefix}{READY}{unit}"

    def load(self, name: str) -> str:
        return f"{self.prefix}{LOADS}{name}"

    def drained(self, name: str) -> str:
        return f"{self.prefix}{DRAINED}{name}"

    @property
    def last_drain(self) -> str:
        return f"{self.prefix}{LAST_DRAIN}"

    @property
    def rebalance(self) -> str:
        return f"{self.prefix}{REBALANCE}"


def read_worker(value: str) -> WorkerRecord | None:
    """None where no farshore wrote it."""
    try:
        return WorkerRecord.model_validate_json(value)
    except ValidationError:
        return None


def read_load(value: str) -> LoadRecord | None:
    """None where no farshore wrote it."""
    try:
        return LoadRecord.model_validate_json(value)
    except ValidationError:
        return None


def read_holder(value: str) -> HolderRecord | None:
    """None where no farshore wrote it."""
    try:
        return HolderRecord.model_validate_json(value)
    except ValidationError:
        return None


def read_ready(value: str) -> ReadyRecord | None:
    """None where no farshore wrote it."""
    try:
        return ReadyRecord.model_validate_json(value)
    except ValidationError:
        return None
