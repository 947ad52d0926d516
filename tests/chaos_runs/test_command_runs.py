"""The judges of loss statements, of epochs in a log and of groups find what they are there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.broker.running import running_broker
from tests.chaos_runs.command_runs import false_words
from tests.chaos_runs.readers import wrongly_carried
from tests.chaos_runs.trio import Trio, epochs_that_go_back
from tests.interop.brokers import ClusterBroker
from tests.mirror.harness import make_topic

SOURCE = [Record(offset, 1_700_000_000_000 + offset, b"k", b"%d" % offset) for offset in range(10)]
TARGET = SOURCE[:6]
TRUE = {"certainty": "exact", "first_offset": 6, "end_offset": 10, "records": 4}


@pytest.mark.parametrize(
    "said",
    [
        TRUE,
        TRUE | {"records": None},
        TRUE | {"certainty": "at_least", "end_offset": 8, "records": 2},
        {"certainty": "unknown", "first_offset": None, "end_offset": None, "records": None},
    ],
)
def test_a_true_statement_is_none_of_false_words(said: dict[str, Any]) -> None:
    assert false_words(said, SOURCE, TARGET) == []


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (TRUE | {"first_offset": 7}, "6 is lost, and said to be there"),
        (TRUE | {"first_offset": 5}, "5 is there, and said to be lost"),
        (TRUE | {"end_offset": 9}, "9 is lost, and not said"),
        (TRUE | {"records": 3}, "4 records are lost"),
    ],
)
def test_a_false_statement_is_found(said: dict[str, Any], wrong: str) -> None:
    (found,) = false_words(said, SOURCE, TARGET)
    assert found.startswith(wrong)


def test_a_target_that_lacks_a_record_in_the_middle_is_found() -> None:
    assert "the target is no beginning of the source" in false_words(TRUE, SOURCE, [*SOURCE[:3], *SOURCE[4:7]])


@pytest.mark.parametrize(("epochs", "back"), [([1, 1, 3], []), ([1, 2, 1], [(2, 1)])])
def test_an_epoch_behind_a_later_one_is_found(tmp_path: Path, epochs: list[int], back: list[tuple[int, int]]) -> None:
    where = TopicPartition("t", 0)
    broker = ClusterBroker(tmp_path / "broker-1", tmp_path / "farshore.toml", 1, 1)
    folder = tmp_path / "data-1" / str(where)
    folder.mkdir(parents=True)
    values = {epoch: encode_batch(SOURCE[:1], producer_id=7, producer_epoch=epoch, base_sequence=0) for epoch in epochs}
    batches = [bytes(values[epoch]) for epoch in epochs]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    assert epochs_that_go_back(Trio("west", {1: broker}), where) == back


@pytest.mark.parametrize(("at_target", "wrong"), [(2, []), (1, ["another record"]), (None, ["not carried over"])])
async def test_a_group_that_would_read_another_record_is_found(
    tmp_path: Path, at_target: int | None, wrong: list[str]
) -> None:
    where = TopicPartition("t", 0)
    async with (
        running_broker(tmp_path / "east") as east,
        running_broker(tmp_path / "west") as west,
        Cluster(Site("east", east)) as source,
        Cluster(Site("west", west)) as target,
    ):
        for cluster, offset in ((source, 4), (target, at_target)):
            await make_topic(cluster, where.topic)
            if offset is not None:
                await commit_offsets(cluster, "g", {where: CommittedOffset(offset)})
        logs = {where: (SOURCE, [record._replace(offset=record.offset - 2) for record in SOURCE[2:]])}
        found = await wrongly_carried("g", (source, target), logs)
    assert len(found) == len(wrong)
    assert all(word in said for word, said in zip(wrong, found, strict=True))
