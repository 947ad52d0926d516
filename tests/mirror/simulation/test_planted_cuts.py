"""Bugs planted where a link is cut anew: each is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets import operations, recutting
from mirror.offsets.fence import fence_link
from mirror.offsets.part_records import PartRecords, carried
from mirror.offsets.recutting import _Held
from mirror.offsets.state_writer import Carried
from mirror.offsets.unit_entries import LinkDeal
from mirror.worker import startup
from tests.mirror.simulation.test_recutting import run_world
from tests.worlds import rarely_found

Plant = Callable[[pytest.MonkeyPatch], None]


def says_the_deal_before_the_state_is_carried(patch: pytest.MonkeyPatch) -> None:
    carry = _Held.carry

    async def planted(self: _Held, new: Link) -> None:
        part = self.parts[0]
        known = next((int(v.split(b'"epoch":')[1][:-1]) for k, v in part.values.items() if k == b'["deal"]'), 0)
        await self.say(LinkDeal(new.units, new.pins, known + 1))
        await carry(self, new)

    patch.setattr(_Held, "carry", planted)


def fences_unit_0_alone(patch: pytest.MonkeyPatch) -> None:

    async def planted(target: Cluster, link: Link, partitions: Iterable[TopicPartition], **more: Any) -> Any:
        return await fence_link(target, link, partitions if link.is_lead_unit else [], **more)

    patch.setattr(recutting, "fence_link", planted)


def does_not_look_behind_its_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(startup, "refuse_other_cut", lambda _link, _entries: None)


def resumes_without_the_deal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operations, "_deal", lambda _entries: [])


def carries_no_gaps(patch: pytest.MonkeyPatch) -> None:

    def planted(old: Link, new: Link, parts: Mapping[int, PartRecords]) -> dict[int, Sequence[Carried]]:
        found = carried(old, new, parts)
        return {unit: [one for one in some if not one.key.startswith(b'["gap"')] for unit, some in found.items()}

    patch.setattr(recutting, "carried", planted)


SEEDS = 300
PLANTED = (
    rarely_found(says_the_deal_before_the_state_is_carried, 40),
    (fences_unit_0_alone, 107),
    (does_not_look_behind_its_fence, 284),
    rarely_found(resumes_without_the_deal, 55),
    rarely_found(carries_no_gaps, 54),
)
"""From which seed on they are looked for. A reader that goes by two deals, leftovers that stay, two cuts at once, and
what is carried in another order are found in `tests/mirror/offsets`.
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("plant", "first"), PLANTED)
def test_a_planted_bug_is_found(plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(first, first + SEEDS):
        try:
            run_world(seed)
        except Exception:  # noqa: BLE001 whatever it was: the worker's own assertions come in groups
            return
    pytest.fail(f"{SEEDS} seeds do not see what is wrong where a cut {plant.__name__}")
