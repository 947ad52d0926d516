"""Whoever watches a store of this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from broker.cluster.metadata import Change, ChangeKind


class Watchers:
    def __init__(self) -> None:
        self._watching: list[tuple[frozenset[ChangeKind], asyncio.Queue[Change]]] = []

    @contextlib.asynccontextmanager
    async def watch(self, *kinds: ChangeKind) -> AsyncIterator[AsyncIterator[Change]]:
        """See MetadataStore.watch."""
        queue: asyncio.Queue[Change] = asyncio.Queue()
        watching = (frozenset(kinds), queue)
        self._watching.append(watching)
        try:
            yield _told(queue)
        finally:
            self._watching.remove(watching)

    def tell(self, *changes: Change) -> None:
        for kinds, queue in self._watching:
            for change in changes:
                if change.kind in kinds:
                    queue.put_nowait(change)


async def _told(queue: asyncio.Queue[Change]) -> AsyncIterator[Change]:
    while True:
        yield await queue.get()
