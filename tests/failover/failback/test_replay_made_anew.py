"""What a replay brought to a topic says nothing of another one at the target: that has none of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.topics import delete_topics
from failover.failback.export import Manifest, export_stranded
from failover.failback.replay import Replayed, replay
from failover.failback.stranding import leave_at_source, read_stranded
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.failback.test_replay import replayed_at
from tests.failover.stage import PARTITIONS, TOPIC
from tests.mirror.harness import make_topic, read_all

RECORDS = 6
AT = PARTITIONS[0]


async def saved(lost: Lost, folder: Path) -> Manifest:
    reader, found = await read_stranded(lost.there, lost.stage.source, lost.stage.target)
    manifest = await export_stranded(reader, found.tails, folder, 0)
    await leave_at_source(lost.there, lost.stage.target, found.undecided, "test")
    return manifest


async def test_a_topic_that_was_made_anew_gets_them_again(tmp_path: Path) -> None:
    """It said that all of them had been brought before, and the target had none; nothing brought them any more."""
    async with lost_and_back(tmp_path, 27, (RECORDS, 0), (1, 0)) as lost:
        target, folder = lost.stage.target, tmp_path / "saved"
        manifest = await saved(lost, folder)
        assert await replay(lost.there, target, manifest, folder, lambda _: None) == Replayed(RECORDS, 0)
        assert not await delete_topics(target, [TOPIC])
        await make_topic(target, TOPIC, len(PARTITIONS))
        assert await replay(lost.there, target, manifest, folder, lambda _: None) == Replayed(RECORDS, 0)
        assert len(await replayed_at(lost, AT)) == RECORDS
        assert await replay(lost.there, target, manifest, folder, lambda _: None) == Replayed(0, RECORDS)


async def test_another_links_topic_gets_them_too(tmp_path: Path) -> None:
    """Of two links from the same source, into topics of different names."""
    async with lost_and_back(tmp_path, 28, (RECORDS, 0), (1, 0)) as lost:
        target, folder = lost.stage.target, tmp_path / "saved"
        manifest = await saved(lost, folder)
        assert await replay(lost.there, target, manifest, folder, lambda _: None) == Replayed(RECORDS, 0)
        other = replace(lost.there, name="archive", topic_names="prefixed", reverse_links=())
        named = other.target_topic(TOPIC)
        assert named != TOPIC
        await make_topic(target, named, len(PARTITIONS))
        of_other = replace(manifest, link=other.name)
        assert await replay(other, target, of_other, folder, lambda _: None) == Replayed(RECORDS, 0)
        assert len(await read_all(target, AT._replace(topic=named))) == RECORDS
        assert await replay(other, target, of_other, folder, lambda _: None) == Replayed(0, RECORDS)
        assert await replay(lost.there, target, manifest, folder, lambda _: None) == Replayed(0, RECORDS)
