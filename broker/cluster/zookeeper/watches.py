"""Who watches what in one session.

Kazoo keeps what it is to call until the server tells of a change, which for most znodes is never: it is given one
function for all. Here stands who is told, until he was, or does not want to know any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.cluster.zookeeper.session import Watch, WatchEvent, WatchKind

_OF_CHILDREN: Final = (WatchKind.CHILDREN, WatchKind.DELETED)


class Watches:
    """An event may tell who was added after it happened, and whose own is still to come: told once too often is no
    harm, as whoever is told sets his watch again.
    """

    def __init__(self) -> None:
        self._of_data: dict[str, list[Watch]] = {}
        self._of_children: dict[str, list[Watch]] = {}

    def __len__(self) -> int:
        return sum(len(watches) for of in (self._of_data, self._of_children) for watches in of.values())

    def add(self, path: str, watch: Watch, *, children: bool) -> None:
        """Before it is asked of the server."""
        (self._of_children if children else self._of_data).setdefault(path, []).append(watch)

    def tell(self, event: WatchEvent) -> None:
        for watch in self.take(event):
            watch(event)

    def take(self, event: WatchEvent) -> list[Watch]:
        """Who is to be told of it."""
        if event.kind is WatchKind.LOST:
            told = [watch for of in (self._of_data, self._of_children) for watches in of.values() for watch in watches]
            self._of_data, self._of_children = {}, {}
            return told
        told = self._of_children.pop(event.path, []) if event.kind in _OF_CHILDREN else []
        return told + (self._of_data.pop(event.path, []) if event.kind is not WatchKind.CHILDREN else [])

    def take_back(self, path: str, watch: Watch, *, children: bool) -> None:
        """What was added and could not be asked of the server; it may have been told meanwhile."""
        of = self._of_children if children else self._of_data
        if watch in (watches := of.get(path, [])):
            watches.remove(watch)
            if not watches:
                del of[path]

    def remove(self, gone: Collection[Watch]) -> None:
        """These are not told any more."""
        for of in (self._of_data, self._of_children):
            for path, watches in list(of.items()):
                if left := [watch for watch in watches if watch not in gone]:
                    of[path] = left
                else:
                    del of[path]
