"""Files of stranded records hold what only the source has, whole, and say so when they were changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from broker.wire.records import decode_records
from failover.errors import ExportDamaged, ExportRefused
from failover.failback.export import (
    MANIFEST,
    UNFINISHED,
    Manifest,
    export_stranded,
    exported_batches,
    is_exported,
    read_manifest,
    within,
)
from failover.failback.stranding import read_stranded
from tests.failover.failback.stage import Lost, lost_and_back, transaction
from tests.failover.stage import PARTITIONS
from tests.mirror.harness import contents


async def exported(lost: Lost, folder: Path) -> Manifest:
    reader, found = await read_stranded(lost.there, lost.stage.source, lost.stage.target)
    return await export_stranded(reader, found.tails, folder, 1_700_000_000_000)


async def test_the_files_hold_what_only_the_source_has_and_no_other_record(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    async with lost_and_back(tmp_path, 11, (23, 1), (2, 2)) as lost:
        async with transaction(lost.stage.source.site.bootstrap_servers) as producer:
            await producer.send_and_wait("flights", b"aborted", partition=0)
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait("flights", b"committed", partition=0)
            await producer.commit_transaction()
        folder.with_name(f"{folder.name}{UNFINISHED}").mkdir()  # one was cut short
        manifest = await exported(lost, folder)
        assert (manifest.records, read_manifest(folder)) == (25, manifest)
        for where in PARTITIONS:
            saved = [
                record
                for one in manifest.ranges
                if (one.topic, one.partition) == where
                for _, batch in exported_batches(folder, one)
                for record in within(one, decode_records(batch))
            ]
            only = [content for content in await lost.only_at_source(where) if content[2] != b"aborted"]
            assert contents(saved) == only
        with pytest.raises(ExportRefused, match="is not empty"):
            await exported(lost, folder)
        assert [path.name for path in tmp_path.glob(f"*{UNFINISHED}")] == []


async def test_an_export_that_holds_the_very_ranges_is_known_and_no_other_one(tmp_path: Path) -> None:
    """A failback whose machine died behind it saves to the same folder again, and would be refused."""
    folder = tmp_path / "saved"
    async with lost_and_back(tmp_path, 13, (4, 2), (1, 1)) as lost:
        reader, found = await read_stranded(lost.there, lost.stage.source, lost.stage.target)
        assert not await is_exported(reader, found.tails, folder)
        (one, *_) = (await exported(lost, folder)).ranges
        assert await is_exported(reader, found.tails, folder)
        assert not await is_exported(reader, found.tails[:1], folder)
        grown = (replace(found.tails[0], end_offset=found.tails[0].end_offset + 1), *found.tails[1:])
        assert not await is_exported(reader, grown, folder)
        (folder / one.file).write_bytes(b"another")
        assert not await is_exported(reader, found.tails, folder)


async def test_what_was_changed_is_found_before_it_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    async with lost_and_back(tmp_path, 12, (4, 0), (1, 0)) as lost:
        (one,) = (await exported(lost, folder)).ranges
    path, kept = folder / one.file, (folder / one.file).read_bytes()
    for at in range(0, len(kept), 7):
        path.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        with pytest.raises(ExportDamaged, match="is not as it was written"):
            read_manifest(folder)
    path.write_bytes(kept[:-1])
    with pytest.raises(ExportDamaged):
        read_manifest(folder)
    path.write_bytes(kept)
    fields = json.loads((folder / MANIFEST).read_bytes())
    damages: list[object] = [{**fields, "version": 2}, {**fields, "ranges": 5}, {"version": 1}, []]
    for damaged in damages:
        (folder / MANIFEST).write_text(json.dumps(damaged))
        with pytest.raises(ExportDamaged):
            read_manifest(folder)
    outside = {**fields, "ranges": [{**fields["ranges"][0], "file": "../east/x.log"}]}
    (folder / MANIFEST).write_text(json.dumps(outside))
    with pytest.raises(ExportDamaged, match="is not there"):
        read_manifest(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ExportDamaged, match="cut short"):
        read_manifest(folder)
