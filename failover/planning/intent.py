"""What an operator asked for, as a value that another machine can take up: verb, links, choices, consents, reason."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failover.errors import NewerVersion
from failover.journal.values import AT_MAX_MS
from failover.limits import DRAIN_TIMEOUT_S
from failover.running.steps import Operation


@dataclass(frozen=True, slots=True)
class Intent:
    """Who adds a field raises JOURNAL_VERSION and PLAN_VERSION: an older version would not do what it asks for.

    `links`: by name, in the order of the file. `groups`: only these; empty: all that the links select, or none where
    `no_groups` says so.

    `is_site`: they are those between the two sites, but for `refused_links`, which a gate refused, and those that the
    filter `topics` (full-match regular expressions) leaves out.

    `left_partitions`: "topic:partition", as the source calls them, that may stay as they are while they do not answer.

    `timestamp_ms` (Unix time): groups go on there, instead of by the offset map. `freezes`: writes at the source stop
    before the drain, which takes `drain_timeout_s` at most; a failover has neither. `whole_site`: to all its topics.
    """

    operation: Operation
    links: tuple[str, ...]
    source: str
    target: str
    groups: tuple[str, ...] = ()
    left_groups: tuple[str, ...] = ()
    left_partitions: tuple[str, ...] = ()
    set_back_groups: tuple[str, ...] = ()
    timestamp_ms: int | None = None
    allow_data_loss: bool = False
    even_if_source_answers: bool = False
    even_if_source_partly_there: bool = False
    freezes: bool = True
    whole_site: bool = False
    drain_timeout_s: float = DRAIN_TIMEOUT_S
    reason: str = ""
    is_site: bool = False
    topics: tuple[str, ...] = ()
    refused_links: tuple[str, ...] = ()
    no_groups: bool = False

    def document(self) -> dict[str, Any]:
        """As JSON has it; `read_intent` reads it."""
        return dataclasses.asdict(self)


NAMES: Final = ("links", "groups", "left_groups", "left_partitions", "set_back_groups", "topics", "refused_links")
TEXTS: Final = ("source", "target", "reason")
FLAGS: Final = (
    "allow_data_loss",
    "even_if_source_answers",
    "even_if_source_partly_there",
    "freezes",
    "whole_site",
    "is_site",
    "no_groups",
)
INTENT_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(Intent))


def read_intent(document: Mapping[str, Any]) -> Intent:
    """Raises NewerVersion where it says what this version does not know; KeyError, TypeError, ValueError where it is
    none.
    """
    if unknown := sorted(document.keys() - INTENT_FIELDS):
        raise NewerVersion(f"a newer version of farshore wrote what was asked for: it says {', '.join(unknown)}")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    values["operation"] = Operation(values["operation"])
    intent = Intent(**values)
    lists = [getattr(intent, name) for name in NAMES]
    if not all(isinstance(one, tuple) for one in lists):
        raise TypeError("what was asked for has no lists where lists belong")
    texts = [getattr(intent, name) for name in TEXTS]
    if not all(isinstance(one, str) for one in itertools.chain(texts, *lists)):
        raise TypeError("what was asked for has no names where names belong")
    if not all(isinstance(getattr(intent, name), bool) for name in FLAGS):
        raise TypeError("what was asked for says neither yes nor no where one of them belongs")
    if not (_is_number(intent.drain_timeout_s, int, float) and _is_number(intent.timestamp_ms, int, type(None))):
        raise TypeError("what was asked for has no times where times belong")
    return intent


def _is_number(value: Any, *kinds: type) -> bool:
    """Of one of these types, as JSON has them (True is none of them), and none that no clock reaches."""
    return type(value) in kinds and (value is None or abs(value) <= AT_MAX_MS)
