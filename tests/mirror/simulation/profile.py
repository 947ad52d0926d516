"""What one seed chooses before it begins: how large its world is, and what may happen there."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum

from broker.wire.api import ApiKey
from mirror.worker.limits import WorkerLimits
from tests.mirror.simulation.disasters import Disaster
from tests.mirror.simulation.network import Weather

CURSED = (
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.CREATE_TOPICS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.FETCH,
    ApiKey.PRODUCE,
    ApiKey.LIST_GROUPS,
    ApiKey.OFFSET_FETCH,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
"""Kinds of requests of which, in some worlds, many fail."""
Ways = tuple[tuple[str, str], ...]
CIRCLES: tuple[Ways, ...] = (
    (("east", "north"), ("north", "west"), ("west", "east")),
    (("east", "north"), ("north", "west"), ("west", "east"), ("north", "east")),
    (("east", "north"), ("north", "west"), ("west", "east"), ("north", "east"), ("east", "west")),
    (("east", "north"), ("north", "west"), ("west", "south"), ("south", "east")),
)
"""A ring of three, the same with one and two ways back (a mesh that lacks a link), and a ring of four."""
DISASTERS = 0.25
"""In how many worlds; not where both sites write."""

REPAIRED = 0.3
"""In how many worlds; not where both sites write."""


class Rival(Enum):
    NEVER = 0
    AT_START = 1
    LATER = 2


@dataclass(frozen=True)
class Profile:
    """One world. Times in seconds of simulated time."""

    node_count: int
    partitions: int
    shared: bool
    """Both directions, with the same topic names, and writers at both sites."""
    groups: bool
    fetches_by_id: bool
    """As Kafka 3.1 and later; an older one may give a recreated topic's records until somebody looks at its id."""
    actions: int
    action_pause_max_s: float
    kills: int
    kill_steps_max: int
    """A worker is killed within so many turns of the loop after its start."""
    rival: Rival
    """A second worker is started while the first one runs, or starts."""
    words: bool
    """What the link says of itself is judged, too (map, lag, groups)."""
    held: bool
    """Once, all packets of a worker stand still for a while."""
    disaster: Disaster | None
    weather: Weather
    limits: WorkerLimits
    births: float = 0.07
    """How much of what happens is a topic that is made, or one that grows."""
    topics_max: int = 4
    units: int = 1
    """That each link is cut into."""
    repairs: float = 0.0
    """How often, between two actions of the others, an operator has a partition mirrored anew."""
    ways: Ways = ()
    """(source, target) of each link, where there are more than two sites; writers at each, the same topic names."""


def choose_circle(rng: random.Random) -> Profile:
    """More than two sites, with links that carry on what others brought."""
    ways = rng.choices(CIRCLES, (5, 1, 1, 1))[0]
    profile = replace(choose_profile(rng), ways=ways, shared=True, disaster=None)
    return replace(profile, partitions=rng.choice((1, 1, 2)), actions=rng.randrange(4, 16))


def choose_world(rng: random.Random) -> Profile:
    """As `choose_profile`, and in some worlds partitions are mirrored anew; all else of a seed is as without that."""
    profile, drawn = choose_profile(rng), rng.getstate()
    repairs = rng.choice((0.1, 0.4)) if rng.random() < REPAIRED and not profile.shared else 0.0
    rng.setstate(drawn)
    return replace(profile, repairs=repairs)


def choose_profile(rng: random.Random) -> Profile:
    harsh = rng.choice((0.0, 0.0, 0.02, 0.04, 0.08))
    tight = rng.random() < 0.4
    fertile = rng.random() < 0.2
    return Profile(
        node_count=rng.choice((1, 1, 2)),
        partitions=rng.choice((1, 1, 2, 3)),
        shared=rng.random() < 0.12,
        groups=rng.random() < 0.4,
        fetches_by_id=rng.random() < 0.6,
        actions=rng.randrange(4, 40),
        action_pause_max_s=rng.choice((0.02, 0.1, 0.4)),
        kills=rng.choice((0, 0, 1, 1, 2)),
        kill_steps_max=rng.choice((150, 400)),
        rival=rng.choices(list(Rival), (8, 1, 1))[0],
        words=rng.random() < 0.5,
        held=rng.random() < 0.15,
        disaster=rng.choice(list(Disaster)) if rng.random() < DISASTERS else None,
        weather=Weather(
            request_fails=harsh,
            connect_fails=harsh,
            cursed=rng.choice(CURSED) if rng.random() < 0.25 else None,
            delay_max_s=rng.choice((0.001, 0.004, 0.05)),
            answers_take_time=rng.random() < 0.4,
        ),
        limits=_tight_limits(rng) if tight else _wide_limits(rng),
        births=0.3 if fertile else 0.07,
        topics_max=8 if fertile else 4,
    )


def _wide_limits(rng: random.Random) -> WorkerLimits:
    return WorkerLimits(
        observe_interval_ms=0,  # its own simulation is tests/mirror/worker/test_observing.py
        checkpoint_interval_ms=rng.choice((20, 200, 1_000)),
        fetch_max_wait_ms=5_000,
        topic_refresh_interval_ms=4_000,
        group_sync_interval_ms=4_000,
        fence_reason_wait_ms=1_000,
        restart_backoff_max_ms=2_000,
    )


def _tight_limits(rng: random.Random) -> WorkerLimits:
    """So little room that a few records fill it."""
    return WorkerLimits(
        observe_interval_ms=0,  # its own simulation is tests/mirror/worker/test_observing.py
        in_flight_max_bytes=2_000,
        fetch_start_bytes=300,
        fetch_max_bytes=600,
        fetch_room_min_bytes=200,
        fetch_partition_max_bytes=300,
        partition_buffer_max_bytes=600,
        fetch_max_wait_ms=5_000,
        produce_max_bytes=400,
        produce_in_flight_requests=rng.choice((1, 3, 5)),
        checkpoint_interval_ms=rng.choice((20, 200, 1_000)),
        checkpoint_max_bytes=rng.choice((300, 100_000)),
        topic_refresh_interval_ms=4_000,
        group_sync_interval_ms=4_000,
        fence_reason_wait_ms=1_000,
        restart_backoff_max_ms=2_000,
    )
