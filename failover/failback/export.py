"""Stranded records as files: the source's own batches, byte for byte, and a manifest with their checksums.

```
DIR/manifest.json                          written last: a folder without one is no export
DIR/flights-0/00000000000000000500.log     the batches of one range, in order, as in a segment of Kafka's log
```

A file is what Kafka's own `kafka-dump-log` reads; control batches, aborted ones and what the link would leave out are
not in it. Its first and last batch may have records outside of the range: the manifest says which offsets count.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from broker.wire.batch import BatchHeader, verify_crc
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.records import Record
from failover.errors import ExportDamaged, ExportRefused
from failover.failback.stranding import check_settled
from mirror.api import StrandedTail, TailReader, records_in

EXPORT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
UNFINISHED: Final = ".unfinished"
"""Behind the folder's name while it is written."""


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Source offsets [first_offset, end_offset) of a partition; `file` is relative to the export's folder."""

    topic: str
    partition: int
    topic_id: str
    first_offset: int
    end_offset: int
    records: int
    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export holds, and where it came from."""

    link: str
    source: str
    source_cluster_id: str
    target: str
    created_at_ms: int
    ranges: tuple[ExportedRange, ...]
    version: int = EXPORT_VERSION

    @property
    def records(self) -> int:
        """Of all ranges."""
        return sum(one.records for one in self.ranges)


async def export_stranded(
    reader: TailReader, tails: Sequence[StrandedTail], folder: Path, created_at_ms: int
) -> Manifest:
    """Write them, durably: when this returns a crash of the machine takes nothing away.

    `folder` must not exist, or be empty. Raises ExportRefused, StrandedUnknown (then nothing is left behind),
    ClientError, MirrorError, CorruptBatch, OSError.
    """
    check_settled(tails, reader.link.source)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportRefused(f"{folder} is not empty", hint="name a folder that is not there yet")
    beside = folder.with_name(f"{folder.name}{UNFINISHED}")
    shutil.rmtree(beside, ignore_errors=True)  # of an export that was cut short
    beside.mkdir(parents=True)
    ranges = [await _write_range(reader, tail, beside) for tail in tails]
    link, cluster_id = reader.link, reader.source_cluster_id
    manifest = Manifest(link.name, link.source.name, cluster_id, link.target.name, created_at_ms, tuple(ranges))
    _write_durably(beside / MANIFEST, json.dumps(asdict(manifest), indent=2).encode())
    for written in (*{(beside / one.file).parent for one in ranges}, beside):
        _sync_folder(written)
    os.rename(beside, folder)
    _sync_folder(folder.parent)
    return manifest


async def is_exported(reader: TailReader, tails: Sequence[StrandedTail], folder: Path) -> bool:
    """Whether it holds these very ranges, whole: an export whose end was not heard of is not made again."""
    try:
        found = await asyncio.to_thread(read_manifest, folder)
    except ExportDamaged:
        return False
    wanted = [(tail.topic, tail.partition, tail.first_offset, tail.end_offset, tail.records) for tail in tails]
    there = [(one.topic, one.partition, one.first_offset, one.end_offset, one.records) for one in found.ranges]
    return (found.link, found.source_cluster_id, there) == (reader.link.name, reader.source_cluster_id, wanted)


def holds_other(folder: Path) -> bool:
    """Whether something is there that is no export, so that none can be written. Raises OSError."""
    if not folder.exists():
        return False
    return not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).is_file())


async def _write_range(reader: TailReader, tail: StrandedTail, folder: Path) -> ExportedRange:
    name = f"{tail.topic}-{tail.partition}/{tail.first_offset:020d}.log"
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    digest, records, size_bytes = hashlib.sha256(), 0, 0
    with path.open("wb") as file:
        async for _header, batch in reader.batches(tail):
            if found := len(records_in(tail, batch)):
                records += found
                size_bytes += file.write(batch)
                digest.update(batch)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())  # of gigabytes it takes longer than a lease lasts
    if records != tail.records:
        text = f"{tail.where} had {tail.records} records in [{tail.first_offset}, {tail.end_offset}), and has {records}"
        raise ExportRefused(text, hint="something changes the source's log: try again")
    topic_id = reader.topic_id(tail.topic)
    span = (tail.first_offset, tail.end_offset)
    return ExportedRange(tail.topic, tail.partition, topic_id, *span, records, name, size_bytes, digest.hexdigest())


def read_manifest(folder: Path) -> Manifest:
    """The manifest, and every file held against it. Raises ExportDamaged, OSError."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ExportDamaged(f"{folder} has no {MANIFEST}: it is no export, or one that was cut short")
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("version") != EXPORT_VERSION:
            raise ExportDamaged(f"{path} was written by a newer version")
        ranges = tuple(ExportedRange(**one) for one in fields.pop("ranges"))
        manifest = Manifest(ranges=ranges, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExportDamaged(f"{path}: {error}") from error
    for one in ranges:
        _check_file(folder, one)
    return manifest


def _check_file(folder: Path, one: ExportedRange) -> None:
    path = folder / one.file
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise ExportDamaged(f"{path} is not there")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if (path.stat().st_size, found) != (one.size_bytes, one.sha256):
        raise ExportDamaged(f"{path} is not as it was written: {one.size_bytes} bytes of SHA-256 {one.sha256}")


def exported_batches(folder: Path, one: ExportedRange) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of one range as they stood in the source's log, CRC checked. Raises ExportDamaged, OSError."""
    path = folder / one.file
    try:
        for header, batch in iter_fetched(memoryview(bytearray(path.read_bytes()))):
            verify_crc(batch)
            yield header, batch
    except WireError as error:
        raise ExportDamaged(f"{path}: {error}") from error


def within(one: ExportedRange, records: Sequence[Record]) -> list[Record]:
    """Those of a batch that belong to the range."""
    return [record for record in records if one.first_offset <= record.offset < one.end_offset]


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
