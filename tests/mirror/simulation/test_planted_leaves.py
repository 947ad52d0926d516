"""Bugs planted where partitions leave a session and come again: each is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Writer
from mirror.worker import latecomers
from mirror.worker.resume import Evidence
from mirror.worker.session import Session
from tests.mirror.simulation.test_leaving import run_world
from tests.worlds import rarely_found

Plant = Callable[[pytest.MonkeyPatch], None]


def drops_before_the_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "is_settled", lambda _self, _where: True)


def joins_again_without_recovery(patch: pytest.MonkeyPatch) -> None:
    def planted(found: Evidence, _writer: Writer) -> Evidence:
        return replace(found, checkpoint=None)

    patch.setattr(latecomers, "_with_sequence", planted)


def leaves_the_map_writer_behind(patch: pytest.MonkeyPatch) -> None:
    drop = Session.drop

    def planted(self: Session, topics: Collection[str]) -> None:
        kept = {where: replicator for where, replicator in self.replicators.items() if where.topic in topics}
        drop(self, topics)
        self.replicators |= kept

    patch.setattr(Session, "drop", planted)


def goes_on_with_the_sequence_of_a_log_that_is_lost(patch: pytest.MonkeyPatch) -> None:
    async def planted(*_args: Any) -> dict[TopicPartition, int]:
        return {}

    patch.setattr(latecomers, "next_sequences", planted)


SEEDS = 500
PLANTED = (
    rarely_found(drops_before_the_answers),
    joins_again_without_recovery,
    leaves_the_map_writer_behind,
    goes_on_with_the_sequence_of_a_log_that_is_lost,
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            run_world(seed)
        except Exception:  # noqa: BLE001 whatever it was: the worker's own assertions come in groups
            return
    pytest.fail(f"{SEEDS} seeds do not see what is wrong where the worker {plant.__name__}")
