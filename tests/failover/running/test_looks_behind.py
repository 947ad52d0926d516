"""How a failover looks at its source behind the fence: what one lost line leaves out is asked for again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from failover.observing.contact import SiteFinding
from failover.observing.snapshot import Snapshot
from failover.planning.plan import plan_failover
from failover.running.verifying import look_as_found
from tests.failover.planning.test_plan import SNAPSHOT

ALIVE, PARTLY, DEAD = SiteFinding.ALIVE, SiteFinding.PARTLY_THERE, SiteFinding.DEAD


@dataclass
class Source:
    """What each look finds of it, the last one for ever."""

    finds: Sequence[SiteFinding]
    looks: list[SiteFinding] = field(default_factory=list)

    async def look_past_source(self, *_: object) -> Snapshot:
        self.looks.append(self.finds[min(len(self.looks), len(self.finds) - 1)])
        return replace(SNAPSHOT, source_finding=self.looks[-1])


@pytest.mark.parametrize(
    ("before", "finds", "looks"),
    [
        (ALIVE, [ALIVE], [ALIVE]),
        (ALIVE, [PARTLY, PARTLY, ALIVE], [PARTLY, PARTLY, ALIVE]),
        (ALIVE, [PARTLY, DEAD], [PARTLY, DEAD]),
        (ALIVE, [DEAD], [DEAD]),
        (PARTLY, [PARTLY], [PARTLY]),
    ],
)
async def test_a_source_that_told_all_before_is_asked_again_where_it_tells_a_part(
    before: SiteFinding, finds: list[SiteFinding], looks: list[SiteFinding]
) -> None:
    source: Any = Source(finds)
    found = replace(SNAPSHOT, source_finding=before)
    plan = plan_failover(found, allow_data_loss=True, even_if_source_answers=True)
    seen = await look_as_found(plan, source)
    assert (source.looks, seen.source_finding) == (looks, looks[-1])


async def test_a_source_that_went_in_part_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failover.running.verifying.LOOK_AGAIN_S", 0.01)
    source: Any = Source([PARTLY])
    plan = plan_failover(replace(SNAPSHOT, source_finding=ALIVE), allow_data_loss=True, even_if_source_answers=True)
    assert (await look_as_found(plan, source)).source_finding is PARTLY
    assert len(source.looks) >= 2
