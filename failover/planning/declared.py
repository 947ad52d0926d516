"""How the file of who began an operation declares its links, beside the file of who takes it up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from failover.errors import OtherFile
from failover.journal.values import OperationLog
from mirror.api import Link


def declared(link: Link) -> dict[str, Any]:
    """What decides which records and groups a move is about, as the journal has it."""
    return {"topics": sorted(link.topics), "topic_names": link.topic_names, "groups": sorted(link.groups)}


def check_declared(log: OperationLog, links: Iterable[Link]) -> None:
    """What was consented to is not what another file selects. An earlier version's journal does not say. Raises
    OtherFile.
    """
    known = log.entries[0].detail.get("declared")
    for link in links:
        before = known.get(link.name) if isinstance(known, dict) else None
        if isinstance(before, dict) and before != (now := declared(link)):
            parts = [name for name in now if before.get(name) != now[name]]
            raise OtherFile(log.operation_id, link.name, {name: (before.get(name), now[name]) for name in parts})
