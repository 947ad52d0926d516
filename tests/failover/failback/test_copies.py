"""Records that a replay brought to one site, and that stand at the other in its own log: counted at either end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record, encode_batch
from failover.failback.copies import copies_among, replayed_among
from failover.failback.export import export_stranded
from failover.failback.looking import look_back
from failover.failback.replay import replay
from failover.failback.stranding import leave_at_source, read_stranded
from failover.losses.replayed import REPLAYS
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import PARTITIONS


async def test_what_was_replayed_of_a_tail_is_counted_where_it_was_written_and_where_it_was_brought(
    tmp_path: Path,
) -> None:
    async with lost_and_back(tmp_path, 41, (7, 4), (3, 2)) as lost:
        source, target, folder = lost.stage.source, lost.stage.target, tmp_path / "saved"
        reader, found = await read_stranded(lost.there, source, target)
        manifest = await export_stranded(reader, found.tails, folder, 0)
        await leave_at_source(lost.there, target, found.undecided, "test")
        assert await counted(lost, tmp_path) == (0, 0, 0)
        await replay(lost.there, target, replace(manifest, ranges=manifest.ranges[:1]), folder, lambda _records: None)
        assert await counted(lost, tmp_path) == (7, 7, 7)
        await replay(lost.there, target, manifest, folder, lambda _records: None)
        assert await counted(lost, tmp_path) == (11, 11, 11)
        await append(target, REPLAYS, encode_batch([Record(0, 0, b"another version's", b"[]")]))
        assert await counted(lost, tmp_path) == (None, None, None), "what it says is not guessed at"


async def counted(lost: Lost, folder: Path) -> tuple[int | None, int | None, int | None]:
    """Of the tail, as the failback's plan says it, and among all that the link back would bring."""
    source, target, tails = lost.stage.source, lost.stage.target, (await lost.stranded()).tails
    plan = await look_back(lost.there, (lost.there, lost.back), (source, target), str(folder / "back"))
    ends = await log_end_offsets(target, PARTITIONS)
    all_there = [replace(tails[0], partition=at.partition, first_offset=0, end_offset=ends[at]) for at in PARTITIONS]
    return (
        await replayed_among(lost.there, source, target, tails),
        plan.left_replayed,
        await copies_among(lost.back, target, source, all_there),
    )
