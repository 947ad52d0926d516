"""A worker of a fleet that follows its file: what changes there is taken while all else goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from deploy.cli.terminal import AppContext
from mirror.coordinator.current import Current
from mirror.fleet.events import FleetEvent, FleetSink
from mirror.fleet.keys import OfferedLink, WorkerRecord
from mirror.link import Link, Priority

LOOK_S: Final = 1.0
"""A file is taken when it was the same for two looks: one that is being written may be read whole, and be half."""
PRIORITIES: Final[Mapping[Priority, int]] = {"low": -1, "normal": 0, "high": 1}


@dataclass(frozen=True, slots=True)
class FileStamp:
    """When it was changed, and what it says."""

    at_ms: int
    digest: str


def stamp_of(file: Path) -> FileStamp | None:
    """None: it cannot be read now."""
    try:
        return FileStamp(file.stat().st_mtime_ns // 1_000_000, hashlib.sha256(file.read_bytes()).hexdigest())
    except OSError:
        return None


@dataclass
class FollowedFile:
    """What a worker takes of its file: the links, or those `chosen` by their names."""

    context: AppContext
    chosen: Sequence[str]
    links: Current[Mapping[str, Link]]
    offer: Current[WorkerRecord]
    taken: FileStamp | None

    async def follow(self, clock: Clock, tell: FleetSink) -> None:
        """Until cancelled."""
        seen = self.taken
        while True:
            await clock.sleep(LOOK_S)
            before, seen = seen, stamp_of(self.context.file)
            if seen is None or seen != before or (self.taken is not None and seen.digest == self.taken.digest):
                continue
            self.taken = seen
            self._take(seen.at_ms, tell)

    def _take(self, file_at_ms: int, tell: FleetSink) -> None:
        try:
            links, before = self._read(), self.links.value
        except FarshoreError as error:
            tell(FleetEvent.FILE_REFUSED, detail=str(error), hint=error.hint)
            return
        except click.ClickException as error:
            tell(FleetEvent.FILE_REFUSED, detail=error.message)
            return
        self.offer.replace(replace_links(self.offer.value, links, file_at_ms))
        self.links.replace(links)
        tell(
            FleetEvent.FILE_TAKEN,
            added=",".join(sorted(links.keys() - before.keys())),
            removed=",".join(sorted(before.keys() - links.keys())),
            changed=",".join(sorted(name for name in links.keys() & before.keys() if links[name] != before[name])),
        )

    def _read(self) -> Mapping[str, Link]:
        """Raises FarshoreError, click.ClickException where it cannot be taken."""
        fresh = self.context.fresh()
        if fresh.fleet() != self.context.fleet():
            raise click.UsageError("[fleet] says something else: restart this worker, or write what was there")
        links = chosen_links(fresh.links(), self.chosen)
        if not links:
            raise click.UsageError("it has no link that this worker could run: stop the worker, if that is meant")
        self.context = fresh
        return links


def chosen_links(links: Sequence[Link], names: Sequence[str]) -> dict[str, Link]:
    """Those of the names, by them; all where none is named."""
    return {link.name: link for link in links if not names or link.name in names}


def replace_links(offer: WorkerRecord, links: Mapping[str, Link], file_at_ms: int) -> WorkerRecord:
    """The offer of a worker whose file has changed."""
    offered = {name: offered_link(link) for name, link in links.items()}
    return offer.model_copy(update={"links": offered, "file_at_ms": file_at_ms})


def offered_link(link: Link) -> OfferedLink:
    """`declared` is the same for all files that say the same of it; how sites are reached may differ from place to
    place.
    """
    said = [link.source.name, link.target.name, sorted(link.topics), link.topic_names, sorted(link.groups)]
    cut = [link.units, *(f"{topic}:{number}" for topic, number in link.pins)] if link.unit_count > 1 else []
    acls = ["acls", *link.acl_principals] if link.sync_acls else []
    declared = hashlib.sha256(json.dumps([*said, *cut, *acls]).encode()).hexdigest()[:16]
    units = link.unit_count if cut else 0
    return OfferedLink(
        target=link.target.name,
        declared=declared,
        priority=PRIORITIES[link.priority],
        units=units,
        target_rack=link.target_rack,
    )
