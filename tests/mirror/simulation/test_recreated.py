"""A source topic is made anew while a worker begins: between its look at the topics and its look at their logs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.wire.api import ApiKey
from mirror.offsets.entries import GapKind
from mirror.worker.events import Event
from tests.mirror.simulation.answers import SimulatedNode
from tests.mirror.simulation.test_far import Far

PARTITIONS = 3
BEFORE = 5
"""Records of each partition."""


def recreate_at(monkeypatch: pytest.MonkeyPatch, far: Far, site: str, at: ApiKey) -> None:
    """When that is first asked for at the site."""
    serve, due = SimulatedNode.serve, [at]

    def serve_late(node: SimulatedNode, api_key: int, *request: Any, refuse: bool) -> None:
        if node.cluster.name == site and api_key in due:
            due.clear()
            far.east.delete_topic("flights")
            far.east.create_topic("flights", PARTITIONS, {"retention.ms": "-1"})
            far.write_everywhere()
        serve(node, api_key, *request, refuse=refuse)

    monkeypatch.setattr(SimulatedNode, "serve", serve_late)


@pytest.mark.parametrize(
    ("site", "at"),
    [
        ("west", ApiKey.INIT_PRODUCER_ID),
        ("west", ApiKey.END_TXN),
        ("east", ApiKey.LIST_OFFSETS),
        ("east", ApiKey.OFFSET_FOR_LEADER_EPOCH),
        ("west", ApiKey.DESCRIBE_CONFIGS),
    ],
)
def test_a_start_that_is_overtaken_stops_at_what_happened(
    monkeypatch: pytest.MonkeyPatch, site: str, at: ApiKey
) -> None:
    far = Far(PARTITIONS)

    async def course() -> None:
        for _ in range(BEFORE):
            far.write_everywhere()
        await far.run(20)
        recreate_at(monkeypatch, far, site, at)
        await far.run(20)
        stopped = {(told["partition"], told["reason"]) for told in far.told.of(Event.PARTITION_STOPPED)}
        assert stopped == {(number, GapKind.RECREATED.value) for number in range(PARTITIONS)}

    far.loop.run(course())
