"""Whether a link's worker lives, judged from the heartbeat that it keeps in the link's state.

The heartbeat is stamped by the worker's clock: Kafka's protocol has no way to ask a cluster for the time, and a stamp
by the target's append time could be compared with nothing either. So a stamp is compared with the clock of who looks,
and allowed to differ by `CLOCK_DIFFERENCE_MAX_MS`. A stamp further in the future says only that two clocks differ, and
what it says of the worker is unknown. Who looks more than once needs no stamp: an entry that changed between two looks
was written by a living worker, one that did not change for the limit was not, whatever the clocks say. Where the two
looks lie further apart than the limit, it may have died in between all the same, and the stamp counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.base.clock import Clock
from broker.base.durations import human_seconds
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, HEARTBEAT_MAX_AGE_MS
from mirror.offsets.entries import Owner

OLDEST_ALIVE_MS = HEARTBEAT_MAX_AGE_MS + CLOCK_DIFFERENCE_MAX_MS


class Pulse(StrEnum):
    """Whether a worker of the link lives."""

    ALIVE = "alive"
    AWAITED = "awaited"
    """A command left the link to its worker within the limit, and none has taken it over yet: one that runs is about to
    write its first heartbeat."""
    SILENT = "silent"
    """No heartbeat for longer than the limit: no worker runs, or none gets as far as to own the link."""
    UNKNOWN = "unknown"
    """The heartbeat's stamp cannot be from this clock."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the newest heartbeat says. `age_ms` is by the clock of who looked, below zero where the clocks differ.

    `worker` is "" and the numbers None where there never was an owner. `detail` says why it is not alive, else "".
    """

    pulse: Pulse
    worker: str = ""
    at_ms: int | None = None
    age_ms: int | None = None
    detail: str = ""


def judge_heartbeat(owner: Owner | None, now_ms: int) -> Heartbeat:
    """One look. Pure."""
    if owner is None:
        return Heartbeat(Pulse.SILENT, detail="no worker ever owned the link")
    age_ms = now_ms - owner.at_ms
    pulse, detail = Pulse.ALIVE, ""
    if age_ms < -CLOCK_DIFFERENCE_MAX_MS:
        what = f"the heartbeat of {owner.worker}" if owner.is_worker else f"what {owner.worker} left"
        pulse, detail = Pulse.UNKNOWN, f"{what} is {human_seconds(-age_ms / 1000)} ahead of this clock"
    elif age_ms > OLDEST_ALIVE_MS:
        by = "by this clock (if its own is behind, `farshore status --watch` tells)"
        pulse, detail = Pulse.SILENT, _silence(owner, age_ms, by)
    elif not owner.is_worker:
        pulse, detail = Pulse.AWAITED, _waiting(owner, age_ms)
    return Heartbeat(pulse, owner.worker, owner.at_ms, age_ms, detail)


def weakest(judged: Mapping[int, Heartbeat]) -> Heartbeat:
    """What is said of a link by those of its units: it is as well as the one that is worst. Pure."""
    if len(judged) == 1:
        return next(iter(judged.values()))
    order = (Pulse.SILENT, Pulse.UNKNOWN, Pulse.AWAITED, Pulse.ALIVE)
    unit, found = min(judged.items(), key=lambda one: (order.index(one[1].pulse), -(one[1].age_ms or 0), one[0]))
    return replace(found, detail=f"unit {unit}: {found.detail}") if found.detail else found


@dataclass(frozen=True, slots=True)
class _Sighting:
    """An owner's entry, since when it stands as it is, when it was last looked at (steady seconds), and whether it was
    seen to change between two looks near each other.
    """

    owner: Owner
    since_s: float
    looked_s: float
    moved: bool


class HeartbeatWatch:
    """Judges the links' heartbeats by several looks: of each, whether it moves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sightings: dict[str, _Sighting] = {}

    def judge_units(self, link: str, owners: Mapping[int, Owner | None]) -> Heartbeat:
        """As `judge`, of all units of a link."""
        if len(owners) == 1:
            return self.judge(link, next(iter(owners.values())))
        return weakest({unit: self.judge(f"{link}/{unit}", owner) for unit, owner in owners.items()})

    def judge(self, link: str, owner: Owner | None) -> Heartbeat:
        """Another look at the link's owner; call it with what was just read."""
        stamped = judge_heartbeat(owner, self._clock.now_ms())
        if owner is None:
            self._sightings.pop(link, None)
            return stamped
        now_s = self._clock.monotonic()
        seen = self._sightings.get(link)
        if seen is None or seen.owner != owner:
            moved = seen is not None and (now_s - seen.looked_s) * 1000 <= OLDEST_ALIVE_MS
            seen = _Sighting(owner, now_s, now_s, moved)
        self._sightings[link] = seen = replace(seen, looked_s=now_s)
        still_ms = round((now_s - seen.since_s) * 1000)
        if still_ms > OLDEST_ALIVE_MS:
            detail = _silence(owner, still_ms, "while it was watched")
            return Heartbeat(Pulse.SILENT, owner.worker, owner.at_ms, stamped.age_ms, detail)
        if seen.moved and owner.is_worker:
            return Heartbeat(Pulse.ALIVE, owner.worker, owner.at_ms, stamped.age_ms)
        if seen.moved:
            return Heartbeat(
                Pulse.AWAITED, owner.worker, owner.at_ms, stamped.age_ms, _waiting(owner, max(0, still_ms))
            )
        return stamped


def _silence(owner: Owner, silent_ms: int, by: str) -> str:
    told = human_seconds(silent_ms / 1000)
    if not owner.is_worker:
        return f"no worker has taken the link over since {owner.worker}, {told} ago {by}"
    return f"no heartbeat of {owner.worker} for {told} {by}"


def _waiting(owner: Owner, age_ms: int) -> str:
    told, limit = human_seconds(max(0, age_ms) / 1000), human_seconds(OLDEST_ALIVE_MS / 1000)
    text = f"{owner.worker} left the link to its worker {told} ago, and none has written a heartbeat since, which is "
    return f"{text}not called silence before {limit}"
