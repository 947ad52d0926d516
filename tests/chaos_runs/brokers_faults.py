"""What is done to the brokers of a cluster in a seed's run, and when. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Way = tuple[str, str]
"""Who dials whom: "broker-1", "zookeeper-1", "clients"."""
NODES: Final = (1, 2, 3)
SERVERS: Final = (1, 2, 3)
GAP_S: Final = (0.3, 2.0)
"""Between two faults of a kind that exclude each other."""
LEADING_ALONE_S: Final = 6.0
"""How long a leader's followers are cut off: past `replica.lag.time.max.ms` and the look for it, with some writes."""
LEADER_DEAD_S: Final = 3.0


class FaultKind(StrEnum):
    """Faults of brokers, and of what is between them and beside them; one of each may be on at a time."""

    KILL = "kill"
    """SIGKILL, and started again when the fault is over."""
    PAUSE = "pause"
    """SIGSTOP, mostly for longer than a session with ZooKeeper lasts."""
    DISK_FULL = "disk_full"
    CUT = "cut"
    """Ways between brokers, ZooKeeper and clients."""
    ZOOKEEPER_ONE = "zookeeper_one"
    """One server of the ensemble is killed; two go on."""
    ZOOKEEPER_TWO = "zookeeper_two"
    """Two are killed: nobody has a quorum."""


class Manner(StrEnum):
    """How a way is cut."""

    SILENT = "silent"
    """Nothing arrives at either side, and no connection ends."""
    ASKING = "asking"
    """What who dialled sends does not arrive."""
    ANSWERING = "answering"
    """What is sent back does not arrive."""
    REFUSED = "refused"
    """Connections end, and new ones are refused."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`names` are those of servers; `ways` and `manner` belong to a cut."""

    kind: FaultKind
    start_s: float
    length_s: float
    names: tuple[str, ...] = ()
    ways: tuple[Way, ...] = ()
    manner: Manner = Manner.SILENT

    def __str__(self) -> str:
        what = " ".join(self.names) or f"{self.manner} {' '.join(f'{a}>{b}' for a, b in self.ways)}"
        return f"{self.start_s:.1f}+{self.length_s:.1f} s {self.kind} {what}"


BROKER_FAULTS: Final = (FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.DISK_FULL)
OTHER_FAULTS: Final = (FaultKind.CUT, FaultKind.CUT, FaultKind.CUT, FaultKind.ZOOKEEPER_ONE, FaultKind.ZOOKEEPER_TWO)


def all_ways() -> list[Way]:
    """Every way that a cluster has, each by a proxy of its own; ZooKeeper's servers among themselves are not cut."""
    between = [(f"broker-{a}", f"broker-{b}") for a in NODES for b in NODES if a != b]
    zookeeper = [(f"broker-{a}", f"zookeeper-{b}") for a in NODES for b in SERVERS]
    return [*between, *zookeeper, *(("clients", f"broker-{node}") for node in NODES)]


def faults_of(seed: int, length_s: float, kinds: Sequence[FaultKind]) -> list[Fault]:
    """In the order of their starts; the last ones end with the run."""
    chance = random.Random(f"faults-{seed}")
    found = []
    for lane in (BROKER_FAULTS, OTHER_FAULTS):
        usable = [kind for kind in lane if kind in kinds]
        at = chance.uniform(*GAP_S)
        while usable and at < length_s - 1:
            fault = _fault(chance, chance.choice(usable), at)
            found.append(fault)
            at += fault.length_s + chance.uniform(*GAP_S)
    return sorted(found, key=lambda fault: fault.start_s)


def faults_that_lose(seed: int, length_s: float) -> list[Fault]:
    """A leader that is cut off from its followers is alone in the ISR, and dies: an unclean election loses records."""
    chance = random.Random(f"losses-{seed}")
    found = []
    at = chance.uniform(*GAP_S)
    while at + LEADING_ALONE_S + LEADER_DEAD_S <= length_s:
        names = _one(chance)
        ways = tuple(way for way in all_ways() if way[1] in names and way[0].startswith("broker"))
        found.append(Fault(FaultKind.CUT, at, LEADING_ALONE_S + LEADER_DEAD_S, (), ways))
        found.append(Fault(FaultKind.KILL, at + LEADING_ALONE_S, LEADER_DEAD_S, names))
        at += LEADING_ALONE_S + LEADER_DEAD_S + chance.uniform(*GAP_S)
    return found


def _fault(chance: random.Random, kind: FaultKind, at: float) -> Fault:
    match kind:
        case FaultKind.KILL:
            return Fault(kind, at, chance.uniform(0.0, 4.0), _some_brokers(chance))
        case FaultKind.PAUSE:
            return Fault(kind, at, chance.choice([chance.uniform(0.5, 2.5), *[chance.uniform(4, 7)] * 2]), _one(chance))
        case FaultKind.DISK_FULL:
            return Fault(kind, at, chance.uniform(1.5, 5.0), _some_brokers(chance))
        case FaultKind.CUT:
            ways = tuple(chance.choice(_SHAPES)(chance))
            return Fault(kind, at, chance.uniform(1.0, 6.0), (), ways, chance.choice(list(Manner)))
        case FaultKind.ZOOKEEPER_ONE | FaultKind.ZOOKEEPER_TWO:
            count = 1 if kind is FaultKind.ZOOKEEPER_ONE else 2
            names = tuple(f"zookeeper-{number}" for number in sorted(chance.sample(SERVERS, count)))
            return Fault(kind, at, chance.uniform(1.5, 6.0), names)


def _one(chance: random.Random) -> tuple[str, ...]:
    return (f"broker-{chance.choice(NODES)}",)


def _some_brokers(chance: random.Random) -> tuple[str, ...]:
    """Mostly one."""
    count = chance.choice([1, 1, 1, 1, 2, 3])
    return tuple(f"broker-{node}" for node in sorted(chance.sample(NODES, count)))


def _alone(chance: random.Random) -> list[Way]:
    """One broker from all others and from ZooKeeper; its clients may still reach it."""
    (name,) = _one(chance)
    return [way for way in all_ways() if name in way and "clients" not in way]


def _from_brokers(chance: random.Random) -> list[Way]:
    """As a leader whose followers are away while ZooKeeper is not."""
    (name,) = _one(chance)
    return [way for way in all_ways() if name in way and all(end.startswith("broker") for end in way)]


def _from_zookeeper(chance: random.Random) -> list[Way]:
    names = _some_brokers(chance)
    return [(a, b) for a, b in all_ways() if a in names and b.startswith("zookeeper")]


def _from_clients(chance: random.Random) -> list[Way]:
    names = _some_brokers(chance)
    return [(a, b) for a, b in all_ways() if a == "clients" and b in names]


def _pair(chance: random.Random) -> list[Way]:
    a, b = (f"broker-{node}" for node in chance.sample(NODES, 2))
    return [(a, b), (b, a)]


def _one_way(chance: random.Random) -> list[Way]:
    a, b = (f"broker-{node}" for node in chance.sample(NODES, 2))
    return [(a, b)]


def _any(chance: random.Random) -> list[Way]:
    ways = all_ways()
    return sorted(chance.sample(ways, chance.randint(1, len(ways) // 2)))


_SHAPES: Final[Sequence[Callable[[random.Random], list[Way]]]] = (
    _alone,
    _from_brokers,
    _from_zookeeper,
    _from_clients,
    _pair,
    _one_way,
    _any,
)
