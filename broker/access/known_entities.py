"""What is set on users, client ids and addresses, changed by any broker and known to all: the metadata store tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from broker.access.entities import ENTITY_FOLDERS
from broker.access.relearning import Relearning
from broker.base.clock import Clock
from broker.cluster.metadata import ChangeKind, ConfigResource, Configs
from broker.cluster.metadata_store import MetadataConflict, MetadataStore, MetadataUnreadable

READS_AT_ONCE: Final = 100

Values = Mapping[str, str]

log = logging.getLogger(__name__)


class KnownEntities:
    """`values` by ConfigResource.path. `listeners` are called with what changed, empty where nothing is left."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self.values: Mapping[str, Values] = {}
        self.listeners: list[Callable[[Mapping[str, Values]], None]] = []
        self._store = store
        self._turn = asyncio.Lock()
        self._relearning = Relearning[str](
            self.learn, clock, "what is set on users and clients could not be read, and that of before holds"
        )

    async def learn(self, paths: Collection[str] | None = None) -> None:
        """What the store holds now, of all or of these. Raises what the store raises, but for one that is damaged."""
        async with self._turn:
            if paths is None:
                found = [
                    f"{folder}/{name}" for folder in ENTITY_FOLDERS for name in await self._store.config_names(folder)
                ]
                paths = {*found, *self.values}
            listed = list(paths)
            for start in range(0, len(listed), READS_AT_ONCE):
                some = listed[start : start + READS_AT_ONCE]
                self._take(dict(zip(some, await asyncio.gather(*map(self._read, some)), strict=True)))

    async def _read(self, path: str) -> Values:
        try:
            return (await self._store.configs(_resource(path))).values
        except MetadataUnreadable as error:
            log.error("nobody logs in by it, and it limits nobody, until it is mended: %s", error)  # noqa: TRY400 - foreseen
            return {}

    def _take(self, changed: Mapping[str, Values]) -> None:
        self.values = {path: values for path, values in {**self.values, **changed}.items() if values}
        for listener in self.listeners:
            listener(changed)

    async def change(self, path: str, change: Callable[[Values], Values]) -> None:
        """`change` makes of what is set there what is set from now on; this broker goes by it when this returns. Raises
        MetadataUnreadable, and what the store and `change` raise.
        """
        async with self._turn:
            while True:
                known = await self._store.configs(_resource(path))
                made = change(known.values)
                try:
                    if made != known.values:
                        await self._store.set_configs(_resource(path), Configs(made, known.version))
                except MetadataConflict:  # another broker was the first
                    continue
                return self._take({path: made})

    async def run(self) -> None:
        """Takes up what other brokers and tools change; ends only by being cancelled."""
        async with self._store.watch(ChangeKind.CONFIGS, ChangeKind.SESSION) as changes, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._relearning.run())
            async for change in changes:
                if change.name.partition("/")[0] in ("", *ENTITY_FOLDERS):
                    self._relearning.tell(change.name or None)


def _resource(path: str) -> ConfigResource:
    folder, _, name = path.partition("/")
    return ConfigResource(folder, name)
