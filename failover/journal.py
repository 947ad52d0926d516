"""The operations journal as values: what was decided, when, by whom, on what evidence, and how it ended.

It stands in one compacted topic at the target cluster, so that any machine can read it and go on. An entry is a line of
JSON that carries the SHA-256 of the entry before it: one that was changed, dropped or reordered afterwards is found. A
line that one record does not take is cut into parts; until all of them are there the entry was never made. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from failover.errors import JournalDamaged, NewerVersion
from failover.journal_lines import Detail, fields_of

JOURNAL_VERSION: Final = 4
"""That is written; earlier ones are read. 2: an intent may name topics; 3: it may move no groups; 4: it may leave
partitions.
"""
GENESIS_HASH: Final = "0" * 64
PART_MAX_BYTES: Final = 512 * 1024
"""Of a line in one record: Kafka's topics take 1 MiB unless they are told otherwise."""
BATCH_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of an entry in one batch, before compression: who compacts the topic opens it."""
LEASE_KEY: Final = "lease"


class Event(StrEnum):
    """What an entry says."""

    PLANNED = "planned"
    """The first one: what was asked for, by whom, and the plan that was consented to."""
    STARTED = "started"
    DONE = "done"
    NOT_FENCED = "not_fenced"
    GROUPS_VERIFIED = "groups_verified"
    """The groups stand at the target, at these offsets: it is there before anybody is told that applications may start.
    """
    LINK_GIVEN_UP = "link_given_up"
    """One of several links stays as it is, the others go on."""
    TAKEN_UP = "taken_up"
    """Another process goes on with it."""
    CUT_SHORT = "cut_short"
    """It ended behind the fence, and can be gone on with."""
    GIVING_UP = "giving_up"
    GIVEN_UP = "given_up"
    """Before the fence; nothing stays changed."""
    ABORTED = "aborted"
    FINISHED = "finished"
    """It ran to its end, verified or not."""


ENDS: Final = frozenset({Event.GIVEN_UP, Event.ABORTED, Event.FINISHED})
"""After these nobody goes on with it."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """`event` is what happened at `at_ms` (Unix time, by the clock of who wrote it), `detail` its evidence. `version`:
    of the journal, as who wrote it had it.
    """

    sequence: int
    at_ms: int
    operation_id: str
    event: str
    detail: Mapping[str, Any]
    previous_hash: str
    version: int = JOURNAL_VERSION

    def line(self) -> str:
        return json.dumps(
            {
                "v": self.version,
                "sequence": self.sequence,
                "at_ms": self.at_ms,
                "operation_id": self.operation_id,
                "event": self.event,
                "detail": dict(self.detail),
                "previous_hash": self.previous_hash,
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    def hash(self) -> str:
        return hash_of(self.line().encode())

    def records(self, line: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """Keys and values that say it; `line`: its line, where that is at hand."""
        line = self.line().encode() if line is None else line
        parts = [line[at : at + PART_MAX_BYTES] for at in range(0, len(line), PART_MAX_BYTES)]
        return [(_key(self.operation_id, self.sequence, at, len(parts)), part) for at, part in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Lease:
    """Who carries the operation on, and when that was last said (Unix time, that machine's clock)."""

    who: str
    at_ms: int

    def record(self, operation_id: str) -> tuple[bytes, bytes]:
        return _key(operation_id, LEASE_KEY), _dump({"v": JOURNAL_VERSION, "who": self.who, "at_ms": self.at_ms})


@dataclass(frozen=True, slots=True)
class OperationLog:
    """One operation's entries, in order, checked against the chain; `damage` says what does not fit behind them.
    `keys`: of all the records that speak of it. `newer_version`: of the journal, which wrote what comes behind them; 0:
    none did.
    """

    operation_id: str
    entries: tuple[JournalEntry, ...]
    lease: Lease | None = None
    damage: str = ""
    keys: tuple[bytes, ...] = ()
    newer_version: int = 0

    @property
    def is_ended(self) -> bool:
        return any(entry.event in ENDS for entry in self.entries)

    @property
    def next_hash(self) -> str:
        return self.entries[-1].hash() if self.entries else GENESIS_HASH

    def check_version(self) -> None:
        """Raises NewerVersion."""
        if self.newer_version:
            raise NewerVersion(
                f"a newer version of farshore wrote the journal of {self.operation_id} (version {self.newer_version}; "
                f"this one reads {JOURNAL_VERSION})"
            )

    def whole(self) -> OperationLog:
        """Itself. Raises JournalDamaged, NewerVersion."""
        self.check_version()
        if self.damage or not self.entries:
            raise JournalDamaged(
                f"the journal of {self.operation_id} is damaged: {self.damage or 'it has no entry'}",
                hint="somebody else wrote to, or deleted from, the topic it stands in: see who may. It is neither "
                "resumed nor aborted: `farshore switchover` or `farshore failover`, with --dry-run first, goes on with "
                "its links",
            )
        return self


def hash_of(line: bytes) -> str:
    """Of an entry's line: what the next one names."""
    return hashlib.sha256(line).hexdigest()


def read_operations(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, OperationLog]:
    """What the topic's records say, by operation id, in the order in which the operations began.

    Damage to one operation is that one's; records that are nobody's entry are passed over. One of which every
    record was taken back is not there any more.
    """
    folding = OperationsFolding()
    for key, value in records:
        folding.take(key, value)
    return folding.operations()


class OperationsFolding:
    """As `read_operations`, record by record: an operation of which no more has come is not put together again."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, None]] = {}
        self._parts: dict[str, dict[tuple[int, int], dict[int, bytes]]] = {}
        self._leases: dict[str, Lease] = {}
        self._logs: dict[str, OperationLog] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        match _load(key):
            case [str(operation_id), "lease"]:
                lease = _lease(value)
                if lease is not None:
                    self._logs.pop(operation_id, None)
                    self._leases[operation_id] = lease
                    self._keys.setdefault(operation_id, {})[key or b""] = None
            case [str(operation_id), int(sequence), int(part), int(count)]:
                self._logs.pop(operation_id, None)
                found = self._parts.setdefault(operation_id, {}).setdefault((sequence, count), {})
                found.pop(part, None)
                self._keys.setdefault(operation_id, {}).pop(key or b"", None)
                if value is not None:
                    found[part] = value
                    self._keys[operation_id][key or b""] = None

    def operations(self) -> dict[str, OperationLog]:
        there = {operation_id: found for operation_id, found in self._parts.items() if any(found.values())}
        for operation_id in there.keys() - self._logs.keys():
            log = _operation(operation_id, there[operation_id], self._leases.get(operation_id))
            self._logs[operation_id] = replace(log, keys=tuple(self._keys[operation_id]))
        return {operation_id: self._logs[operation_id] for operation_id in there}


def _operation(
    operation_id: str, parts: Mapping[tuple[int, int], dict[int, bytes]], lease: Lease | None
) -> OperationLog:
    """A writer that died amid an entry leaves some of its parts, beside those of who went on in its place."""
    whole: dict[int, list[bytes]] = {}
    for (sequence, count), found in parts.items():
        if found.keys() == set(range(count)):
            whole.setdefault(sequence, []).append(b"".join(found[part] for part in range(count)))
    entries: list[JournalEntry] = []
    expected = GENESIS_HASH
    damage = ""
    for sequence in range(max(whole, default=-1) + 1):
        lines = [(line, fields_of(line)) for line in whole.get(sequence, ())]
        versions = [_version(fields) for _, fields in lines]
        if versions and min(versions) > JOURNAL_VERSION:
            return OperationLog(operation_id, tuple(entries), lease, newer_version=min(versions))
        read = [(line, entry) for line, fields in lines if (entry := _entry(fields)) is not None]
        fitting = [(line, one) for line, one in read if (one.sequence, one.previous_hash) == (sequence, expected)]
        if not fitting:
            damage = f"entry {sequence} is missing, or does not follow the one before"
            break
        entries.append(fitting[-1][1])
        expected = hash_of(fitting[-1][0])
    if entries and not _is_readable(entries[-1]):  # those before it are as the next one says
        damage = f"entry {entries.pop().sequence} is missing, or does not follow the one before"
    return OperationLog(operation_id, tuple(entries), lease, damage)


def _version(fields: Mapping[str, Any] | None) -> int:
    """0 where it says none."""
    version = fields.get("v") if fields is not None else None
    return version if isinstance(version, int) else 0


def _entry(fields: dict[str, Any] | None) -> JournalEntry | None:
    if fields is None or not 0 < _version(fields) <= JOURNAL_VERSION:
        return None
    try:
        return JournalEntry(version=fields.pop("v"), **fields)
    except TypeError:
        return None


def _is_readable(entry: JournalEntry) -> bool:
    try:
        return not isinstance(entry.detail, Detail) or entry.detail.opened() is not None
    except JournalDamaged:
        return False


def _lease(value: bytes | None) -> Lease | None:
    """Of whichever version: that somebody is heard of is understood in each."""
    found = _load(value)
    if not isinstance(found, dict) or not isinstance(found.get("at_ms"), int):
        return None
    return Lease(str(found.get("who", "")), found["at_ms"])


def _key(*parts: object) -> bytes:
    return _dump(list(parts))


def _load(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"null")
    except ValueError:
        return None


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
